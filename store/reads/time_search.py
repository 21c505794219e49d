"""Searches a queue's offsets by store time."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store.consume_queue import Boundary
from store.errors import CorruptRecordError, DamagedQueueError, MessageNotFoundError
from store.reads.unit_search import first_where

if TYPE_CHECKING:
    from store.consume_queue import ConsumeQueueStore, CqUnit
    from store.log import CommitLog, StoreTimes
    from store.reads.reader import Reader

_UNITS_A_READ = 1024


class TimeSearch:
    """Searches in one store. Thread: any. Locks: those of the reader."""

    def __init__(
        self, log: CommitLog, queues: ConsumeQueueStore, times: StoreTimes, reader: Reader
    ) -> None:
        self._log = log
        self._queues = queues
        self._times = times
        self._reader = reader

    def search(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """See MessageStore.search_time. Raises DamagedQueueError if a unit is missing."""
        while True:
            try:
                return self._search(topic, queue_id, time_ms, boundary)
            except DamagedQueueError as error:
                low, high = self._reader.bounds(topic, queue_id)
                if low <= error.queue_offset < high:
                    raise
                # Its unit expired, or was deleted, since the bounds were looked up.

    def _search(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        (low, high), floor = self._reader.bounds_and_floor(topic, queue_id)
        if low < self._queues.bounds(topic, queue_id, floor).min_offset:
            raise DamagedQueueError(topic, queue_id, low, "its first units are missing")
        if self._times.falls:  # store times can only be searched in runs, judged times as a whole
            from_ms = time_ms if boundary is Boundary.LOWER else time_ms + 1
            found, _ = first_where(
                self._queues,
                topic,
                queue_id,
                low,
                high,
                lambda unit: self._time_of(unit) >= from_ms,
            )
            return found if boundary is Boundary.LOWER else max(low, found - 1)
        return max(low, self._queues.search_time(topic, queue_id, time_ms, boundary, floor))

    def search_over_holes(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Like `search`, where messages are lost for good: a gap has the time of the message after
        it."""
        (low, high), floor = self._reader.bounds_and_floor(topic, queue_id)
        begin, end = low, high
        while low < high:
            middle = (low + high) // 2
            at, stored_ms = self._first_behind(topic, queue_id, middle, high, floor)
            if at < high and (
                stored_ms < time_ms or (boundary is Boundary.UPPER and stored_ms == time_ms)
            ):
                low = at + 1
            else:
                high = middle
        if boundary is Boundary.UPPER:
            return max(low - 1, begin)
        return self._first_behind(topic, queue_id, low, end, floor)[0]

    def _first_behind(
        self, topic: str, queue_id: int, at: int, end: int, floor: int
    ) -> tuple[int, int]:
        """Offset and store time of the first readable message from `at` on; `end` if there is none.

        Goes step by step, because gaps are short.
        """
        while at < end:
            count = min(end - at, _UNITS_A_READ)
            for queue_offset, unit in self._queues.read_units(topic, queue_id, at, count):
                if unit.physical_offset >= floor:
                    with suppress(CorruptRecordError, MessageNotFoundError):
                        self._log.read(unit.physical_offset, unit.record_size)
                        return queue_offset, self._time_of(unit)
            at += count
        return end, 0

    def _time_of(self, unit: CqUnit) -> int:
        return self._times.of(unit.physical_offset, unit.store_time_ms)
