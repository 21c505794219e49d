"""The min offset of a queue: its first unit at or above the log's start. Derived, never stored.

A stored min goes stale. Searching is cheap: physical offsets rise along a queue, so it is a
seek and a binary search, and the answer holds until the log's start passes the unit found.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvcq.keys import UNITS, pack_i64, queue_offset_of, unit_prefix
from kvcq.values import unpack_unit

if TYPE_CHECKING:
    from kvcq.engine import KvEngine

_CACHE_LIMIT = 65_536


class MinOffsets:
    """Min offsets, with a bounded cache. Thread: any.

    A cached entry (min offset, its physical offset) is used while that unit is still in the log.
    """

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine
        self._lock = threading.Lock()
        # Written under _lock, read freely.
        self._changes = 0
        self._cache: dict[tuple[str, int], tuple[int, int]] = {}

    def get(self, topic: str, queue_id: int, max_offset: int, log_start: int) -> int:
        """Min offset of a queue whose max is given; equal to the max when nothing is left.

        Raises CorruptValueError, and what the engine raises: an error is never taken for "expired".
        """
        if max_offset == 0:
            return 0
        key = (topic, queue_id)
        changes = self._changes
        cached = self._cache.get(key)
        low = 0
        if cached is not None:
            if cached[1] >= log_start:
                return cached[0]
            low = cached[0]
        prefix = unit_prefix(topic, queue_id)
        found = self._search(prefix, low, max_offset, log_start)
        if found is None:
            return max_offset
        with self._lock:
            # Not when units were removed meanwhile: what was found may be gone.
            if changes == self._changes:
                if len(self._cache) >= _CACHE_LIMIT:
                    self._cache.clear()
                self._cache[key] = found
        return found[0]

    def forget(self, topic: str, queue_ids: list[int]) -> None:
        """The topic was deleted, or its units were cut."""
        with self._lock:
            self._changes += 1
            for queue_id in queue_ids:
                self._cache.pop((topic, queue_id), None)

    def clear(self) -> None:
        with self._lock:
            self._changes += 1
            self._cache.clear()

    def _search(
        self, prefix: bytes, low: int, max_offset: int, log_start: int
    ) -> tuple[int, int] | None:
        """(queue offset, physical offset) of the first live unit in low..max_offset-1."""
        end = prefix + pack_i64(max_offset)
        best: tuple[int, int] | None = None
        high = max_offset
        # The usual queue has no dead units: look at the first one before halving.
        middle = low
        while low < high:
            # The first unit at or after the middle, so that units which the compaction filter has
            # dropped already cost nothing.
            rows = self._engine.scan(UNITS, prefix + pack_i64(middle), end, limit=1)
            if not rows:
                high = middle
            else:
                offset = queue_offset_of(rows[0][0])
                unit = unpack_unit(rows[0][1])
                if unit.physical_offset >= log_start:
                    best = (offset, unit.physical_offset)
                    high = middle
                else:
                    low = offset + 1
            middle = (low + high) // 2
        return best
