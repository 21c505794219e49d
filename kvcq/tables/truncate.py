"""Cut rows whose records are not in the log: they were derived from bytes that a crash took away.

Only needed when RocksDB is ahead of the log: it flushed by itself, and then the power failed
before the log's own pages were durable. It walks all queues, so it is slow and rare.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from kvcq.engine import KvBatch, pages
from kvcq.tables.keys import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    UNITS,
    pack_i64,
    queue_offset_of,
    time_and_offset_of,
    unit_prefix,
    unpack_bounds_key,
)
from kvcq.tables.removal import remove_range
from kvcq.tables.values import MAX_SIZE, pack_max, unpack_max, unpack_unit
from store.base import retry_while_busy

if TYPE_CHECKING:
    from kvcq.engine import KvEngine


def truncate_rows(engine: KvEngine, log_end: int) -> None:
    """Remove units, index rows and max rows from records at or above `log_end`.

    The checkpoint becomes `log_end`, in the last batch: repeating after a crash is harmless.
    Durability: the caller flushes.
    """
    for page in pages(engine, BOUNDS):
        batch = KvBatch()
        for key, value in page:
            if len(value) != MAX_SIZE:
                continue  # checkpoint or deletions
            topic, marker, queue_id = unpack_bounds_key(key)
            if marker != "max":
                continue
            physical_offset, last = unpack_max(value)
            if physical_offset >= log_end:
                _cut_queue(engine, batch, key, unit_prefix(topic, queue_id), last, log_end)
        _write(engine, batch)
    for page in pages(engine, INDEX):
        dead = [(INDEX, key) for key, _ in page if time_and_offset_of(key)[1] >= log_end]
        if dead:
            _write(engine, KvBatch(deletes=dead))
    _write(engine, KvBatch(puts={BOUNDS: [(DISPATCHED_KEY, pack_i64(log_end))]}))


def _write(engine: KvEngine, batch: KvBatch) -> None:
    """Waits out a stall: nothing else writes, and a store that is half cut cannot be opened.

    Raises each of LACKS: the next opening repeats the cut.
    """
    retry_while_busy(partial(engine.write, batch), give_up=False)


def _cut_queue(
    engine: KvEngine, batch: KvBatch, max_row: bytes, prefix: bytes, last: int, log_end: int
) -> None:
    """Physical offsets rise along a queue: find the first unit to go, and cut from there."""
    low, high = 0, last + 1
    while low < high:
        middle = (low + high) // 2
        rows = engine.scan(UNITS, prefix + pack_i64(middle), prefix + pack_i64(last + 1), limit=1)
        if not rows or unpack_unit(rows[0][1]).physical_offset >= log_end:
            high = middle
        else:
            low = queue_offset_of(rows[0][0]) + 1
    # Units before it may have expired and be gone: the offset of the first one to go counts.
    first = engine.scan(UNITS, prefix + pack_i64(low), prefix + pack_i64(last + 1), limit=1)
    low = queue_offset_of(first[0][0]) if first else last
    remove_range(engine, batch, UNITS, prefix + pack_i64(low), prefix + pack_i64(last + 1))
    kept = engine.scan(UNITS, prefix, prefix + pack_i64(low), limit=1, reverse=True)
    if kept:
        unit = unpack_unit(kept[0][1])
        batch.put(BOUNDS, max_row, pack_max(unit.physical_offset, queue_offset_of(kept[0][0])))
    elif low == 0:
        batch.deletes.append((BOUNDS, max_row))
    else:
        # Earlier units have expired: offsets must still go on from `low`.
        batch.put(BOUNDS, max_row, pack_max(0, low - 1))
