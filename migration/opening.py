"""Opens any store directory: the entry point for the service and the tools.

Without a migration.json it is a plain store: see `kvcq.opening`. Otherwise its phase determines
where queues are read and written. A directory whose messages would be hidden by that is rejected.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kvcq.opening import open_plain
from migration.databases import MigratingDatabases
from migration.errors import MigrationStateError
from migration.state import STATE_FILE, Phase, read_state
from store.base import SystemClock, no_progress
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from migration.steps import LiveMigration
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.message_store import MessageStore


class Opened(NamedTuple):
    """An open store."""

    store: MessageStore
    #: None: created in RocksDB, and never on files.
    migration: LiveMigration | None


def open_any(
    config: StoreConfig,
    *,
    clock: Clock | None = None,
    progress: Progress = no_progress,
) -> Opened:
    """Open and run the store in `config.root`; create it if the directory is empty or absent.

    A lost or damaged `kvcq/` database is rebuilt from a snapshot and the log; a damaged one is kept
    beside it under another name. An interrupted backfill continues. `progress` is called with the
    current step and the fraction done, 0 to 1. Raises StoreLockedError, StoreFormatError,
    MigrationStateError, DiskFullError, CorruptRecordError, EngineUnavailableError.
    """
    clock = clock or SystemClock()
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    with ExitStack() as undo:
        undo.callback(directory.close)
        state = read_state(config.root)
        if state is None:
            undo.pop_all()
            return Opened(open_plain(config, clock, directory, progress), None)
        if state.phase is Phase.ADOPTING:
            raise MigrationStateError(
                config.root / STATE_FILE,
                f"taking over was interrupted: `kvcq migrate start {config.root}` continues it",
            )
        if state.released is not None:
            raise MigrationStateError(
                config.root / STATE_FILE,
                f"the release was interrupted: `kvcq migrate release {config.root}` continues it",
            )
        if config.reclaim_unexpired is None:
            config = replace(config, reclaim_unexpired=state.reclaim_unexpired)
        databases = MigratingDatabases(config, clock, directory, state, progress)
        undo.pop_all()
    store = assemble(
        config,
        clock,
        directory,
        databases,
        progress,
        still_needed=lambda: databases.queues.still_needed(),
    )
    try:
        databases.migration.begin(store, databases.queues)
    except BaseException:
        store.close()
        raise
    return Opened(store, databases.migration)
