"""Dropping the oldest segments: when they expired, or when the operator gives them for space.

Unless `reclaim_unexpired` is set nothing goes before it has expired, however full the disk is, and
whoever fills it: puts are refused instead, see disk.py. A segment is as old as the last record in
it, by the time that this counts as stored at, see store_times.py. (RocketMQ takes the time the
file was changed, which copying or touching it moves.) A disk that cannot be read expires nothing; a
damaged record is as old as the next whole one.
"""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from store.base import Lock
from store.errors import DiskFullError, StoreError
from store.log.disk import DiskLevel
from store.log.holds import LogHolds

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.config import StoreConfig
    from store.jobs import Jobs
    from store.log.disk import DiskGuard
    from store.log.holds import LogHold
    from store.log.segment import Segment
    from store.log.segment_set import SegmentSet
    from store.log.store_times import NamedValues, StoreTimes

logger = logging.getLogger(__name__)


class Droppable(Protocol):
    """What the decision looks at, of a segment."""

    start_offset: int
    size: int
    appended: int
    flushed: int


class Keeper(Protocol):
    """Of what is to be kept longer than the log."""

    def __call__(self, end: int, /, *, is_pressed: bool) -> int:
        """Of the log below `end`, appends again what is to be kept; returns up to where the log may
        go. While the disk `is_pressed` nothing may wait."""
        ...


#: Segments that one run drops at most while the disk has room.
FEW = 2
#: On a disk above `disk_clean_ratio`, or when it was asked for. RocketMQ's deleteFileBatchMax.
MANY = 10

#: A note: physical offset, i64.
_LOG_START = "log_start"

S = TypeVar("S", bound=Droppable)


@dataclass(frozen=True)
class DropPlan(Generic[S]):
    """The oldest segments that are to go, in order, and why no more than these."""

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
    """Which of `segments`, oldest first, are to be dropped now. Decides only; changes nothing.

    Nothing when it is neither time (`time_up`) nor the disk above the first level. Then segments
    that expired `reserved_ms` after their last record, with `reclaim_unexpired` those of any age
    from CLEAN_FORCIBLY on, until the first that is not, at most `batch_max`. Never the last
    segment; never one that is not flushed or reaches above `safe_end`, a physical offset: all below
    is dispatched and durable.
    When `newest_time_ms` raises, the plan ends there and carries the error, whatever the level.
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


def read_log_start(values: NamedValues) -> int | None:
    """Where the log begins at the latest, if no file was lost; None: it was not noted yet."""
    noted = values.get(_LOG_START)
    return None if noted is None else int.from_bytes(noted, "big")


def write_log_start(values: NamedValues, log_start: int) -> None:
    """Segments below may go, or are gone. Durable on return. Raises OSError."""
    if read_log_start(values) != log_start:
        values.put(_LOG_START, log_start.to_bytes(8, "big"))


class RetentionService:
    """Measures the disk and drops segments, every `clean_interval_s`.

    Thread: a job's; `run_once` may be called from any.
    Locks: `_running`, held for a whole run, so that runs do not overlap; taken before any other.
    Failure: what a run raises is logged by the scheduler, and the next run tries again.
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
        before_run: Callable[[], None] = lambda: None,
        hour: Callable[[int], int] = local_hour,
    ) -> None:
        """`on_dropped(log start)` is called after a drop, `before_drop(log start now, log start
        then)` before it: when that raises, nothing goes.

        `newest_time_ms` is of the last record of a segment, or later. `before_run()` is called in
        each run. Everything below the physical offset `safe_end()` is dispatched and durable, so
        it may be deleted.
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
        self._before_run = before_run
        self._hour = hour
        self._holds = LogHolds()
        self._keepers: list[Keeper] = []
        self._running = Lock()
        #: Written by runs only; read freely.
        self.dropped_segments = 0
        self.read_errors = 0

    def reconfigure(self, config: StoreConfig) -> None:
        """The next run goes by these, but for how often it runs. Any thread."""
        self._config = config

    def add_keeper(self, keeper: Keeper) -> None:
        """From the next run on it is asked before segments go."""
        self._keepers.append(keeper)

    def schedule(self, jobs: Jobs) -> None:
        jobs.add("retention", self._config.clean_interval_s, self.run_once)

    def hold(self) -> LogHold:
        """The log as it begins now stays until the hold is moved or its context ends. Blocks while
        a run works."""
        with self._running:
            return self._holds.add(self._segments.first_offset)

    def _safe(self) -> int:
        """Physical offset below which the log may go."""
        held = self._holds.lowest
        safe = self._safe_end()
        return safe if held is None else min(safe, held)

    def run_once(self, *, now: bool = False) -> int:
        """Measure, decide, drop; returns how many segments went.

        `now`: somebody asked for it, whatever the hour. Otherwise, and while the disk has room,
        `FEW` go at most: what is wrong about the time then costs little before it is noticed.

        Raises OSError when a file cannot be removed, what went before is reported all the same;
        and what `before_drop` raises.
        Durability: each removal is fsynced before the next. A crash in between leaves a log that
        begins later, or a file that is dropped again.
        """
        with self._running:
            self._before_run()
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
                safe_end=self._safe(),
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
        """Those of these in which nothing is that is to be kept."""
        end = drop[-1].start_offset + drop[-1].size if drop else 0
        is_pressed = level >= DiskLevel.CLEAN_FORCIBLY
        for keeper in self._keepers if drop else ():
            end = min(end, keeper(end, is_pressed=is_pressed))
        return [each for each in drop if each.start_offset + each.size <= end]

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
        """How many of these may go now. On a full disk there may be room for the ends of one."""
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
