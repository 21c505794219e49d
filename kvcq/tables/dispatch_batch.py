"""The rows that a run of records gives, as one batch.

Used by live dispatch and by every rebuild, so that both write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.tables.keys import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    LENGTH_PARTS,
    LIGHT_MAX,
    LIGHT_UNIT,
    OFFSET_BYTES,
    UNITS,
    index_keys_of,
    pack_i64,
    queue_keys,
)
from kvcq.tables.values import expiry_stamp, pack_stamped_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq.engine import Pair
    from store.consume_queue import DispatchRequest


def build_batch(requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
    """Units, max rows, index rows, and the checkpoint at `end_offset`."""
    index: list[Pair] = []
    # By key of the max row. What a later record gives follows in `more`, or wins in `bounds`.
    first: dict[bytes, Pair] = {}
    more: dict[bytes, list[Pair]] = {}
    bounds: dict[bytes, bytes] = {}
    add_index = index.append
    length_parts, light_unit, light_max = LENGTH_PARTS, LIGHT_UNIT, LIGHT_MAX
    stamp_time = -1
    stamp = b""
    last_topic: str | None = None
    prefixes: dict[int, tuple[bytes, bytes]] = {}  # of the last topic
    for (
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        record_size,
        tag_code,
        store_time_ms,
        keys,
        light_queues,
        in_queue,
    ) in requests:
        if store_time_ms != stamp_time:
            stamp_time = store_time_ms
            stamp = expiry_stamp(store_time_ms)
        if keys:
            for row_key in index_keys_of(topic, keys, store_time_ms, physical_offset):
                add_index((row_key, stamp))
        if not in_queue:
            continue
        value = pack_stamped_unit(physical_offset, record_size, tag_code, store_time_ms, stamp)
        place = value[:OFFSET_BYTES]
        if topic != last_topic:
            last_topic = topic
            prefixes = {}
        prefix = prefixes.get(queue_id)
        if prefix is None:
            prefix = prefixes[queue_id] = queue_keys(topic, queue_id)
        unit_prefix, max_key = prefix
        offset_bytes = pack_i64(queue_offset)
        row = (unit_prefix + offset_bytes, value)
        if max_key not in bounds:
            first[max_key] = row
        elif max_key in more:
            more[max_key].append(row)
        else:
            more[max_key] = [row]
        bounds[max_key] = place + offset_bytes
        for name, offset in light_queues:
            data = name.encode()
            start = length_parts[len(data)] + data
            max_key = start + light_max
            offset_bytes = pack_i64(offset)
            row = (start + light_unit + offset_bytes, value)
            if max_key not in bounds:
                first[max_key] = row
            elif max_key in more:
                more[max_key].append(row)
            else:
                more[max_key] = [row]
            bounds[max_key] = place + offset_bytes
    # RocksDB takes neighbours one after another a good deal faster. Units of two queues sort as
    # their max rows do, and those of one queue rise.
    order = sorted(bounds)
    unit_rows = list(map(first.__getitem__, order))
    if more:
        unit_rows = [row for head in order for row in (first[head], *more.get(head, ()))]
    bounds_rows = list(zip(order, map(bounds.__getitem__, order), strict=True))
    bounds_rows.append((DISPATCHED_KEY, pack_i64(end_offset)))
    return KvBatch(puts={UNITS: unit_rows, BOUNDS: bounds_rows, INDEX: index})
