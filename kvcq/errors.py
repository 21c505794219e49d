"""What the engine raises; the consume queue store turns these into the store's own errors."""

from store.errors import StoreClosedError, StoreError


class KvcqError(StoreError):
    """Root of the errors of the key-value side."""


class EngineBusyError(KvcqError):
    """RocksDB stalls writes. Nothing was written; try the same batch a little later."""


class EngineClosedError(KvcqError, StoreClosedError):
    """The engine was closed."""


class EngineFailedError(KvcqError):
    """RocksDB reported an error that is not a stall: the database is to be checked or rebuilt."""


class CorruptValueError(KvcqError):
    """A row that no code of ours can have written."""
