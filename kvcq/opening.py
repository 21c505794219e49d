"""Open a store whose queues are in RocksDB: the way in, for programs that embed one.

A directory with a migration.json may have queues elsewhere too. `migration.opening` opens those,
and any other through what is here: it is the way in for the service and the tools.
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
    """A running store in `config.root`, made there if the directory is empty or absent.

    A `kvcq/` database that is lost or damaged is rebuilt from the log; a damaged one is kept beside
    it under another name. `progress` is called with what is being done, and how much, 0 to 1.
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
    """As `open_store`, in a directory that is open, and has no migration; takes it over."""
    with ExitStack() as undo:
        undo.callback(directory.close)
        databases = PlainDatabases(config, clock, directory)
        undo.pop_all()
    return assemble(config, clock, directory, databases, progress)
