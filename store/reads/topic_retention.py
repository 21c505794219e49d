"""What a topic keeps of a queue: the first offset that readers see.

The log drops whole segments, of all topics alike. A topic that keeps less than the log hides its
older messages earlier: limits by time and count are evaluated on each read, limits by bytes are
counted beforehand. Records stay until their segment is dropped.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock
from store.reads.unit_search import first_where

if TYPE_CHECKING:
    from store.consume_queue import Bounds, ConsumeQueueStore, CqUnit
    from store.derive import KeptBytes
    from store.log import StoreTimes
    from store.metadata import Retention
    from store.topics import QueueRules

_MANY_QUEUES = 65_536


class _First(NamedTuple):
    """The first message that is young enough, from the last search."""

    rules: QueueRules
    since: int  # all from here up to `offset` are too old; earlier ones were not checked
    offset: int
    unit: CqUnit  # of the message there, or of the first later one that has a unit


class TopicRetention:
    """Computes the first offset that a topic keeps. Thread: any. Memory: bounded, and nothing for
    queues of topics that keep everything."""

    def __init__(self, queues: ConsumeQueueStore, kept_bytes: KeptBytes, times: StoreTimes) -> None:
        # Constant after construction.
        self._queues = queues
        self._kept_bytes = kept_bytes
        self._times = times
        self._lock = Lock()
        # Guarded by _lock for writing, read freely.
        self._by_time: dict[tuple[str, int], _First] = {}

    def first_kept(self, topic: str, queue_id: int, rules: QueueRules, bounds: Bounds) -> int:
        """The queue's min for readers; `bounds` is what the log has.

        Raises what reading units raises.
        """
        retention: Retention = rules.retention
        low, high = bounds
        if low < high and retention.messages:
            low = max(low, high - retention.messages)
        if low < high and retention.bytes:
            kept = self._kept_bytes.first_kept(
                topic, queue_id, rules.created_offset, retention.bytes, bounds
            )
            low = max(low, kept)
        if low < high and retention.time_ms:
            low = self._young_enough(topic, queue_id, rules, low, high)
        return low

    def _young_enough(
        self, topic: str, queue_id: int, rules: QueueRules, low: int, high: int
    ) -> int:
        """The first message from `low` on that the topic's time limit keeps; `high` if none."""
        key = (topic, queue_id)
        oldest_ms = self._times.now_ms() - rules.retention.time_ms
        known = self._by_time.get(key)
        since = low
        times = self._times

        def is_young(unit: CqUnit) -> bool:
            return times.of(unit.physical_offset, unit.store_time_ms) >= oldest_ms

        # Messages before `since`, or from `offset` on, were hidden by another limit, and not looked
        # at.
        if known is not None and known.rules == rules and known.since <= low <= known.offset:
            since, low = known.since, min(known.offset, high)
            # Decided again, because a stamp in the future counts for less once the clock is right
            # again.
            if known.offset == low and is_young(known.unit):
                return low
        found, unit = first_where(self._queues, topic, queue_id, low, high, is_young)
        with self._lock:
            if len(self._by_time) >= _MANY_QUEUES:
                self._by_time.clear()
            if unit is not None:
                self._by_time[key] = _First(rules, since, found, unit)
        return found
