"""The errors of the key-value side. Each is a StoreError as well."""

from store.errors import (
    DiskFullError,
    OutOfDescriptorsError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
)


class KvcqError(StoreError):
    """Root of the errors of the key-value side."""


class EngineBusyError(KvcqError, StoreBusyError):
    """RocksDB stalls writes. Nothing was written; retry the same batch a little later."""


class EngineFullError(EngineBusyError, DiskFullError):
    """The disk is full. Nothing was written, nothing is lost, reads continue. The same batch
    succeeds once there is room, without a restart."""


class EngineOutOfDescriptorsError(EngineBusyError, OutOfDescriptorsError):
    """No file descriptor is free. Like a full disk, this ends when some become free."""


class EngineClosedError(KvcqError, StoreClosedError):
    """The engine was closed."""


class EngineFailedError(KvcqError):
    """RocksDB reported an error that is not a stall. Check or rebuild the database."""


class EngineDamagedError(EngineFailedError):
    """A file of the database does not verify. The next opening rebuilds derived data."""


class EngineUnavailableError(EngineFailedError):
    """The database cannot be opened for lack of space, file descriptors or permissions, or because
    another process has it open. It is not known to be damaged; retry later."""


class EngineNewerError(EngineUnavailableError):
    """The database has column families that this version does not know: a newer version wrote it.

    It is intact, so it is never moved aside or rebuilt. Use the newer version.
    """


class CorruptValueError(KvcqError):
    """A row that our code cannot have written."""


class BackupError(KvcqError):
    """Root of the errors of backups."""


class BackupTargetError(BackupError):
    """The place of the backups cannot be read or written. Its content does not change: a backup
    only counts once it is complete, and the next one reuses its files."""


class BackupRefusedError(BackupError):
    """The store cannot be backed up this way or to this place, or no such backup exists. Nothing
    was written."""


class BackupDamagedError(BackupError):
    """The content of a backup does not match its manifest."""
