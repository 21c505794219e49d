"""The next offset of each queue that was written to lately.

A bounded cache in front of the consume queue store, in two generations: `young` takes what is
used, and when it is full the generation before it is forgotten whole. What is forgotten is loaded
again from the consume queue, so it must be dispatched by then: the older generation is only let
go once dispatch has passed the log's end as it was when that generation was closed. Freeing one at
once would stop an append for 20 ms: it goes bit by bit, while the next one fills.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

#: (topic, queue id), or the name of a light queue. A message whose topic names a light queue never
#: finds one here, and is refused like any other bad topic.
QueueKey = tuple[str, int] | str


#: So many are let go of for each that comes: more than one, so that none is left when the young
#: ones are a generation. Python's collector sets what is freed off against what is made: queues of
#: topics, freed as slowly as the new ones come, would keep it from looking, and then it would look
#: at very many. Numbers are nothing to it.
_GONE_QUEUES = 16
_GONE_LIGHT = 2


class HotQueue:
    """A queue of a topic that the appender writes to: its next offset, and the constant bytes of
    its records."""

    __slots__ = ("magic", "next_offset", "plain_tail", "topic_field")

    def __init__(self, next_offset: int, magic: int, topic_field: bytes, plain_tail: bytes) -> None:
        self.next_offset = next_offset
        self.magic = magic
        self.topic_field = topic_field  # topic length and topic, as a record has them
        self.plain_tail = plain_tail  # what follows the body of a record without properties


class Hot:
    """Queues in use. Of a light queue there is the next offset alone: no record bears its name."""

    __slots__ = ("light", "queues")

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], HotQueue] = {}
        self.light: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.queues) + len(self.light)

    def drop(self, queues: int, light: int) -> None:
        """So many of each kind, or all there are."""
        for _ in range(min(queues, len(self.queues))):
            self.queues.popitem()
        for _ in range(min(light, len(self.light))):
            self.light.popitem()


class QueueOffsets:
    """Hot queues, of topics and light ones.

    Thread: only under the append lock. Memory: at most `limit` queues, plus those written to
    since the last dispatch, plus what is left of a generation that is let go.
    """

    def __init__(
        self,
        limit: int,
        load: Callable[[Sequence[tuple[str, int]], Sequence[str], int], Sequence[int]],
        make: Callable[[tuple[str, int], int], HotQueue],
        dispatched: Callable[[], int],
    ) -> None:
        """`load` looks the next offsets of queues and light queues up, for a log that ends there.

        It returns those of the queues, then those of the light queues.
        """
        self.young = Hot()
        self._old = Hot()
        self._old_end = 0  # log end when `_old` was closed
        self._gone = Hot()  # is asked nothing any more
        self._generation = max(1, limit // 2)
        self._load = load
        self._make = make
        self._dispatched = dispatched

    def __len__(self) -> int:
        young, old = self.young, self._old
        return len(young.queues.keys() | old.queues.keys()) + len(
            young.light.keys() | old.light.keys()
        )

    def warm(
        self, queues: Collection[tuple[str, int]], light: Collection[str], log_end: int
    ) -> None:
        """These, which are not in `young`, are in it afterwards.

        Raises what `load` raises, and changes nothing.
        """
        young, old = self.young, self._old
        count = len(queues) + len(light)
        self._gone.drop(_GONE_QUEUES * count, _GONE_LIGHT * count)
        missing = list(filterfalse(old.queues.__contains__, queues))
        missing_light = list(filterfalse(old.light.__contains__, light))
        loaded: Sequence[int] = ()
        if missing or missing_light:
            loaded = self._load(missing, missing_light, log_end)
        # Nothing is taken out of the older ones: an interrupt must not lose a queue that is not
        # dispatched yet.
        if len(missing) < len(queues):
            young.queues |= {key: old.queues[key] for key in queues if key in old.queues}
        if len(missing_light) < len(light):
            young.light |= {name: old.light[name] for name in light if name in old.light}
        young.queues.update(zip(missing, map(self._make, missing, loaded), strict=True))
        young.light.update(zip(missing_light, loaded[len(missing) :], strict=True))

    def turn(self, log_end: int) -> Hot:
        """The young ones, a new generation of them when there are enough for one. Before `warm`."""
        if len(self.young) >= self._generation and self._dispatched() >= self._old_end:
            # Otherwise some of the older ones are not in the consume queue yet: grow for a moment.
            self._old_end = log_end
            self._gone = self._old
            self._old = self.young
            self.young = Hot()
        return self.young

    def forget(self, keys: Iterable[QueueKey]) -> None:
        """The topic of these queues is deleted."""
        for key in keys:
            for hot in (self.young, self._old):
                if isinstance(key, str):
                    hot.light.pop(key, None)
                else:
                    hot.queues.pop(key, None)
