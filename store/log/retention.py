"""Drops the oldest segments when they have expired, or when the operator allows it for disk space.

Unless `reclaim_unexpired` is set, nothing is dropped before it has expired, however full the disk
is: puts are rejected instead, see disk.py. The age of a segment is that of its last record, by its
judged time, see store_times.py. (RocketMQ uses the file's modification time, which copying or
touching it changes.) While a disk cannot be read nothing expires; a damaged record is as old as the
next whole one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from store.base import Lock
from store.errors import DiskFullError, StoreError, StoreFormatError
from store.log.disk import DiskLevel

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.config import StoreConfig
    from store.jobs import Jobs
    from store.log.disk import DiskGuard
    from store.log.segment import Segment
    from store.log.segment_set import SegmentSet
    from store.log.store_times import StoreTimes
    from store.notes import Notes

logger = logging.getLogger(__name__)


class Droppable(Protocol):
    """What retention needs of a segment."""

    start_offset: int
    size: int
    appended: int
    flushed: int


class Keeper(Protocol):
    """Keeps records longer than the log's retention."""

    def __call__(self, end: int, /, *, is_pressed: bool) -> int:
        """Append records below `end` that must be kept again; returns how far the log may be
        dropped. While the disk `is_pressed`, nothing may be left for later."""
        ...


#: Segments that one run drops at most while the disk has room.
FEW = 2
#: On a disk above `disk_clean_ratio`, or when it was asked for. RocketMQ's deleteFileBatchMax.
MANY = 10

#: Notes: physical offsets, i64.
_LOG_START = "log_start"
_KEPT_AGAIN = "kept_again"

S = TypeVar("S", bound=Droppable)


@dataclass(frozen=True)
class DropPlan(Generic[S]):
    """The oldest segments to drop, in order, and why no more of them."""

    drop: tuple[S, ...]
    read_error: Exception | None = None  # it ended at a segment that cannot be read


def plan_drop(
    segments: Sequence[S],
    newest_time_ms: Callable[[S], int],
    *,
    now_ms: int,
    reserved_ms: int,
    level: DiskLevel,
    time_up: bool,
    batch_max: int,
    safe_end: int,
    reclaim_unexpired: bool,
) -> DropPlan[S]:
    """Decide which of `segments`, oldest first, to drop now. Changes nothing.

    Nothing is dropped if it is neither time (`time_up`) nor the disk above the first level.
    Otherwise segments whose last record is older than `reserved_ms`, and with `reclaim_unexpired`
    those of any age from CLEAN_FORCIBLY on, up to the first one that must stay, at most
    `batch_max`. Never the last segment, and never one that is not flushed or reaches above
    `safe_end`, the physical offset below which everything is dispatched and durable. If
    `newest_time_ms` raises, the plan ends there and carries the error, whatever the level.
    """
    chosen: list[S] = []
    error: Exception | None = None
    of_any_age = reclaim_unexpired and level >= DiskLevel.CLEAN_FORCIBLY
    if time_up or level >= DiskLevel.CLEAN:
        for segment in segments[:-1][:batch_max]:
            if segment.flushed < segment.appended or segment.start_offset + segment.size > safe_end:
                break
            try:
                stored_ms = newest_time_ms(segment)
            except (OSError, StoreError) as caught:
                error = caught
                break
            if stored_ms + reserved_ms > now_ms and not of_any_age:
                break
            chosen.append(segment)
    return DropPlan(tuple(chosen), error)


def local_hour(now_ms: int) -> int:
    """Hour of the day, 0 to 23, in the time zone of the process."""
    return time.localtime(now_ms / 1000).tm_hour


def read_log_start(notes: Notes) -> int | None:
    """Physical offset at or below which the log must begin, unless files were lost; None if it is
    not known."""
    return _noted(notes, _LOG_START)


def write_log_start(notes: Notes, log_start: int) -> None:
    """Note that segments below `log_start` may be dropped. Durable on return. Raises OSError."""
    if read_log_start(notes) != log_start:
        notes.put(_LOG_START, log_start.to_bytes(8, "big"))


def read_kept_again(notes: Notes) -> int:
    """Physical offset behind the last records that were appended again to be kept: a log that is
    cut before it may lack some, as the segments that had them before may be gone. 0 if there were
    none, or it is not known."""
    return _noted(notes, _KEPT_AGAIN) or 0


def write_kept_again(notes: Notes, end: int) -> None:
    """Note where records were appended again. Durable on return. Raises OSError."""
    notes.put(_KEPT_AGAIN, end.to_bytes(8, "big"))


def _noted(notes: Notes, name: str) -> int | None:
    """None also if the note is damaged, which is logged: both are only for messages to people."""
    try:
        noted = notes.get(name)
    except StoreFormatError as error:
        logger.warning("%s is damaged: continuing without it", error.path)
        return None
    return None if noted is None else int.from_bytes(noted, "big")


class LogHold:
    """Keeps retention from dropping segments that are still being copied, from physical offset
    `start` on. A context manager that releases it at the end. Thread: any."""

    def __init__(self, holds: set[LogHold], start: int) -> None:
        self._holds = holds
        #: May be raised, which releases the part below.
        self.start = start
        holds.add(self)

    def __enter__(self) -> LogHold:
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.discard(self)


def lowest(holds: set[LogHold]) -> int | None:
    """Physical offset at and above which the log is held; None without holds."""
    return min((hold.start for hold in list(holds)), default=None)


class RetentionService:
    """Measures the disk and drops segments, every `clean_interval_s`.

    Thread: a job's; `run_once` may be called from any. Locks: `_running`, held for a whole run, so
    that runs do not overlap; taken before any other. Failure: the scheduler logs an error of a run,
    and the next run retries.
    """

    def __init__(
        self,
        segments: SegmentSet,
        guard: DiskGuard,
        config: StoreConfig,
        times: StoreTimes,
        *,
        newest_time_ms: Callable[[Segment], int],
        safe_end: Callable[[], int],
        on_dropped: Callable[[int], None],
        before_drop: Callable[[int, int], None] = lambda _start, _end: None,
        hour: Callable[[int], int] = local_hour,
    ) -> None:
        """`on_dropped(log start)` is called after a drop, `before_drop(log start now, log start
        then)` before it; if that raises, nothing is dropped.

        `newest_time_ms`: the store time of a segment's last record, or later. Everything below the
        physical offset `safe_end()` must be dispatched and durable, so that it may be dropped.
        """
        # Constant after construction.
        self._segments = segments
        self._guard = guard
        self._config = config
        self._times = times
        self._newest_time_ms = newest_time_ms
        self._safe_end = safe_end
        self._on_dropped = on_dropped
        self._before_drop = before_drop
        self._hour = hour
        self._holds: set[LogHold] = set()
        self._keepers: list[Keeper] = []
        self._running = Lock()
        #: Written by runs only; read freely.
        self.dropped_segments = 0
        self.read_errors = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply these settings, except the interval, from the next run on. Thread-safe."""
        self._config = config

    def add_keeper(self, keeper: Keeper) -> None:
        """Ask this keeper before segments are dropped, from the next run on."""
        self._keepers.append(keeper)

    def schedule(self, jobs: Jobs) -> None:
        jobs.add("retention", self._config.clean_interval_s, self.run_once)

    def hold(self) -> LogHold:
        """Hold the log from its current start until the hold is raised or its context ends. Blocks
        during a run, because one that has already decided ignores new holds."""
        with self._running:
            return LogHold(self._holds, self._segments.first_offset)

    def _droppable_end(self) -> int:
        """Physical offset below which the log may be dropped."""
        held = lowest(self._holds)
        safe = self._safe_end()
        return safe if held is None else min(safe, held)

    def run_once(self, *, now: bool = False) -> int:
        """Measure, decide and drop. Returns the number of segments dropped.

        `now`: requested by a caller, so the hour does not matter. Otherwise, while the disk has
        room, at most `FEW` are dropped, so that a wrong clock costs little before it is noticed.
        Raises OSError if a file cannot be removed; earlier drops are reported all the same. Raises
        what `before_drop` raises. Durability: each removal is fsynced before the next. A crash in
        between leaves a log that begins later, or a file that is dropped again.
        """
        with self._running:
            config = self._config
            now_ms = self._times.now_ms()
            level = self._guard.measure()
            many = now or level >= DiskLevel.CLEAN
            plan = plan_drop(
                list(self._segments),
                self._newest_time_ms,
                now_ms=now_ms,
                reserved_ms=round(config.reserved_hours * 3_600_000),
                level=level,
                time_up=now or self._hour(now_ms) in config.delete_when_hours,
                batch_max=MANY if many else FEW,
                safe_end=self._droppable_end(),
                reclaim_unexpired=bool(config.reclaim_unexpired),
            )
            if plan.read_error is not None:
                self.read_errors += 1
                logger.error(
                    "retention stops before a segment that cannot be read, nothing behind it is "
                    "dropped: %s",
                    plan.read_error,
                )
            return self._drop(self._kept(plan.drop, level))

    def _kept(self, drop: Sequence[Segment], level: DiskLevel) -> list[Segment]:
        """The first of these segments from which everything to be kept was moved. While the disk is
        pressed that is at least one: what cannot be moved from it in this run is given up."""
        if not drop:
            return []
        end = self._kept_below(drop[-1], is_pressed=False)
        if end < drop[0].start_offset + drop[0].size and level >= DiskLevel.CLEAN_FORCIBLY:
            end = self._kept_below(drop[0], is_pressed=True)
        return [each for each in drop if each.start_offset + each.size <= end]

    def _kept_below(self, last: Segment, *, is_pressed: bool) -> int:
        """Move what is to be kept of the segments up to this one; returns how far the log may be
        dropped."""
        end = last.start_offset + last.size
        for keeper in self._keepers:
            end = min(end, keeper(end, is_pressed=is_pressed))
        return end

    def _drop(self, drop: Sequence[Segment]) -> int:
        count = self._prepare(drop)
        dropped = 0
        try:
            for _ in drop[:count]:
                segment = self._segments.drop_first()
                dropped += 1
                logger.info("dropped segment %s", segment.path.name)
        finally:
            self.dropped_segments += dropped
            if dropped:
                self._on_dropped(self._segments.first_offset)
        if dropped:
            # Space came free: puts need not wait for the next run to be let in.
            self._guard.measure()
        return dropped

    def _prepare(self, drop: Sequence[Segment]) -> int:
        """How many of these may be dropped now. A full disk may only have room for the final
        entries of one."""
        while drop:
            try:
                self._before_drop(
                    self._segments.first_offset, drop[-1].start_offset + drop[-1].size
                )
            except DiskFullError:
                if len(drop) == 1:
                    raise
                drop = drop[:1]
            else:
                break
        return len(drop)
