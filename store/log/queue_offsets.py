"""The next offset of each queue that was written to lately.

A bounded cache in front of the consume queue store, in two generations: `young` takes what is
used, and when it is full the generation before it is forgotten whole. What is forgotten is loaded
again from the consume queue, so it must be dispatched by then: the older generation is only let
go once dispatch has passed the log's end as it was when that generation was closed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

#: (topic, queue id), or the name of a light queue. A message whose topic names a light queue never
#: finds one here, and is refused like any other bad topic.
QueueKey = tuple[str, int] | str


class HotQueue:
    """One queue the appender writes to: its next offset and the constant bytes of its records."""

    __slots__ = ("magic", "next_offset", "plain_tail", "topic_field")

    def __init__(self, next_offset: int, magic: int, topic_field: bytes, plain_tail: bytes) -> None:
        self.next_offset = next_offset
        self.magic = magic
        self.topic_field = topic_field  # topic length and topic, as a record has them
        self.plain_tail = plain_tail  # what follows the body of a record without properties


class QueueOffsets:
    """Hot queues by (topic, queue id).

    Thread: only under the append lock. Memory: at most `limit` queues, plus those written to
    since the last dispatch.
    """

    def __init__(
        self,
        limit: int,
        load: Callable[[Sequence[QueueKey], int], Sequence[int]],
        make: Callable[[QueueKey, int], HotQueue],
        dispatched: Callable[[], int],
    ) -> None:
        """`load` looks the next offsets of queues up, for a log that ends there."""
        self.young: dict[QueueKey, HotQueue] = {}
        self._old: dict[QueueKey, HotQueue] = {}
        self._old_end = 0  # log end when `_old` was closed
        self._generation = max(1, limit // 2)
        self._load = load
        self._make = make
        self._dispatched = dispatched

    def __len__(self) -> int:
        return len(self.young.keys() | self._old.keys())

    def warm(self, keys: Sequence[QueueKey], log_end: int) -> None:
        """Afterwards all `keys` are in `young`. Raises what `load` raises, and changes nothing."""
        # Looked up before the turn, which lets go of the older generation. Nothing is taken out of
        # it: an interrupt must not lose a queue that is not dispatched yet.
        young, old = self.young, self._old
        known: dict[QueueKey, HotQueue] = {}
        missing: list[QueueKey] = []
        for key in keys:
            queue = young.get(key) or old.get(key)
            if queue is None:
                missing.append(key)
            else:
                known[key] = queue
        loaded = self._load(missing, log_end) if missing else ()
        if len(self.young) + len(keys) > self._generation:
            self._turn(log_end)
        self.young.update(known)
        self.young.update(zip(missing, map(self._make, missing, loaded), strict=True))

    def forget(self, keys: Iterable[QueueKey]) -> None:
        """The topic of these queues is deleted."""
        for key in keys:
            self.young.pop(key, None)
            self._old.pop(key, None)

    def _turn(self, log_end: int) -> None:
        if self._dispatched() < self._old_end:
            return  # some of the older ones are not in the consume queue yet: grow for a moment
        self._old_end = log_end
        self._old = self.young
        self.young = {}
