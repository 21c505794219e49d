"""Messages superseded by a later one with the same key: hidden from readers, found step by step.

For a queue that keeps the latest message of each key, the state has one bit for each offset, in
rows of 8192, and a row with the log position up to which it was scanned. Each scan is a record of
the log, so a rebuild hides the same messages. Units and records stay.

A bit hides a message only if its record lies below the position up to which the queue was scanned.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.base import Lock
from store.state import LatestLooked, Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from store.consume_queue import CqUnit
    from store.metadata import LatestHead
    from store.state import Entry, Rows
    from store.topics import End

#: Offsets of one row.
CHUNK = 8192
#: Queues kept to their latest messages, at most: about 400 bytes each.
MOST_QUEUES = 100_000
#: Each of 1 KiB.
_ROWS_A_RECORD = 128


class Hidden:
    """The bits of one queue. Thread: any."""

    def __init__(self, tables: Tables, head: LatestHead) -> None:
        self._tables = tables
        self._head = head

    @property
    def count(self) -> int:
        """Number of hidden messages as of the last scan."""
        return self._head.hidden

    def has(self, offset: int, physical_offset: int) -> bool:
        """Whether the message there is hidden."""
        if physical_offset >= self._head.looked_offset:
            return False
        bits = self._tables.hidden_bits(self._head.topic, self._head.queue_id, offset // CHUNK)
        return _is_set(bits, offset % CHUNK)

    def visible(self, units: Sequence[tuple[int, CqUnit]]) -> list[tuple[int, CqUnit]]:
        """The units whose messages are not hidden."""
        below = self._head.looked_offset
        if not units or units[0][1].physical_offset >= below:
            return [*units]
        topic, queue_id = self._head.topic, self._head.queue_id
        chunks = {offset // CHUNK for offset in (units[0][0], units[-1][0])}
        bits = {
            chunk: self._tables.hidden_bits(topic, queue_id, chunk)
            for chunk in range(min(chunks), max(chunks) + 1)
        }
        return [
            each
            for each in units
            if each[1].physical_offset >= below
            or not _is_set(bits[each[0] // CHUNK], each[0] % CHUNK)
        ]


class Superseded:
    """The queues with hidden messages.

    Thread: any. Locks: `_lock` for its own table. Memory: an entry for each such queue.
    """

    def __init__(
        self, state: Rows, append: Callable[[Sequence[Entry], Mapping[str, End]], None]
    ) -> None:
        """`append` must apply its entries to `state` before it returns, and raise UnknownTopicError
        if a topic or light queue was deleted after its end was read."""
        # Constant after construction.
        self._tables = Tables(state)
        self._append = append
        self._lock = Lock()
        # Guarded by _lock for writing, read freely.
        self._queues = {
            (head.topic, head.queue_id): Hidden(self._tables, head)
            for head in self._tables.latest_heads()
        }

    def get(self, topic: str, queue_id: int) -> Hidden | None:
        """The hidden messages of the queue; None if there are none."""
        return self._queues.get((topic, queue_id))

    def has_room(self, topic: str, queue_id: int) -> bool:
        """Whether the queue is in the table, or there is room to add it."""
        return (topic, queue_id) in self._queues or len(self._queues) < MOST_QUEUES

    def put(self, head: LatestHead, bits: Mapping[int, bytes], end: End) -> None:
        """Hide these offsets from now on. `bits`: rows by number, which replace earlier ones.

        `end`: the topic's end, as it was before its queue was scanned. As durable as a put on
        return. Raises UnknownTopicError if it was deleted since, and what an append raises.
        """
        topic, queue_id, looked, count = head
        first = min(bits, default=looked)
        rows = sorted(bits.items())
        parts = [dict(rows[at : at + _ROWS_A_RECORD]) for at in range(0, len(rows), _ROWS_A_RECORD)]
        self._append(
            [LatestLooked(topic, queue_id, looked, count, first, part) for part in parts or [{}]],
            {topic: end},
        )
        with self._lock:
            self._queues[topic, queue_id] = Hidden(self._tables, head)

    def forget(self, topics: AbstractSet[str]) -> None:
        """Drop the entries of deleted topics and light queues; their rows were deleted with
        them."""
        with self._lock:
            for key in [key for key in self._queues if key[0] in topics]:
                del self._queues[key]


def _is_set(bits: bytes | None, at: int) -> bool:
    if bits is None or at >> 3 >= len(bits):
        return False
    return bool(bits[at >> 3] & (1 << (at & 7)))
