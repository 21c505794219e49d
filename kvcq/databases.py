"""The database of a plain store, and the checks that it fits its log.

The database must not be ahead of the log, as after a power loss, nor behind the log's beginning,
nor behind a snapshot, which would mean that files of it were lost. Otherwise it is set aside, and
rebuilt from the newest snapshot of this log; or from nothing, if the log is complete from its first
byte.
"""

from __future__ import annotations

import logging
import shutil
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, ExpiryFilter, RocksEngine, damage_mark
from kvcq.errors import EngineDamagedError, EngineFailedError, EngineUnavailableError
from kvcq.snapshots import (
    DIRECTORY,
    Snapshots,
    drop_unfit,
    place_copy,
    place_empty,
    place_sealed,
    remove_unfinished,
    snapshots_in,
    state_lost,
)
from kvcq.state_store import KvStateStore
from kvcq.tables import BOUNDS, INDEX, UNITS
from kvcq.upgrade import finish, raise_version, take_over
from store.base import move_aside
from store.errors import StoreError, StoreFormatError
from store.state import Tables
from store.store_dir import FORMAT_VERSION

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from kvcq.engine.rocks import Profile
    from kvcq.snapshots import Snapshot
    from store.base import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import SegmentSet
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


class PlainDatabases:
    """The Databases of a plain store, see store/opening.py: queues and state in `kvcq/`."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        directory: StoreDir,
        flushes_state: Callable[[], bool] = lambda: False,
    ) -> None:
        """Open the database; a damaged one is moved aside. Raises EngineUnavailableError.

        `flushes_state`: see KvStateStore.
        """
        # Constant after construction.
        self._config = config
        self._clock = clock
        self._directory = directory
        self._path = directory.kvcq
        self._flushes_state = flushes_state
        # Whether files of it were found damaged: copies may share them.
        self._was_damaged = False
        self._was_there = self._path.exists()
        # Why this opening has made an empty one, if it has.
        self._why_empty = "" if self._was_there else "is missing"
        #: See Databases.
        self.rebuilt = ""
        self.is_old = directory.format_version < FORMAT_VERSION
        remove_unfinished(self._path)
        self._open()

    def _open(self) -> None:
        profile = replace(DERIVED, statistics=self._config.rocksdb_statistics)
        try:
            self._take(open_derived(self._path, profile, self._damaged))
        except EngineDamagedError:  # met by the first read, which left a mark
            self._take(open_derived(self._path, profile, self._damaged))

    def _damaged(self) -> None:
        self._was_damaged = True
        self._why_empty = "was damaged"

    def _take(self, engine: RocksEngine) -> None:
        self._engine = engine
        try:
            self._expiry = ExpiryFilter(engine, self._clock, self._config.expiry_margin_s)
            self.queues = KvConsumeQueueStore(engine, self._expiry)
            self.state = KvStateStore(engine, flushes=self._flushes_state)
        except BaseException:
            with suppress(StoreError):
                engine.close()
            raise

    @property
    def reach(self) -> int:
        return max(self.queues.dispatched_offset, self.state.point)

    def before_cut(self, end: int) -> None:
        if self.reach > end:
            self._why_empty = f"reached to {self.reach}, ahead of the log, which ends at {end}"
            self.close()
            place_empty(self._path, "ahead")
            self._open()

    def settle(self, segments: SegmentSet) -> None:
        if self.is_old:
            self._settle_old(segments)
        else:
            self._settle(segments)

    def _settle(self, segments: SegmentSet) -> None:
        snapshots = drop_unfit(self._directory.root, segments)
        start = max(segments.first_offset, self._directory.base_offset)
        end = segments.end_offset
        newest = snapshots[-1].point if snapshots else 0
        assert self.reach <= end, "what is ahead went before the cut"
        why, source = self._why_empty, "the log"
        if self.reach < newest or self.state.point < start:
            behind = f"the snapshot at {newest}" if self.reach < newest else f"the state at {start}"
            why = why or f"reached to {self.reach}, behind {behind}"
            is_empty = self.reach == 0
            self.close()
            if is_empty:  # created by this opening in place of one that was lost or moved aside
                shutil.rmtree(self._path)
            point = self._place(snapshots, start, "behind")
            if point:
                source = f"the snapshot at {point} and the log"
            assert start <= self.state.point <= end, "a state of this log"
        if why and end:
            self.rebuilt = f"{self._path} {why}. It is rebuilt from {source}"

    def _settle_old(self, segments: SegmentSet) -> None:
        """For a store of format 1: see upgrade.py."""
        for snapshot in snapshots_in(self._directory.root / DIRECTORY):
            snapshot.remove()  # left by an interrupted attempt
        if self._was_there and self._why_empty:
            self.rebuilt = f"{self._path} {self._why_empty}. It is rebuilt from meta/ and the log"
        take_over(self._directory, self._engine, self.queues, segments)
        self.state.advance(segments.end_offset)

    def replayed(self, segments: SegmentSet, queues: ConsumeQueueStore | None = None) -> None:
        """Finish the upgrade of a store of format 1; does nothing otherwise. `queues`: those that
        serve reads, if not its own."""
        if self.is_old:
            finish(self._directory, Tables(self.state), queues or self.queues, self._engine)
            self.state.flush()
            snapshots = self.snapshots(segments, lambda: None, queues)
            raise_version(self._directory, snapshots, segments.end_offset)
            self.is_old = False

    def _place(self, snapshots: list[Snapshot], start: int, why: str) -> int:
        """Open the replacement database. Returns the point of the snapshot that it is made of, 0
        without one. Raises DiskFullError, EngineUnavailableError."""
        for snapshot in reversed(snapshots):
            places = [place_copy, place_sealed] if snapshot.copy.exists() else [place_sealed]
            if self._was_damaged:
                places.reverse()  # the copy may share the damaged file
            for place in places:
                try:
                    place(snapshot, self._path, why)
                except EngineUnavailableError:
                    raise  # on a full disk, say: nothing is wrong with the snapshot
                except (StoreFormatError, EngineFailedError, OSError) as error:
                    logger.error("the snapshot at %d cannot be used: %s", snapshot.point, error)
                    continue
                self._open()
                if self.state.point == snapshot.point:
                    return snapshot.point
                # Opened empty, because the old database was damaged.
                self.close()
                shutil.rmtree(self._path)
        if start > 0:
            raise state_lost(self._path)
        place_empty(self._path, why)
        self._open()
        return 0

    def snapshots(
        self,
        segments: SegmentSet,
        flush_log: Callable[[], None],
        queues: ConsumeQueueStore | None = None,
    ) -> Snapshots:
        """Snapshots of the state, which has everything that is dispatched to `queues`, if not to
        its own."""

        def back_up() -> Path:
            self.state.advance((queues or self.queues).dispatched_offset)
            self.state.note_point()
            return self._engine.back_up()

        return Snapshots(self._directory.root, segments, back_up, flush_log, self._clock)

    # --- for a store that also has queues in files -------------------------------------------

    def open_queues(self) -> KvConsumeQueueStore:
        """The queues as of now; closing them leaves the database open."""
        return KvConsumeQueueStore(self._engine, self._expiry, owns_engine=False)

    def maintain(self) -> None:
        """Periodic work, about every second, for queues that do not do it themselves: see
        KvEngine.settle."""
        self._engine.settle()

    def clear_queues(self) -> None:
        """Remove all queues from the database, durably, and reclaim their space. Repeatable."""
        queues = self.open_queues()
        if queues.is_empty:
            return
        self.state.flush()
        queues.clear()
        for family in (UNITS, INDEX, BOUNDS):
            self._engine.compact(family)

    def close(self) -> None:
        self.state.close()
        self.queues.close()


def open_derived(
    path: Path, profile: Profile = DERIVED, damaged: Callable[[], None] = lambda: None
) -> RocksEngine:
    """Open the derived database; a damaged one is moved aside and replaced by an empty one.

    A mark left by a reader that found damage counts as well. `damaged` is called then. Raises
    EngineUnavailableError if it cannot be opened for another reason.
    """
    mark = damage_mark(path)
    if mark.exists():
        if path.exists():
            aside = move_aside(path, "damaged")
            logger.error("%s was found damaged while it was read: moved to %s", path, aside.name)
        damaged()
        mark.unlink()
    try:
        return RocksEngine.open(path, profile)
    except EngineUnavailableError:
        raise  # on a full disk, say: it knows more than the log does when segments were dropped
    except EngineFailedError as error:
        aside = move_aside(path, "damaged")
        damaged()
        logger.error("%s is damaged: moved to %s: %s", path, aside.name, error)
        return RocksEngine.open(path, profile)
