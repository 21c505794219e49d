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
    LIGHT_MAX,
    LIGHT_UNIT,
    UNITS,
    index_keys_of,
    name_part,
    pack_i64,
    queue_keys,
)
from kvcq.tables.values import expiry_stamp, pack_max, pack_stamped_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest

# Prefixes are kept for queues in use; a million topics must not all stay in memory.
_CACHE_LIMIT = 65_536
#: Rows of this many queues are sorted: RocksDB takes neighbours one after another 30 % faster.
_MANY_QUEUES = 256


class DispatchBatchBuilder:
    """Builds batches. Thread: one at a time. Memory: key prefixes of at most 64 Ki queues."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, int], tuple[bytes, bytes]] = {}

    def build(self, requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
        """Units, max rows, index rows, and the checkpoint at `end_offset`."""
        prefixes = self._prefixes
        units: list[tuple[bytes, bytes]] = []
        index: list[tuple[bytes, bytes]] = []
        last: dict[bytes, tuple[int, int]] = {}  # by key of the max row; later records win
        add_unit = units.append
        add_index = index.append
        light_unit, light_max = LIGHT_UNIT, LIGHT_MAX
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
            unit_prefix, max_key = prefixes.get((topic, queue_id)) or self._add_prefix(
                topic, queue_id
            )
            add_unit((unit_prefix + pack_i64(queue_offset), value))
            last[max_key] = (physical_offset, queue_offset)
            # Light queues are too many to be remembered: making their keys is cheaper.
            for name, offset in light_queues:
                start = name_part(name)
                add_unit((start + light_unit + pack_i64(offset), value))
                last[start + light_max] = (physical_offset, offset)
        bounds = [(max_key, pack_max(*place)) for max_key, place in last.items()]
        if len(last) >= _MANY_QUEUES:
            units.sort()
            bounds.sort()
        bounds.append((DISPATCHED_KEY, pack_i64(end_offset)))
        return KvBatch(puts={UNITS: units, BOUNDS: bounds, INDEX: index})

    def _add_prefix(self, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        if len(self._prefixes) >= _CACHE_LIMIT:
            self._prefixes.clear()
        found = self._prefixes[(topic, queue_id)] = queue_keys(topic, queue_id)
        return found
