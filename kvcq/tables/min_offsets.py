"""The min offset of a queue: its first unit at or above the log's start. Derived, never stored.

A stored min would become stale. Searching is cheap: physical offsets ascend along a queue, so it
takes a seek and a few scans, and the result holds until the log's start passes that unit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.tables.keys import UNITS, pack_i64, queue_offset_of, unit_prefix
from kvcq.tables.values import unpack_unit
from store.base import Lock

if TYPE_CHECKING:
    from kvcq.engine import KvEngine

_CACHE_LIMIT = 65_536
#: Units looked at around a guess: a seek costs as much as ten more of them.
_WINDOW = 16


class MinOffsets:
    """Min offsets, with a bounded cache. Thread: any.

    A cached entry (min offset, its physical offset) is used while that unit is still in the log.
    """

    def __init__(self, engine: KvEngine) -> None:
        self._engine = engine
        self._lock = Lock()
        # Written under _lock, read freely.
        self._changes = 0
        self._cache: dict[tuple[str, int], tuple[int, int]] = {}

    def get(
        self, topic: str, queue_id: int, max_offset: int, last_place: int, log_start: int
    ) -> int:
        """Min offset of a queue with the given max; equal to the max if nothing is left.

        `last_place`: physical offset of its last unit. Raises CorruptValueError, and what the
        engine raises: an error is never taken for "expired".
        """
        if last_place < log_start:
            return max_offset
        key = (topic, queue_id)
        changes = self._changes
        cached = self._cache.get(key)
        low = 0
        if cached is not None:
            if cached[1] >= log_start:
                return cached[0]
            low = cached[0]
        prefix = unit_prefix(topic, queue_id)
        found = self._search(prefix, low, max_offset, last_place, log_start)
        if found is None:
            return max_offset
        with self._lock:
            # Not if units were removed meanwhile: the unit that was found may be gone.
            if changes == self._changes:
                if len(self._cache) >= _CACHE_LIMIT:
                    self._cache.clear()
                self._cache[key] = found
        return found[0]

    def forget(self, topic: str, queue_ids: list[int]) -> None:
        """Drop cached entries after the topic was deleted or its units were cut."""
        with self._lock:
            self._changes += 1
            for queue_id in queue_ids:
                self._cache.pop((topic, queue_id), None)

    def clear(self) -> None:
        with self._lock:
            self._changes += 1
            self._cache.clear()

    def _search(
        self, prefix: bytes, low: int, high: int, last_place: int, log_start: int
    ) -> tuple[int, int] | None:
        """(queue offset, physical offset) of the first live unit in low..high-1.

        `last_place`: physical offset of the unit at high-1, which is live. A queue grows about as
        evenly as the log, so interpolation finds it in a scan or two. A guess that does not halve
        the range is followed by bisection, so no queue takes more than twice the scans of bisection
        alone.
        """
        best: tuple[int, int] | None = None
        low_place = 0  # of the last known dead unit
        # The usual queue has no dead units: look at the first one before guessing.
        probe, count, is_guess = low, 1, False
        while low < high:
            span = high - low
            # Start at the probe, because units that the compaction filter has dropped cost nothing
            # then.
            start, end = prefix + pack_i64(probe), prefix + pack_i64(high)
            rows = self._engine.scan(UNITS, start, end, limit=count)
            live: tuple[int, int] | None = None
            for key, row in rows:
                offset, place = queue_offset_of(key), unpack_unit(row).physical_offset
                if place >= log_start:
                    live = (offset, place)
                    break
                low, low_place = offset + 1, place
            if live is not None and low > probe:
                return live  # the unit before it is dead
            if live is not None or not rows:
                best, high = live or best, probe
            elif len(rows) < count:
                return best  # all are dead that are below it
            count = _WINDOW
            is_guess = not (is_guess and 2 * (high - low) > span)
            if is_guess:
                high_place = best[1] if best is not None else last_place
                ahead = (log_start - low_place) * (high - low) // max(1, high_place - low_place)
                probe = min(max(low, low + ahead - _WINDOW // 2), high - 1)
            else:
                probe = (low + high) // 2
        return best
