"""The rows that a run of records gives, as one batch.

Used by live dispatch and by every rebuild, so that both write the same bytes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.keys import BOUNDS, CHECKPOINT_KEY, INDEX, UNITS, index_keys_of, pack_i64, queue_keys
from kvcq.values import expiry_stamp, pack_max, pack_stamped_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest

# Prefixes are kept for queues in use; a million topics must not all stay in memory.
_CACHE_LIMIT = 65_536


class DispatchBatchBuilder:
    """Builds batches. Thread: one at a time. Memory: key prefixes of at most 64 Ki queues."""

    def __init__(self) -> None:
        self._prefixes: dict[tuple[str, int], tuple[bytes, bytes]] = {}

    def build(self, requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
        """Units, max rows, index rows, and the checkpoint at `end_offset`."""
        prefixes = self._prefixes
        units: list[tuple[bytes, bytes]] = []
        index: list[tuple[bytes, bytes]] = []
        last: dict[tuple[str, int], tuple[int, int]] = {}  # of each queue; later records win
        add_unit = units.append
        add_index = index.append
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
            queue = (topic, queue_id)
            found = prefixes.get(queue)
            if found is None:
                found = self._add_prefix(topic, queue_id)
            add_unit((found[0] + pack_i64(queue_offset), value))
            last[queue] = (physical_offset, queue_offset)
            for name, offset in light_queues:
                queue = (name, 0)
                found = prefixes.get(queue)
                if found is None:
                    found = self._add_prefix(name, 0)
                add_unit((found[0] + pack_i64(offset), value))
                last[queue] = (physical_offset, offset)
        bounds = [
            ((prefixes.get(queue) or queue_keys(*queue))[1], pack_max(*place))
            for queue, place in last.items()
        ]
        bounds.append((CHECKPOINT_KEY, pack_i64(end_offset)))
        return KvBatch(puts={UNITS: units, BOUNDS: bounds, INDEX: index})

    def _add_prefix(self, topic: str, queue_id: int) -> tuple[bytes, bytes]:
        if len(self._prefixes) >= _CACHE_LIMIT:
            self._prefixes.clear()
        found = self._prefixes[(topic, queue_id)] = queue_keys(topic, queue_id)
        return found
