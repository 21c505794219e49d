"""The next offset of each queue that was written to lately.

A bounded cache in front of the consume queue store, in two generations: `young` takes what is
used, and when it is full the generation before it is forgotten whole. What is forgotten is loaded
again from the consume queue, so it must be dispatched by then: the older generation is only let
go once dispatch has passed the log's end as it was when that generation was closed. Freeing one at
once would stop an append for 20 ms: it goes bit by bit, while the next one fills.

Light queues that are let go move to a compact table (known_offsets.py), which may forget any of
them. A queue that comes into use again leaves it: so what the table says of a queue is where it
ends, as long as every append to it is preceded by `warm`.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from store.log.known_offsets import KnownOffsets

#: (topic, queue id), or the name of a light queue. A message whose topic names a light queue never
#: finds one here, and is refused like any other bad topic.
QueueKey = tuple[str, int] | str


#: So many are let go of for each that comes: more than one, so that none is left when the young
#: ones are a generation. Python's collector sets what is freed off against what is made: queues of
#: topics, freed as slowly as the new ones come, would keep it from looking, and then it would look
#: at very many. Numbers are nothing to it.
_GONE_QUEUES = 16
_GONE_LIGHT = 2
#: So many light queues move to the table together: a call of it takes 50 us, and then 0.4 a name.
_MOVED = 256


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

    def drop_queues(self, count: int) -> None:
        """So many, or all there are."""
        for _ in range(min(count, len(self.queues))):
            self.queues.popitem()

    def take_light(self, count: int) -> list[tuple[str, int]]:
        """So many, or all there are: they are not here any more."""
        take = self.light.popitem
        return [take() for _ in range(min(count, len(self.light)))]


class QueueOffsets:
    """Hot queues, of topics and light ones.

    Thread: only under the append lock. Memory: at most `limit` queues, plus those written to
    since the last dispatch, plus what is left of a generation that is let go; and the table.
    """

    def __init__(
        self,
        limit: int,
        table_bytes: int,
        load: Callable[[Sequence[tuple[str, int]], Sequence[str], int], Sequence[int]],
        make: Callable[[tuple[str, int], int], HotQueue],
        dispatched: Callable[[], int],
    ) -> None:
        """`table_bytes` is the most that the table of light queues takes; 0: there is none.

        `load` looks the next offsets of queues and light queues up, for a log that ends there.

        It returns those of the queues, then those of the light queues.
        """
        self.young = Hot()
        self._old = Hot()
        self._old_end = 0  # log end when `_old` was closed
        # Let go, bit by bit. What it says of a queue counts if that is in no younger one.
        self._gone = Hot()
        self._due_light = 0  # so many of those should have gone by now
        self._table = _table(table_bytes)
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
        self._let_go(len(queues) + len(light))
        missing = list(filterfalse(old.queues.__contains__, queues))
        missing_light = list(filterfalse(old.light.__contains__, light))
        known: dict[str, int] = {}
        if missing_light and self._table is not None:
            known = self._known(missing_light)
            if known:
                missing_light = list(filterfalse(known.__contains__, missing_light))
        loaded: Sequence[int] = ()
        if missing or missing_light:
            loaded = self._load(missing, missing_light, log_end)
        # Nothing is taken out of the older ones: an interrupt must not lose a queue that is not
        # dispatched yet.
        if len(missing) < len(queues):
            young.queues |= {key: old.queues[key] for key in queues if key in old.queues}
        if len(missing_light) + len(known) < len(light):
            young.light |= {name: old.light[name] for name in light if name in old.light}
        young.light |= known
        young.queues.update(zip(missing, map(self._make, missing, loaded), strict=True))
        young.light.update(zip(missing_light, loaded[len(missing) :], strict=True))

    def _known(self, light: Sequence[str]) -> dict[str, int]:
        """The next offsets of those that were let go, which are in no generation. They are nowhere
        afterwards: losing one is harmless, since it is dispatched."""
        gone, table = self._gone.light, self._table
        known = {name: gone.pop(name) for name in light if name in gone} if gone else {}
        if table is not None and len(table):
            if known:
                light = [name for name in light if name not in known]
            found = table.take(light)
            if any(found):
                known |= {name: offset for name, offset in zip(light, found, strict=True) if offset}
        return known

    def _let_go(self, count: int) -> None:
        """Some of the generation that goes: so many queues come."""
        gone, table = self._gone, self._table
        gone.drop_queues(_GONE_QUEUES * count)
        if not gone.light:
            return
        self._due_light += _GONE_LIGHT * count
        if table is None:
            gone.take_light(self._due_light)
        elif self._due_light < _MOVED:
            return
        else:
            # Those that were used since are in the next one, and their offsets here are old.
            old = self._old.light
            moved = [each for each in gone.take_light(self._due_light) if each[0] not in old]
            if moved:
                names, offsets = zip(*moved, strict=True)
                table.put(names, offsets)
        self._due_light = 0

    def turn(self, log_end: int) -> Hot:
        """The young ones, a new generation of them when there are enough for one. Before `warm`."""
        if len(self.young) >= self._generation and self._dispatched() >= self._old_end:
            # Otherwise some of the older ones are not in the consume queue yet: grow for a moment.
            fresh = Hot()
            self._old_end = log_end
            # No call in between, so no interrupt: none is two generations at once.
            self._gone = self._old
            self._old = self.young
            self.young = fresh
        return self.young

    def forget(self, keys: Iterable[QueueKey]) -> None:
        """The topic of these queues is deleted."""
        for key in keys:
            for hot in (self.young, self._old, self._gone):
                if isinstance(key, str):
                    hot.light.pop(key, None)
                else:
                    hot.queues.pop(key, None)
            if isinstance(key, str) and self._table is not None:
                self._table.take([key])


def _table(limit_bytes: int) -> KnownOffsets | None:
    if not limit_bytes:
        return None
    # Only here: a front, which loads this room, does without numpy.
    from store.log.known_offsets import KnownOffsets

    return KnownOffsets(limit_bytes)
