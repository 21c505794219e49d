"""The databases of a store with a migration: the state, and queues on one side or both.

One RocksDB, in `kvcq/`, has the state in every phase, and the queues of the RocksDB side if that is
in use. Data ahead of the log is never used: the database is set aside as in a plain store, and
queue files are truncated.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

from kvcq.databases import PlainDatabases
from kvcq.upgrade import unapplied_deletions
from migration.files import read_checkpoint
from migration.fill import remove_leftovers
from migration.sides import DoubleQueueStore, SideOpener, ends_below
from migration.state import Phase, SideName, StateKeeper
from migration.steps import LiveMigration
from store.base import retry_while_busy
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq.snapshots import Snapshots
    from kvcq.state_store import KvStateStore
    from migration.sides import FileSideStore, SideStore
    from migration.state import MigrationState
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.log import SegmentSet
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


class MigratingDatabases:
    """The Databases of a store with a migration, see store/opening.py: its state and sides."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        directory: StoreDir,
        state: MigrationState,
        progress: Progress,
    ) -> None:
        """Open the database and the sides that exist. Files that the phase does not need are
        removed once the log is recovered.

        Raises MigrationStateError if files that serve messages are missing, and what opening the
        database or a serving side raises. Another side that cannot be opened is left out.
        """
        self._directory = directory
        self._clock = clock
        self._keeper = StateKeeper(directory.root, state, clock)
        self._kvcq = PlainDatabases(config, clock, directory, self._flushes_state)
        self._opener = SideOpener(config, clock, directory, self._kvcq, progress)
        self._queues: DoubleQueueStore | None = None
        self._migration: LiveMigration | None = None
        self._files: FileSideStore | None = None
        try:
            if state.phase.serving is SideName.FILES:
                self._opener.require_files(state)
            if not state.uses(SideName.FILES):
                self._opener.remove(SideName.FILES)  # a step was interrupted after its change
            remove_leftovers(directory.root)
            if state.uses(SideName.FILES):
                self._open_files()
        except BaseException:
            self._kvcq.close()
            raise

    def _open_files(self) -> None:
        state = self._keeper.state
        try:
            self._files = self._opener.files(state)
        except StoreError as error:
            if state.phase.serving is SideName.FILES:
                raise
            reason = f"the {SideName.FILES.value} side cannot be opened: {error}"
            self._keeper.stop(reason, unopened=SideName.FILES.value)

    def _flushes_state(self) -> bool:
        """Whether the state must flush the engine itself. It need not if the RocksDB side serves,
        because a serving side is flushed anyway."""
        return self._queues is None or self._queues.phase.serving is not SideName.ROCKSDB

    @property
    def queues(self) -> DoubleQueueStore:
        assert self._queues is not None, "the log is recovered"
        return self._queues

    @property
    def migration(self) -> LiveMigration:
        """Runs the migration's steps; the caller begins it."""
        assert self._migration is not None, "the log is recovered"
        return self._migration

    @property
    def state(self) -> KvStateStore:
        return self._kvcq.state

    @property
    def rebuilt(self) -> str:
        return self._kvcq.rebuilt

    @property
    def reach(self) -> int:
        return max(self._kvcq.reach, 0 if self._files is None else self._files.dispatched_offset)

    def before_cut(self, end: int) -> None:
        self._kvcq.before_cut(end)
        if self._files is not None:
            self._files.truncate(end)

    def settle(self, segments: SegmentSet) -> None:
        if self._kvcq.is_old and self._files is not None:
            # Before the database of topics is removed: see upgrade.py.
            checkpoint = read_checkpoint(self._directory.root)
            applied = 0 if checkpoint is None else checkpoint.applied_deletions
            for topic in unapplied_deletions(self._directory, applied):
                self._files.delete_topic(topic, self._files.dispatched_offset)
        self._kvcq.settle(segments)
        if self._files is not None:
            self._files.truncate(segments.end_offset)
        stores: dict[SideName, SideStore] = {}
        state = self._keeper.state
        if self._files is not None:
            stores[SideName.FILES] = self._files
        if state.uses(SideName.ROCKSDB):
            stores[SideName.ROCKSDB] = self._opener.rocksdb()
        else:
            self._opener.remove(SideName.ROCKSDB)
        self._take_ends(stores, segments.first_offset)
        self._tell_rebuilt(stores)
        self._migration = LiveMigration(self._keeper, self._opener, self._clock)
        absent = {name for name in SideName if state.uses(name)} - stores.keys()
        state = self._keeper.state
        self._queues = DoubleQueueStore(
            state.phase, stores, self._migration, absent, segments.first_offset
        )
        if state.stopped:
            for name in stores:
                if name is not state.phase.serving:
                    self._queues.mark_stopped(name, state.stopped)

    def _take_ends(self, stores: dict[SideName, SideStore], log_start: int) -> None:
        """If the serving side is rebuilt from a log that does not begin with its first record, take
        ends of queues from the other side: the replay does not, and no snapshot has them from
        before the double write."""
        serving = self._keeper.state.phase.serving
        rebuilt, other = stores[serving], stores.get(serving.other)
        if other is None or not rebuilt.dispatched_offset < log_start <= other.dispatched_offset:
            return
        for unit in ends_below(other, log_start):
            retry_while_busy(partial(rebuilt.restore_last_units, [unit]))

    def _tell_rebuilt(self, stores: dict[SideName, SideStore]) -> None:
        """Discard verification results of a side that is rebuilt."""
        new = {name for name in stores if stores[name].dispatched_offset == 0}
        if self._kvcq.rebuilt and SideName.ROCKSDB in stores:
            new.add(SideName.ROCKSDB)
        now = self._keeper.state
        # In a store without messages all sides are new, and nothing verified is lost.
        if now.verified is not None and now.verified.cut_offset == 0:
            return
        for side in (name.value for name in SideName if name in new):
            now = self._keeper.state
            if now.phase is Phase.VERIFIED or side in now.blamed:
                event = f"rebuilt: {side}; the verification is invalidated"
                self._keeper.move(event, **now.rebuilt(side))

    def replayed(self, segments: SegmentSet) -> None:
        self._kvcq.replayed(segments, self.queues)

    def snapshots(self, segments: SegmentSet, flush_log: Callable[[], None]) -> Snapshots:
        return self._kvcq.snapshots(segments, flush_log, self.queues)

    def close(self) -> None:
        try:
            if self._queues is not None:
                self._queues.close()
            elif self._files is not None:
                with suppress(StoreError):
                    self._files.close()
        finally:
            self._kvcq.close()
