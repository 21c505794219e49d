"""Lists the ends of queues by their last records, and restores them.

For queues whose last message has left the log, which a rebuild from the log alone lacks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch, pages
from kvcq.tables.keys import BOUNDS, is_end_of_queue, max_key, unpack_bounds_key
from kvcq.tables.values import pack_max, unpack_max
from store.consume_queue import LastUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.engine import KvEngine


def last_units_of(engine: KvEngine) -> Iterator[LastUnit]:
    """Yield the last unit of every queue, in one pass over all bounds."""
    for rows in pages(engine, BOUNDS):
        for key, value in rows:
            if is_end_of_queue(key):
                topic, _, queue_id = unpack_bounds_key(key)
                physical_offset, queue_offset = unpack_max(value)
                yield LastUnit(topic, queue_id, queue_offset, physical_offset)


def restore_last_units(engine: KvEngine, units: Sequence[LastUnit]) -> None:
    """See ConsumeQueueStore. Durable with what is dispatched next. Raises EngineBusyError."""
    keys = [max_key(topic, queue_id) for topic, queue_id, _, _ in units]
    rows = []
    for key, unit, row in zip(keys, units, engine.multi_get(BOUNDS, keys), strict=True):
        if row is None or unpack_max(row)[1] < unit.queue_offset:
            rows.append((key, pack_max(unit.physical_offset, unit.queue_offset)))
    if rows:
        engine.write(KvBatch(puts={BOUNDS: rows}))
