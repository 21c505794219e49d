"""Open a store directory: the one way in for the service, the tools and programs that embed it.

What the queues are read from and written to follows from migration.json: RocksDB alone where
there is none, else what its phase says. A directory in which that would hide messages is refused.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine, metadata_profile
from kvcq.errors import EngineFailedError, EngineUnavailableError
from kvcq.metadata_store import MetadataStore
from migration.errors import MigrationStateError
from migration.fill import remove_leftovers
from migration.sides import NO_TOPIC, DoubleQueueStore, SideOpener
from migration.state import STATE_FILE, Phase, Routes, SideName, StateKeeper, read_state
from migration.steps import LiveMigration
from store.clock import SystemClock
from store.errors import StoreError, StoreFormatError
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.sides import SideStore
    from migration.state import MigrationState
    from store.clock import Clock
    from store.config import StoreConfig
    from store.message_store import MessageStore
    from store.metadata import Metadata


def open_store(
    config: StoreConfig,
    *,
    clock: Clock | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> MessageStore:
    """A running store in `config.root`, made there if the directory is empty or absent.

    A `kvcq/` database that is lost or damaged is rebuilt from the log, where nothing else knows
    more than the log; a damaged one is kept beside it under another name. A backfill that was
    under way goes on. `progress` is told what is being done, and how much, 0 to 1.
    Raises StoreLockedError, StoreFormatError, MigrationStateError, DiskFullError,
    CorruptRecordError, EngineUnavailableError.
    """
    clock = clock or SystemClock()
    progress = progress or (lambda _what, _share: None)
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    try:
        state = read_state(config.root)
        if state is not None and state.phase is Phase.ADOPTING:
            raise MigrationStateError(
                config.root / STATE_FILE,
                f"taking over was cut short: `kvcq migrate start {config.root}` goes on with it",
            )
        if state is not None and config.reclaim_unexpired is None:
            config = replace(config, reclaim_unexpired=state.reclaim_unexpired)
        opener = SideOpener(config, clock, directory, progress)
        metadata = MetadataStore(_open_metadata(directory))
        if state is not None:
            try:
                double, keeper = _compose(state, opener, directory, clock)
            except BaseException:
                metadata.close()
                raise
            return _assemble_double(
                config, clock, directory, double, keeper, opener, metadata, progress
            )
        try:
            queues = opener.rocksdb()
        except BaseException:
            metadata.close()
            raise
    except BaseException:
        directory.close()
        raise
    return assemble(config, clock, directory, queues, metadata, progress)


def _compose(
    state: MigrationState, opener: SideOpener, directory: StoreDir, clock: Clock
) -> tuple[DoubleQueueStore, StateKeeper]:
    """The sides that the state needs, and what it does not need removed.

    Raises MigrationStateError when a side that serves messages is missing, and what opening one
    raises; another side that cannot be opened is left out, and the state says why.
    """
    keeper = StateKeeper(directory.root, state, clock)
    routes = Routes(state.phase, state.routing)
    needed = {SideName.FILES: state.needs_files, SideName.ROCKSDB: state.needs_rocksdb}
    # Without a file side the log is all there is to know about the queues, as in any store of ours.
    for name in SideName:
        if needed[name] and routes.required(name) and state.needs_files:
            opener.require(name, state)
    for name, is_needed in needed.items():
        if not is_needed:
            opener.remove(name)  # a step was cut short after its change of phase
    remove_leftovers(directory.root)
    stores: dict[SideName, SideStore] = {}
    try:
        for name in sorted(SideName, key=routes.required, reverse=True):
            if not needed[name]:
                continue
            try:
                stores[name] = opener.open(name, state)
            except StoreError as error:
                if routes.required(name):
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
                event = f"made anew: {side}; what was verified is gone"
                keeper.move(event, **now.made_anew(side))
        routes = Routes(keeper.state.phase, state.routing)
    double = DoubleQueueStore(routes, stores, lambda _, error: keeper.stop(str(error)))
    if state.stopped:
        for name in stores:
            if not routes.required(name):
                double.keep_out(name, state.stopped)
    return double, keeper


def _seed_deletions(stores: dict[SideName, SideStore]) -> None:
    """A side made anew counts deletions from where the other one is."""
    applied = max((store.applied_deletions for store in stores.values()), default=0)
    for store in stores.values():
        if store.dispatched_offset == 0 and store.applied_deletions < applied:
            store.delete_topic(NO_TOPIC, applied)


def _assemble_double(
    config: StoreConfig,
    clock: Clock,
    directory: StoreDir,
    double: DoubleQueueStore,
    keeper: StateKeeper,
    opener: SideOpener,
    metadata: Metadata,
    progress: Callable[[str, float], None],
) -> MessageStore:
    store = assemble(
        config,
        clock,
        directory,
        double,
        metadata,
        progress,
        still_needed=double.still_needed,
    )
    double.live = LiveMigration(store, double, keeper, opener, clock)
    double.live.look()
    return store


def _open_metadata(directory: StoreDir) -> RocksEngine:
    """Topics and committed offsets are not in the log: damage here is refused, not papered over."""
    fresh = not directory.checkpoint.exists() and not directory.commitlog.exists()
    remedy = (
        f"Bring it back from a copy of the directory, or run `kvcq repair {directory.root} "
        "--metadata`: it keeps what is there under another name, and finds the topics again in "
        "log and queues, but no committed offsets"
    )
    if not fresh and not (directory.meta.is_dir() and any(directory.meta.iterdir())):
        raise StoreFormatError(
            directory.meta,
            f"is missing: topics, groups and committed offsets are in it. {remedy}",
        )
    try:
        return RocksEngine.open(directory.meta, metadata_profile())
    except EngineUnavailableError:
        raise
    except EngineFailedError as error:
        raise StoreFormatError(
            directory.meta,
            f"is not the database that was written last ({error}). Nothing was changed. {remedy}",
        ) from error
