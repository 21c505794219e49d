"""Open any store directory: the way in for the service and the tools.

Without a migration.json it is a plain store, see `kvcq.opening`. Otherwise its phase says what the
queues are read from and written to. A directory in which that would hide messages is refused.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from kvcq.opening import open_metadata, open_plain
from migration.errors import MigrationStateError
from migration.fill import remove_leftovers
from migration.sides import NO_TOPIC, DoubleQueueStore, SideOpener
from migration.state import STATE_FILE, Phase, SideName, StateKeeper, read_state
from migration.steps import LiveMigration
from store.base import SystemClock, no_progress
from store.errors import StoreError
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from migration.sides import SideStore
    from migration.state import MigrationState
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.message_store import MessageStore


class Opened(NamedTuple):
    """An open store."""

    store: MessageStore
    #: None: it was made in RocksDB, and was never on files.
    migration: LiveMigration | None


def open_any(
    config: StoreConfig,
    *,
    clock: Clock | None = None,
    progress: Progress = no_progress,
) -> Opened:
    """A running store in `config.root`, made there if the directory is empty or absent.

    A `kvcq/` database that is lost or damaged is rebuilt from the log, where nothing else knows
    more than the log; a damaged one is kept beside it under another name. A backfill that was
    under way goes on. `progress` is told what is being done, and how much, 0 to 1.
    Raises StoreLockedError, StoreFormatError, MigrationStateError, DiskFullError,
    CorruptRecordError, EngineUnavailableError.
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
                f"taking over was cut short: `kvcq migrate start {config.root}` goes on with it",
            )
        if state.released is not None:
            raise MigrationStateError(
                config.root / STATE_FILE,
                f"giving back was cut short: `kvcq migrate release {config.root}` goes on with it",
            )
        if config.reclaim_unexpired is None:
            config = replace(config, reclaim_unexpired=state.reclaim_unexpired)
        opener = SideOpener(config, clock, directory, progress)
        metadata = open_metadata(directory)
        undo.callback(metadata.close)
        double, migration = _compose(state, opener, directory, clock)
        undo.pop_all()
    store = assemble(
        config,
        clock,
        directory,
        double,
        metadata,
        progress,
        still_needed=double.still_needed,
    )
    migration.begin(store, double)
    return Opened(store, migration)


def _compose(
    state: MigrationState, opener: SideOpener, directory: StoreDir, clock: Clock
) -> tuple[DoubleQueueStore, LiveMigration]:
    """The sides that the state needs, and what it does not need removed.

    Raises MigrationStateError when a side that serves messages is missing, and what opening one
    raises; another side that cannot be opened is left out, and the state says why.
    """
    keeper = StateKeeper(directory.root, state, clock)
    serving = state.phase.serving
    needed = {name: state.uses(name) for name in SideName}
    # Without a file side the log is all there is to know about the queues, as in any store of ours.
    if needed[SideName.FILES]:
        opener.require(serving, state)
    for name, is_needed in needed.items():
        if not is_needed:
            opener.remove(name)  # a step was cut short after its change of phase
    remove_leftovers(directory.root)
    stores: dict[SideName, SideStore] = {}
    try:
        for name in (serving, serving.other):
            if not needed[name]:
                continue
            try:
                stores[name] = opener.open(name, state)
            except StoreError as error:
                if name is serving:
                    raise
                reason = f"the {name.value} side cannot be opened: {error}"
                keeper.stop(reason, unopened=name.value)
        _seed_deletions(stores)
    except BaseException:
        for store in stores.values():
            store.close()
        raise
    new = [name.value for name in stores if stores[name].dispatched_offset == 0]
    # In a store without a message all sides are new, and nothing that was verified is gone.
    verified_any = state.verified is None or state.verified.cut_offset > 0
    if verified_any:
        for side in new:
            now = keeper.state
            if now.phase is Phase.VERIFIED or side in now.blamed:
                event = f"rebuilt: {side}; the verification is invalidated"
                keeper.move(event, **now.rebuilt(side))
    migration = LiveMigration(keeper, opener, clock)
    absent = {name for name, is_needed in needed.items() if is_needed and name not in stores}
    double = DoubleQueueStore(keeper.state.phase, stores, migration, absent)
    if state.stopped:
        for name in stores:
            if name is not serving:
                double.keep_out(name, state.stopped)
    return double, migration


def _seed_deletions(stores: dict[SideName, SideStore]) -> None:
    """A side that is made anew counts deletions from where the other one is. One that is brought up
    from the beginning, but has rows, is told of each that it missed."""
    applied = max((store.applied_deletions for store in stores.values()), default=0)
    for store in stores.values():
        is_behind = store.dispatched_offset == 0 and store.applied_deletions < applied
        if is_behind and next(iter(store.names()), None) is None:
            store.delete_topic(NO_TOPIC, applied)
