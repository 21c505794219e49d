"""Finds the ends of queues by their last records, and restores them.

For queues whose last message has left the log, which a rebuild from the log alone lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch, pages
from kvcq.tables.keys import BOUNDS, max_key, pack_i64, unpack_bounds_key
from kvcq.tables.values import MAX_SIZE, pack_max, unpack_max
from store.consume_queue import LastUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.engine import KvEngine

#: A scan of this many rows holds the GIL for about half a millisecond.
_PAGE = 1024


def last_units_between(engine: KvEngine, start: int, end: int) -> Iterator[list[LastUnit]]:
    """Yield, in short lists, the last units of all queues whose records are in `start..end` of the
    log.

    One pass over all bounds; the blocks it reads do not evict others from the cache.
    """
    # A value begins with the physical offset, big-endian: most rows need not be unpacked.
    low, high = pack_i64(start), pack_i64(end)
    for rows in pages(engine, BOUNDS, rows=_PAGE):
        found = []
        for key, value in [row for row in rows if low <= row[1] < high]:
            topic, marker, queue_id = unpack_bounds_key(key)
            if marker == "max" and len(value) == MAX_SIZE:  # the checkpoint's row has 8 bytes
                physical_offset, queue_offset = unpack_max(value)
                found.append(LastUnit(topic, queue_id, queue_offset, physical_offset))
        if found:
            yield found


def restore_last_units(engine: KvEngine, units: Sequence[LastUnit]) -> None:
    """See ConsumeQueueStore. Durable with what is dispatched next. Raises EngineBusyError."""
    keys = [max_key(topic, queue_id) for topic, queue_id, _, _ in units]
    rows = []
    for key, unit, row in zip(keys, units, engine.multi_get(BOUNDS, keys), strict=True):
        if row is None or unpack_max(row)[1] < unit.queue_offset:
            rows.append((key, pack_max(unit.physical_offset, unit.queue_offset)))
    if rows:
        engine.write(KvBatch(puts={BOUNDS: rows}))
