"""Takes snapshots of a running store, seals them, and removes old ones."""

from __future__ import annotations

import logging
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineFullError
from kvcq.snapshots.sealing import seal
from kvcq.snapshots.snapshot import DIRECTORY, Mark, Snapshot, snapshots_in
from kvcq.state_store import KvStateStore
from store.base import Lock, fsync_directory
from store.errors import DiskFullError, StoreFormatError
from store.state import REPLAY_BYTES_S

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.base import Clock
    from store.log import SegmentSet

logger = logging.getLogger(__name__)

#: A replay from the copy is no longer than this much of the log: about 40 s.
EVERY_BYTES = 2 << 30
#: At a clean stop a replay of less than this is left to the next start: about 1.5 s.
AT_STOP_BYTES = 64 << 20
#: Number of newest snapshots that keep their copy; each copy keeps its table files on disk.
_COPIES = 2
#: Sealed snapshots that are kept, spread over the log: a restore to a point starts from one.
_KEPT = 8


class Snapshots:
    """Takes, seals and removes the snapshots of a store.

    Thread: any; one operation at a time. Locks: `_working`, taken before the engine's.
    """

    def __init__(
        self,
        root: Path,
        segments: SegmentSet,
        back_up: Callable[[], Path],
        flush_log: Callable[[], None],
        clock: Clock,
    ) -> None:
        """`back_up` copies the database, which records how far its state is; `flush_log` makes
        everything appended before durable."""
        # Constant after construction.
        self._directory = root / DIRECTORY
        self._segments = segments
        self._back_up = back_up
        self._flush_log = flush_log
        self._clock = clock
        self._working = Lock()
        # Guarded by _working; replaced whole, read freely.
        self.kept = tuple(snapshots_in(self._directory))

    @property
    def newest_point(self) -> int:
        """Physical offset of the newest snapshot; without one the log's first byte, where the state
        is empty."""
        return self.kept[-1].point if self.kept else 0

    def look(self) -> None:
        """Take a snapshot if the log has grown enough, or if none would allow dropping its first
        segment; called every second. Seals unsealed ones."""
        with self._working:
            has_grown = self._segments.end_offset - self.newest_point >= EVERY_BYTES
            if has_grown or not self._frees_first_segment():
                self._take()
            for snapshot in self.kept:
                self._seal(snapshot)
            self._thin_out()

    def cover(self, end: int) -> None:
        """Make sure that a sealed snapshot is at or above `end`, so that the log below may be
        dropped.

        Everything below `end` must be dispatched. Raises DiskFullError if there is no room for one
        even after removing older ones, and what taking it raises.
        """
        with self._working:
            if not any(each.point >= end and self._is_whole(each) for each in self.kept):
                try:
                    self._seal(self._take())
                except (DiskFullError, EngineFullError):
                    while len(self.kept) > 1:
                        self._remove(self.kept[0])
                    self._seal(self._take())
            for snapshot in self.kept:
                if snapshot.point < end:  # useless once the log begins after it
                    self._remove(snapshot)

    def stop(self) -> None:
        """Called at a clean stop, with everything flushed and dispatched, so that the next replay
        is short."""
        with self._working:
            if self._segments.end_offset - self.newest_point >= AT_STOP_BYTES:
                self._take()

    def take(self) -> Snapshot:
        """Take and seal a snapshot now."""
        with self._working:
            snapshot = self._take()
            self._seal(snapshot)
            return snapshot

    def take_anew(self) -> None:
        """See store.state.Snapshots."""
        with self._working:
            before = self.kept
            snapshot = self._take(anew=True)
            self._seal(snapshot)
            for each in before:
                if each.point != snapshot.point:
                    self._remove(each)

    def _frees_first_segment(self) -> bool:
        """Whether retention could drop the first segment without another snapshot, for which a full
        disk may have no room."""
        first = self._segments.find(self._segments.first_offset)
        if first is None:
            return True
        end = first.start_offset + first.size
        return self._segments.end_offset < end or self.newest_point >= end

    def _take(self, *, anew: bool = False) -> Snapshot:
        copy = self._back_up()
        try:
            with closing(RocksEngine.open_read_only(copy, DERIVED)) as engine:
                point = KvStateStore(engine).point
            # The log must be durable up to the snapshot's point before the snapshot has its name.
            self._flush_log()
            for snapshot in self.kept:
                if snapshot.point == point:
                    if not anew and self._is_of_use(snapshot):
                        return snapshot
                    self._remove(snapshot)
            mark = Mark.of(self._segments, point, self._clock.now_ms())
            snapshot = Snapshot.write(self._directory, mark, copy)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        self.kept = (*self.kept, snapshot)
        return snapshot

    def _seal(self, snapshot: Snapshot) -> None:
        if not snapshot.is_sealed:
            seal(snapshot)
            snapshot.verified_files()

    def _is_of_use(self, snapshot: Snapshot) -> bool:
        """Whether its sealed files are intact, or can be made."""
        return self._is_whole(snapshot) if snapshot.is_sealed else snapshot.copy.exists()

    def _is_whole(self, snapshot: Snapshot) -> bool:
        try:
            return bool(snapshot.is_sealed and snapshot.verified_files() is not None)
        except (StoreFormatError, OSError) as error:
            logger.error("a snapshot cannot be used: %s", error)
            return False

    def _thin_out(self) -> None:
        """Remove copies of older snapshots, and some sealed ones so that the rest are evenly
        spaced."""
        if not all(each.is_sealed for each in self.kept[-_COPIES:]):
            return
        for snapshot in self.kept[:-_COPIES]:
            snapshot.remove_copy()
        while len(self.kept) > _KEPT:
            # The one between the closest two is the least useful.
            inner = range(1, len(self.kept) - _COPIES)
            at = min(inner, key=lambda at: self.kept[at + 1].point - self.kept[at - 1].point)
            self._remove(self.kept[at])

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        kept = self.kept
        behind = self._segments.end_offset - self.newest_point
        newest_ms = kept[-1].mark.taken_ms if kept else 0
        return {
            "snapshots.kept": len(kept),
            "snapshots.newest_point": self.newest_point,
            "snapshots.newest_age_s": (
                (self._clock.now_ms() - newest_ms) / 1000 if newest_ms else 0.0
            ),
            "snapshots.sealed_bytes": sum(each.sealed_bytes for each in kept),
            "snapshots.replay_bytes": behind,
            "snapshots.replay_s": behind / REPLAY_BYTES_S,
        }

    def _remove(self, snapshot: Snapshot) -> None:
        self.kept = tuple(each for each in self.kept if each is not snapshot)
        snapshot.remove()


def drop_unfit(root: Path, segments: SegmentSet) -> list[Snapshot]:
    """On opening, before anything is appended: remove snapshots that do not belong to this log,
    durably.

    Returns the others, by point.
    """
    directory = root / DIRECTORY
    fitting = []
    for snapshot in snapshots_in(directory):
        if not (snapshot.is_sealed or snapshot.copy.exists()):
            logger.warning("the snapshot at %d has nothing left: it is removed", snapshot.point)
            snapshot.remove()
        elif snapshot.mark.fits(segments):
            fitting.append(snapshot)
        else:
            logger.warning("the snapshot at %d is not of this log: it is removed", snapshot.point)
            snapshot.remove()
            fsync_directory(directory)
    return fitting
