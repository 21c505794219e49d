"""The consume queues and the key index in RocksDB: implements the log's protocols on the tables.

All rows of a dispatch and the dispatch point are written in one batch. The write-ahead log is off,
and flushes are atomic over the families. So after any crash the database is at one dispatch point,
and dispatching from there rebuilds the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kvcq.engine import LAST_KEY, KvBatch, pages
from kvcq.errors import CorruptValueError
from kvcq.tables import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    UNITS,
    MinOffsets,
    build_batch,
    index_prefix,
    last_units_of,
    marks_range,
    max_key,
    max_keys,
    max_range,
    name_range,
    next_offsets_of,
    pack_i64,
    queue_offset_of,
    remove_range,
    restore_last_units,
    search_time,
    time_and_offset_of,
    topic_range,
    unit_key,
    unit_prefix,
    units_of_rows,
    unpack_bounds_key,
    unpack_i64,
    unpack_index_key,
    unpack_max,
    unpack_places,
    unpack_unit,
    unpack_units,
)
from store.base import Lock
from store.consume_queue import Bounds, CqUnit, KeyHit
from store.errors import DamagedQueueError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq.engine import KvEngine, Pair
    from kvcq.tables import UnitColumns
    from store.consume_queue import Boundary, DispatchRequest, LastUnit

_INT64_MAX = (1 << 63) - 1


class Expiry(Protocol):
    """Drops expired units from the files, some time after it is told to."""

    def dropped_up_to(self, store_time_ms: int) -> None: ...

    def keep_from(self, store_time_ms: int) -> None: ...

    def tick(self) -> bool:
        """Check the clocks; called about every second. Returns whether the filter was set again."""
        ...

    def dropped_too_early_ms(self) -> int:
        """Store time in ms before which units may have been dropped too early; 0 if none. Each loss
        is returned once."""
        ...


class KvConsumeQueueStore:
    """ConsumeQueueStore on a KvEngine.

    Thread: `dispatch`, `delete_topic` one at a time (`_writing`); reads on any thread. Durability:
    `flush`, or a full memtable. Memory: bounded caches, nothing per idle queue.
    """

    def __init__(
        self, engine: KvEngine, expiry: Expiry | None = None, *, owns_engine: bool = True
    ) -> None:
        """`owns_engine`: closing the queues closes it; otherwise they only flush it."""
        # Constant after construction.
        self._engine = engine
        self._owns_engine = owns_engine
        self._expiry = expiry
        self._min_offsets = MinOffsets(engine)
        self._writing = Lock()
        # Read freely; written under _writing, after the batch is in.
        self._dispatched_offset = self._read_number(DISPATCHED_KEY)

    # --- dispatch --------------------------------------------------------------------------

    @property
    def dispatched_offset(self) -> int:
        return self._dispatched_offset

    @property
    def gathers(self) -> bool:
        return False

    def dispatch(self, requests: Sequence[DispatchRequest], end_offset: int) -> None:
        """See Dispatcher. Visible to readers on return; durable after `flush`."""
        with self._writing:
            done = self._dispatched_offset
            if end_offset <= done:
                return
            if requests and requests[0].physical_offset < done:
                requests = [each for each in requests if each.physical_offset >= done]
            batch = build_batch(requests, end_offset)
            self._engine.write(batch)
            self._dispatched_offset = end_offset

    def rewrite(self, requests: Sequence[DispatchRequest]) -> None:
        """Write again units and index rows that dispatch wrote before, because they are damaged.

        Durable after `flush`. Raises what the engine's `write` raises.
        """
        if not requests:
            return
        with self._writing:
            batch = build_batch(requests, 0)
            del batch.puts[BOUNDS]
            self._engine.write(batch)
            self._min_offsets.clear()

    def ingest(self, files: Mapping[str, Sequence[Path]], end_offset: int, *, move: bool) -> None:
        """Ingest sorted files, by family, made from all records up to `end_offset`.

        They must start at this database's dispatch point. Repeatable: a crash in between leaves
        rows that dispatch writes again, with the same content. Durable on return.
        """
        with self._writing:
            if end_offset <= self._dispatched_offset:
                return
            # Bounds last, so that no bound exists without its units.
            for family in (UNITS, INDEX, BOUNDS):
                self._engine.ingest(family, files.get(family, ()), move=move)
            row = (DISPATCHED_KEY, pack_i64(end_offset))
            self._engine.write(KvBatch(puts={BOUNDS: [row]}))
            self._dispatched_offset = end_offset
            self._min_offsets.clear()
        self.flush()

    # --- reads -----------------------------------------------------------------------------

    def next_offsets(self, queues: Sequence[tuple[str, int]]) -> list[int]:
        return next_offsets_of(self._engine.multi_get(BOUNDS, max_keys(queues)))

    def last_of(self, queues: Sequence[tuple[str, int]]) -> list[tuple[int, int] | None]:
        rows = self._engine.multi_get(BOUNDS, max_keys(queues))
        return [None if row is None else unpack_max(row) for row in rows]

    def bounds(self, topic: str, queue_id: int, log_start: int) -> Bounds:
        key = max_key(topic, queue_id)
        row = self._engine.get(BOUNDS, key)
        while row is not None:
            last_physical, last_offset = unpack_max(row)
            max_offset = last_offset + 1
            if last_physical < log_start:
                return Bounds(max_offset, max_offset)  # all expired; offsets continue
            min_offset = self._min_offsets.get(
                topic, queue_id, max_offset, last_physical, log_start
            )
            if min_offset < max_offset:
                return Bounds(min_offset, max_offset)
            # Its last record is in the log, but there is no unit: not the same as expired.
            again = self._engine.get(BOUNDS, key)
            if again == row:
                raise DamagedQueueError(topic, queue_id, last_offset, "its units are missing")
            row = again  # deleted, or cut, since it was read
        return Bounds(0, 0)

    def read_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, CqUnit]]:
        rows = self._unit_rows(topic, queue_id, start, count)
        if not rows:
            return []
        units = unpack_units([value for _, value in rows])
        first = queue_offset_of(rows[0][0])
        if queue_offset_of(rows[-1][0]) == first + len(rows) - 1:
            return list(zip(range(first, first + len(rows)), units, strict=True))
        return [(queue_offset_of(key), unit) for (key, _), unit in zip(rows, units, strict=True)]

    def read_places(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, int]]:
        rows = self._unit_rows(topic, queue_id, start, count)
        if rows and queue_offset_of(rows[-1][0]) != start + len(rows) - 1:  # a hole, or more
            rows = [row for at, row in enumerate(rows) if queue_offset_of(row[0]) == start + at]
        return unpack_places([value for _, value in rows])

    def places_of(
        self, topic: str, queue_id: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        prefix = unit_prefix(topic, queue_id)
        rows = self._engine.multi_get(UNITS, [prefix + pack_i64(each) for each in offsets])
        found = iter(unpack_places([row for row in rows if row is not None]))
        return [None if row is None else next(found) for row in rows]

    def _unit_rows(self, topic: str, queue_id: int, start: int, count: int) -> Sequence[Pair]:
        prefix = unit_prefix(topic, queue_id)
        return self._engine.scan(
            UNITS,
            prefix + pack_i64(start),
            prefix + pack_i64(min(start + count, _INT64_MAX)),
            limit=count,
        )

    def units_between(self, start: int, end: int) -> Iterator[UnitColumns]:
        """Yield all units of records in `start..end`, a page at a time, for a verifier."""
        for rows in pages(self._engine, UNITS):
            units = units_of_rows(rows)
            yield units.where((units.physical_offset >= start) & (units.physical_offset < end))

    def search_time(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary, log_start: int
    ) -> int:
        bounds = self.bounds(topic, queue_id, log_start)

        def store_time_ms(offset: int) -> int:
            value = self._engine.get(UNITS, unit_key(topic, queue_id, offset))
            if value is None:
                raise DamagedQueueError(topic, queue_id, offset, "its unit is missing")
            return unpack_unit(value).store_time_ms

        return search_time(bounds.min_offset, bounds.max_offset, time_ms, boundary, store_time_ms)

    def query_key(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        after: KeyHit | None,
        limit: int,
    ) -> list[KeyHit]:
        prefix = index_prefix(topic, key)
        start = prefix + pack_i64(max(begin_ms, 0))
        if after is not None:
            start = max(
                start, prefix + pack_i64(after.store_time_ms) + pack_i64(after.physical_offset + 1)
            )
        end = prefix + pack_i64(min(end_ms, _INT64_MAX - 1) + 1)
        rows = self._engine.scan(INDEX, start, end, limit=limit)
        return [KeyHit(*time_and_offset_of(row_key)) for row_key, _ in rows]

    def marks_below(self, key: str, limit: int) -> list[tuple[str, int]]:
        rows = self._engine.scan(INDEX, *marks_range(key), limit=limit, reverse=True)
        return [(found[1], found[3]) for found in (unpack_index_key(row) for row, _ in rows)]

    def queue_ids(self, topic: str) -> list[int]:
        start, end = max_range(topic)
        return [unpack_bounds_key(key)[2] for key, _ in self._engine.scan(BOUNDS, start, end)]

    def names(self) -> list[str]:
        """Every topic and light queue that has a row of bounds."""
        return list(dict.fromkeys(unit[0] for unit in self.last_units()))

    def last_units(self) -> Iterator[LastUnit]:
        """Yield the last unit of every queue."""
        return last_units_of(self._engine)

    def list_names(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Up to `limit` names of topics and light queues with messages, ordered by length, then
        bytes; names after `after`.

        `prefix` must not be empty.
        """
        found: list[str] = []
        shortest = len(prefix.encode()) if after is None else len(after.encode())
        for length in range(shortest, 256):
            start, end = name_range(prefix, length)
            if after is not None and length == shortest:
                start = max(start, topic_range(after)[1])
            while len(found) < limit:
                rows = self._engine.scan(BOUNDS, start, end, limit=limit - len(found))
                if not rows:
                    break
                for key, _ in rows:
                    name = unpack_bounds_key(key)[0]
                    if not found or found[-1] != name:
                        found.append(name)
                start = topic_range(found[-1])[1]
            if len(found) >= limit:
                break
        return found

    # --- removal ---------------------------------------------------------------------------

    @property
    def is_empty(self) -> bool:
        """Whether all of its families are empty."""
        return not any(
            self._engine.scan(family, b"", LAST_KEY, limit=1) for family in (UNITS, INDEX, BOUNDS)
        )

    def clear(self) -> None:
        """Remove all rows of queues and index, and the dispatch point. Repeatable; a crash may
        leave some of them, below the remaining dispatch point. Durable on return."""
        with self._writing:
            # The dispatch point last: rows that remain without it would count as rows of this log.
            for family in (UNITS, INDEX, BOUNDS):
                self._engine.write(KvBatch(delete_ranges=[(family, b"", LAST_KEY)]))
            self._dispatched_offset = 0
            self._min_offsets.clear()
        self._engine.flush()

    def delete_topic(self, topic: str, physical_offset: int) -> None:
        if self._dispatched_offset > physical_offset:
            return
        start, end = topic_range(topic)
        queue_ids = self.queue_ids(topic)
        batch = KvBatch()
        with self._writing:  # so that no row is added between the lookup and the removal
            for family in (UNITS, BOUNDS, INDEX):
                remove_range(self._engine, batch, family, start, end)
            self._engine.write(batch)
            self._min_offsets.forget(topic, queue_ids)

    def restore_last_units(self, units: Sequence[LastUnit]) -> None:
        with self._writing:
            restore_last_units(self._engine, units)

    def expire(self, log_start: int, store_time_ms: int) -> None:
        if self._expiry is not None and log_start > 0:
            self._expiry.dropped_up_to(store_time_ms)

    def keep_from(self, store_time_ms: int) -> None:
        if self._expiry is not None:
            self._expiry.keep_from(store_time_ms)

    def maintain(self) -> int:
        self._engine.settle()
        if self._expiry is None:
            return 0
        self._expiry.tick()
        return self._expiry.dropped_too_early_ms()

    def compact(
        self,
        progress: Callable[[float], None] | None = None,
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        start, end = (None, None) if topic is None else topic_range(topic)
        families = (UNITS, INDEX) if family is None else (family,)

        for done, each in enumerate(families):

            def told(share: float, done: int = done) -> None:
                if progress is not None:
                    progress((done + share) / len(families))

            self._engine.compact(each, start, end, progress=told)

    # --- durability and end of life --------------------------------------------------------

    def flush(self) -> None:
        self._engine.flush()

    def back_up(self) -> Path:
        """A copy of the database at one dispatch point: see KvEngine."""
        return self._engine.back_up()

    def statistics(self) -> dict[str, float]:
        return self._engine.statistics()

    def close(self) -> None:
        if self._owns_engine:
            self._engine.close()
        else:
            self._engine.flush()

    def _read_number(self, key: bytes) -> int:
        row = self._engine.get(BOUNDS, key)
        if row is None:
            return 0
        number = unpack_i64(row)
        if number < 0:
            raise CorruptValueError(f"a dispatch point of {number}")
        return number
