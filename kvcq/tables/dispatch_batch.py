"""The rows that a run of records gives, as one batch.

Used by live dispatch and by every rebuild, so that both write the same bytes.
"""

from __future__ import annotations

from itertools import chain
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

# Prefixes are kept for queues in use. So few that forgetting them is no stop: 65,536 took 15 ms.
_CACHE_LIMIT = 4096


class DispatchBatchBuilder:
    """Builds batches. Thread: one at a time. Memory: key prefixes of at most 4,096 queues."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, int], tuple[bytes, bytes]] = {}

    def build(self, requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
        """Units, max rows, index rows, and the checkpoint at `end_offset`."""
        prefixes = self._prefixes
        index: list[Pair] = []
        # By key of the max row. Of both, what a later record gives follows, or wins.
        units: dict[bytes, list[Pair]] = {}
        bounds: dict[bytes, bytes] = {}
        add_index = index.append
        length_parts, light_unit, light_max = LENGTH_PARTS, LIGHT_UNIT, LIGHT_MAX
        stamp_time = -1
        stamp = b""
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
            unit_prefix, max_key = prefixes.get((topic, queue_id)) or self._add_prefix(
                topic, queue_id
            )
            offset_bytes = pack_i64(queue_offset)
            row = (unit_prefix + offset_bytes, value)
            if max_key in bounds:
                units[max_key].append(row)
            else:
                units[max_key] = [row]
            bounds[max_key] = place + offset_bytes
            # Light queues are too many to be remembered: making their keys is cheaper.
            for name, offset in light_queues:
                data = name.encode()
                start = length_parts[len(data)] + data
                max_key = start + light_max
                offset_bytes = pack_i64(offset)
                row = (start + light_unit + offset_bytes, value)
                if max_key in bounds:
                    units[max_key].append(row)
                else:
                    units[max_key] = [row]
                bounds[max_key] = place + offset_bytes
        # RocksDB takes neighbours one after another a good deal faster. Units of two queues sort as
        # their max rows do, and those of one queue rise.
        order = sorted(bounds)
        unit_rows = list(chain.from_iterable(map(units.__getitem__, order)))
        bounds_rows = list(zip(order, map(bounds.__getitem__, order), strict=True))
        bounds_rows.append((DISPATCHED_KEY, pack_i64(end_offset)))
        return KvBatch(puts={UNITS: unit_rows, BOUNDS: bounds_rows, INDEX: index})

    def _add_prefix(self, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        if len(self._prefixes) >= _CACHE_LIMIT:
            self._prefixes.clear()
        found = self._prefixes[(topic, queue_id)] = queue_keys(topic, queue_id)
        return found
