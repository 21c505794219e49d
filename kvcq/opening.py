"""Opens a store whose queues are in RocksDB: the entry point for programs that embed one.

A directory with a migration.json may have queues elsewhere as well. `migration.opening` opens
those, and any other through this module; the service and the tools use it.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

from kvcq.databases import PlainDatabases
from store.base import SystemClock, no_progress
from store.errors import StoreFormatError
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.message_store import MessageStore


def open_store(
    config: StoreConfig, *, clock: Clock | None = None, progress: Progress = no_progress
) -> MessageStore:
    """Open and run the store in `config.root`; create it if the directory is empty or absent.

    A lost or damaged `kvcq/` database is rebuilt from the log; a damaged one is kept beside it
    under another name. `progress` is called with the current step and the fraction done, 0 to 1.
    Raises StoreLockedError, StoreFormatError, DiskFullError, CorruptRecordError,
    EngineUnavailableError.
    """
    clock = clock or SystemClock()
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    if directory.migration.exists():
        directory.close()
        raise StoreFormatError(directory.migration, "is there: `migration.opening` opens the store")
    return open_plain(config, clock, directory, progress)


def open_plain(
    config: StoreConfig, clock: Clock, directory: StoreDir, progress: Progress
) -> MessageStore:
    """Like `open_store`, for an open directory without a migration, which it takes over."""
    with ExitStack() as undo:
        undo.callback(directory.close)
        databases = PlainDatabases(config, clock, directory)
        undo.pop_all()
    return assemble(config, clock, directory, databases, progress)
