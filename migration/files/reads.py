"""Reads of a store in files. Nothing here writes or creates files (H17)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.formats import valid_units
from store.consume_queue import Boundary, Bounds, CqUnit, KeyHit, LastUnit
from store.errors import StoreClosedError
from store.format import is_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from migration.files.index import IndexFileSet
    from migration.files.queue import FileQueue, Unit
    from migration.files.queues import FileQueueSet
    from store.consume_queue import DispatchRequest


class FileQueueReads:
    """Reads of the queues and the index. Thread: any; takes no lock of the store."""

    def __init__(
        self,
        queues: FileQueueSet,
        index: IndexFileSet,
        store_time_ms: Callable[[int], int | None],
        record_at: Callable[[int], DispatchRequest | None],
    ) -> None:
        # Constant after construction.
        self._queues = queues
        self._index = index
        self._store_time_ms = store_time_ms
        self._record_at = record_at
        # Replaced as a whole by the writer, never changed in place.
        self._dead: dict[str, int] = {}  # deleted topic to the offset below which it is dead
        self._closed = False

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        """See ConsumeQueueStore. Raises QueueFileError."""
        found = (self._get(*name) for name in queues)
        return [0 if queue is None else queue.end for queue in found]

    def last_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]:
        """See ConsumeQueueStore. Raises QueueFileError."""
        found: list[tuple[int, int] | None] = []
        for name in queues:
            queue = self._get(*name)
            unit = None if queue is None or queue.end == 0 else queue.unit(queue.end - 1)
            found.append(None if queue is None or unit is None else (unit[0], queue.end - 1))
        return found

    def bounds(self, topic: str, queue_id: int, log_start: int) -> Bounds:
        """See ConsumeQueueStore. Finds min in the units, so that blanks are never visible."""
        queue = self._get(topic, queue_id)
        return Bounds(0, 0) if queue is None else queue.bounds(log_start)

    def read_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, CqUnit]]:
        """See ConsumeQueueStore. The store time is 0 if the record has left the log."""
        queue = self._get(topic, queue_id)
        if queue is None:
            return []
        store_time_ms = self._store_time_ms
        found = []
        for first, units in queue.read(start, count):
            valid = valid_units(units).tolist()
            for at, (physical_offset, size, tag_code) in enumerate(units.tolist()):
                if valid[at]:
                    time_ms = store_time_ms(physical_offset) or 0
                    unit = CqUnit(physical_offset, size, tag_code, time_ms)
                    found.append((first + at, unit))
        return found

    def read_places(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, int]]:
        """See ConsumeQueueStore."""
        found = self.read_units(topic, queue_id, start, count)
        return [unit[:2] for at, (offset, unit) in enumerate(found) if offset == start + at]

    def places_of(
        self, topic: str, queue_id: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """See ConsumeQueueStore."""
        queue = self._get(topic, queue_id)
        units = [None if queue is None else queue.unit(offset) for offset in offsets]
        return [None if unit is None else unit[:2] for unit in units]

    def search_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary, log_start: int
    ) -> int:
        """See ConsumeQueueStore. A unit whose record has left the log counts as too early."""
        queue = self._get(topic, queue_id)
        if queue is None:
            return 0
        low, high = queue.bounds(log_start)
        upper = boundary is Boundary.UPPER

        def beyond(unit: Unit) -> bool:
            there = self._store_time_ms(unit[0])
            return there is not None and (there > time_ms or (there == time_ms and not upper))

        found = queue.first_where(low, high, beyond)
        return max(low, found - 1) if upper else found

    def query_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        after: KeyHit | None,
        limit: int,
    ) -> list[KeyHit]:
        """See ConsumeQueueStore. Ascending by physical offset, since store times never fall along a
        log.

        Each hit is verified against its record (H34): topic, key, and time to the millisecond.
        """
        self._check_open()
        beyond = -1 if after is None else after.physical_offset
        beyond = max(beyond, self._dead.get(topic, 0) - 1)
        hits: list[KeyHit] = []
        for offsets in self._index.candidates(topic, key, begin_ms, end_ms):
            for offset in offsets:
                if len(hits) >= limit:
                    return hits
                if offset <= beyond:
                    continue
                record = self._record_at(offset)
                if record is None:
                    continue
                if key not in record.keys or (record.topic != topic and not is_mark(key)):
                    continue
                time_ms = self._store_time_ms(offset)
                if time_ms is not None and begin_ms <= time_ms <= end_ms:
                    hits.append(KeyHit(time_ms, offset))
                    beyond = offset
        return hits

    def marks_below(self, key: str, limit: int) -> None:
        """See ConsumeQueueStore. Not supported: hashed keys have no order."""

    def queue_ids(self, topic: str) -> list[int]:
        self._check_open()
        return self._queues.queue_ids(topic)

    def list_names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Names of topics and light queues with files, by length, then bytes; above `after`."""
        self._check_open()

        def rank(name: str) -> tuple[int, bytes]:
            encoded = name.encode()
            return len(encoded), encoded

        ranked = sorted(
            (rank(name), name) for name in self._queues.topics() if name.startswith(prefix)
        )
        return [name for order, name in ranked if after is None or order > rank(after)][:limit]

    def last_units(self) -> Iterator[LastUnit]:
        """Yield the last unit of every queue; 0 as its physical offset if only an end mark or the
        name of a file says where the queue ends."""
        for topic, queue_id in self._queues.names():
            queue = self._queues.get(topic, queue_id)
            if queue is not None and queue.end:
                unit = queue.unit(queue.end - 1)
                place = 0 if unit is None else unit[0]
                yield LastUnit(topic, queue_id, queue.end - 1, place)

    def _get(self, topic: str, queue_id: int) -> FileQueue | None:
        self._check_open()
        return self._queues.get(topic, queue_id)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the file queues are closed")
