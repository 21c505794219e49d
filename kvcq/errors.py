"""What the key-value side raises. Each is an error of the store, too."""

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
    """RocksDB stalls writes. Nothing was written; try the same batch a little later."""


class EngineFullError(EngineBusyError, DiskFullError):
    """The disk is full. Nothing was written, nothing is lost, reads go on; the same batch is taken
    once there is room again, without a restart."""


class EngineOutOfDescriptorsError(EngineBusyError, OutOfDescriptorsError):
    """There is no file descriptor left. As with a full disk: over when there are some again."""


class EngineClosedError(KvcqError, StoreClosedError):
    """The engine was closed."""


class EngineFailedError(KvcqError):
    """RocksDB reported an error that is not a stall: the database is to be checked or rebuilt."""


class EngineDamagedError(EngineFailedError):
    """A file of the database does not verify. What is derived is rebuilt by the next opening."""


class EngineUnavailableError(EngineFailedError):
    """The database cannot be opened for lack of space, of file descriptors, of a permission, or
    because another process has it open. Nothing says that it is damaged: try again later.
    """


class EngineNewerError(EngineUnavailableError):
    """The database has column families that this program does not know: a newer version wrote it.

    It is whole, so it is never moved aside or rebuilt: use the newer program.
    """


class CorruptValueError(KvcqError):
    """A row that no code of ours can have written."""


class BackupError(KvcqError):
    """Root of the errors of backups."""


class BackupTargetError(BackupError):
    """The place of the backups cannot be read or written. What is there stays as it was: a backup
    counts only when all of it is there, and the next one goes on with the files that are."""


class BackupRefusedError(BackupError):
    """This store is not backed up so, or not there; or there is no such backup. Nothing was
    written."""


class BackupDamagedError(BackupError):
    """What a backup holds is not what its manifest says."""
