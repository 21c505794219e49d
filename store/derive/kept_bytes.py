"""The first kept message of queues whose topics have a limit in bytes. It is counted in the
background, and kept beside the state.

The size of a queue is only known by reading its units, and there may be millions of queues. So a
reader gets the last count, and its read requests a new one. A queue that is never read costs
nothing.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.errors import StoreBusyError, StoreClosedError, StoreError
from store.metadata import KeptQueue
from store.state import kept_key, pack_kept, unpack_kept

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store.consume_queue import Bounds, ConsumeQueueStore, CqUnit
    from store.state import StateStore

logger = logging.getLogger(__name__)

#: Units looked at in one run, a second: 60 ms of the interpreter.
UNITS_A_RUN = 65_536
_UNITS_A_READ = 1024
#: Queues that `catch_up` looks at before it counts.
_TOGETHER = 1024
_MANY_QUEUES = 65_536


class _Wanted(NamedTuple):
    created_offset: int
    limit_bytes: int
    bounds: Bounds  # bounds of the queue in the log


class KeptBytes:
    """The first kept message of each queue that has a limit in bytes.

    Thread: any for `first_kept`, one at a time for `run`. Memory: bounded. Durability: the first
    kept message of a queue never moves back. Its first row is durable before it is used, and after
    a crash `catch_up` counts to the log's end before the first read.
    """

    def __init__(self, queues: ConsumeQueueStore, state: StateStore) -> None:
        # Constant after construction.
        self._queues = queues
        self._state = state
        self._lock = Lock()
        # Guarded by _lock; values are replaced as a whole.
        self._known: dict[tuple[str, int], KeptQueue | None] = {}
        self._due: dict[tuple[str, int], _Wanted] = {}

    def first_kept(
        self, topic: str, queue_id: int, created_offset: int, limit_bytes: int, bounds: Bounds
    ) -> int:
        """The first message of the last `limit_bytes` of records, as of the last count.

        `bounds`: of the queue in the log. `created_offset`: of the topic; counts for an earlier
        topic of that name are ignored.
        """
        key = (topic, queue_id)
        kept = self._look_up(key)
        if kept is not None and not self._fits(kept, created_offset, bounds):
            kept = None
        if (
            kept is None
            or not _is_counted(kept, bounds)
            or kept.limit_bytes != limit_bytes
            or kept.first_offset < bounds.min_offset
        ):
            with self._lock:
                if len(self._due) < _MANY_QUEUES:
                    self._due[key] = _Wanted(created_offset, limit_bytes, bounds)
        return bounds.min_offset if kept is None else max(kept.first_offset, bounds.min_offset)

    def catch_up(self, keys: Iterable[tuple[str, int]], look: Callable[[str, int], object]) -> None:
        """Count these queues up to their ends. Calling `look` for a queue requests its count.

        If the database rejects writes, as on a full disk, the job continues later.
        """
        for number, key in enumerate(keys, start=1):
            with suppress(StoreError):  # a reader of the queue gets the error
                look(*key)
            if number % _TOGETHER == 0 and not self._run_all():
                return
        self._run_all()

    def _run_all(self) -> bool:
        """Returns whether nothing is left to count."""
        while count := len(self._due):
            try:
                self.run()
            except StoreError as error:
                if len(self._due) == count:  # otherwise one queue failed, and is no longer due
                    logger.warning("queues are counted later, and may begin too early: %s", error)
                    return False
        return True

    def run(self) -> None:
        """Count some more of the queues that were read and have changed; called by a job.

        Raises what reading units and writing counts raise.
        """
        budget = UNITS_A_RUN
        counted: list[KeptQueue] = []
        with self._lock:
            due = list(self._due.items())
        failure: StoreError | None = None
        are_new = False
        for key, wanted in due:
            try:
                are_new |= self._look_up(key) is None
                kept, budget = self._count(key, wanted, budget)
            except (StoreBusyError, StoreClosedError):
                raise
            # Other queues continue; a reader of this one repeats the lookup.
            except StoreError as error:
                failure = failure or error
                with self._lock:
                    self._due.pop(key, None)
                continue
            counted.append(kept)
            if _is_counted(kept, wanted.bounds):
                with self._lock:
                    if self._due.get(key) == wanted:
                        del self._due[key]
            if budget <= 0:
                break
        if counted:
            self._state.put_counted([pack_kept(kept) for kept in counted])
            if are_new:
                self._queues.flush()  # `catch_up` finds it, whatever comes
        with self._lock:
            for kept in counted:
                self._remember((kept.topic, kept.queue_id), kept)
        if failure is not None:
            raise failure

    def _look_up(self, key: tuple[str, int]) -> KeptQueue | None:
        with self._lock:
            if key in self._known:
                return self._known[key]
        kept = unpack_kept(*key, self._state.get(kept_key(*key)))
        with self._lock:
            if key not in self._known:
                self._remember(key, kept)
            return self._known[key]

    def _remember(self, key: tuple[str, int], kept: KeptQueue | None) -> None:
        """Under _lock."""
        if len(self._known) >= _MANY_QUEUES:
            self._known.clear()
        self._known[key] = kept

    def _fits(self, kept: KeptQueue, created_offset: int, bounds: Bounds) -> bool:
        """Whether the count is of this topic and of this log, which a power loss may have cut."""
        return kept.created_offset == created_offset and kept.end_offset <= bounds.max_offset

    def _count(self, key: tuple[str, int], wanted: _Wanted, budget: int) -> tuple[KeptQueue, int]:
        created_offset, limit, bounds = wanted
        low, high = bounds
        kept = self._look_up(key)
        if kept is None or not self._fits(kept, created_offset, bounds):
            first = end = low
            size = 0
        else:
            first, end, size = kept.first_offset, kept.end_offset, kept.kept_bytes
            if first < low:  # the log has dropped a part; the rest is counted again
                first = end = low
                size = 0
        while budget > 0:
            if size > limit and first < end - 1:
                count = min(_UNITS_A_READ, end - 1 - first)
                first, size = self._drop(key, first, count, size, limit)
            elif end < high:
                count = min(_UNITS_A_READ, high - end)
                size += sum(unit.record_size for _, unit in self._read(key, end, count))
                end += count
            else:
                break
            budget -= count
        return KeptQueue(*key, created_offset, limit, first, end, max(0, size)), budget

    def _drop(
        self, key: tuple[str, int], first: int, count: int, size: int, limit: int
    ) -> tuple[int, int]:
        """Subtract messages from `first` on, at most `count`, until `size` is within the limit.
        Returns the offset behind them, and the remaining size."""
        for offset, unit in self._read(key, first, count):
            if size <= limit:
                return offset, size
            size -= unit.record_size
        return first + count, size

    def _read(self, key: tuple[str, int], start: int, count: int) -> list[tuple[int, CqUnit]]:
        return self._queues.read_units(*key, start, count)


def _is_counted(kept: KeptQueue, bounds: Bounds) -> bool:
    """Up to the end of the queue, and what is past the limit is left out; one message stays."""
    is_within = kept.kept_bytes <= kept.limit_bytes or kept.first_offset >= kept.end_offset - 1
    return kept.end_offset == bounds.max_offset and is_within
