"""The next offset of each queue that was written to lately.

Of topics' queues, a bounded cache in front of the consume queue store, in two generations: `young`
takes what is used, and when it is full the generation before it is forgotten whole. What is
forgotten is loaded again from the consume queue, so it must be dispatched by then: the older
generation is only let go once dispatch has passed the log's end as it was when that generation was
closed. Freeing one at once would stop an append for 20 ms: it goes bit by bit, while the next one
fills.

Light queues are in a compact table (known_offsets.py), which may forget any of them. What it forgot
is loaded as well: so what is not dispatched yet is kept aside, by name, in two generations that
turn with dispatch.
"""

from __future__ import annotations

from itertools import filterfalse
from typing import TYPE_CHECKING

from store.errors import AppendWouldWaitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence

    from store.log.known_offsets import KnownOffsets, Looked

#: (topic, queue id), or the name of a light queue. A message whose topic names a light queue never
#: finds one here, and is refused like any other bad topic.
QueueKey = tuple[str, int] | str


#: So many are let go of for each that comes: more than one, so that none is left when the young
#: ones are a generation. Python's collector sets what is freed off against what is made: queues of
#: topics, freed as slowly as the new ones come, would keep it from looking, and then it would look
#: at very many. Numbers are nothing to it.
_GONE_QUEUES = 16
_GONE_LIGHT = 2
#: An append to fewer light queues looks them up one by one: a call for columns takes 100 us. What
#: such appends leave moves to the table when there are so many of them: half a millisecond.
_SMALL = 64
_MOST_SMALL = 1024
#: So many light queues, and as many as come twice over, go at once: one millisecond.
_FEW_GONE = 4096


class Hot:
    """Next offsets of queues in use."""

    __slots__ = ("light", "queues")

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], int] = {}
        #: Those of the append that is under way.
        self.light: dict[str, int] = {}

    def drop_queues(self, count: int) -> None:
        """So many, or all there are."""
        drop = self.queues.popitem
        for _ in range(min(count, len(self.queues))):
            drop()


class LightOffsets:
    """Next offsets of light queues: of a few by name, then the table, and by name what is not
    dispatched yet.

    Thread: only under the append lock. Memory: that of the table, plus what was written to since
    the last dispatch.
    """

    def __init__(self, table: KnownOffsets, dispatched: Callable[[], int]) -> None:
        self._table = table
        self._dispatched = dispatched
        # Of small appends: what they leave here is not in the table, or is older there.
        self._small: dict[str, int] = {}
        # All others, of appends up to the log's end, and up to `_before_end`.
        self._recent: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._before_end = 0
        self._gone: dict[str, int] = {}  # let go, bit by bit
        self._looked: Looked | None = None  # of the append under way; None: it is a small one

    def __len__(self) -> int:
        return len(self._table) + len(self._small)

    def find(self, names: Sequence[str], log_end: int) -> tuple[dict[str, int], list[str]]:
        """What is known of these names, all different, and those of which nothing is."""
        is_small = len(names) < _SMALL
        if self._small and (not is_small or len(self._small) >= _MOST_SMALL):
            self._move(log_end)
        if is_small:
            self._looked = None
            small, known = self._small, self._table.get
            found = {name: small.get(name) or known(name) for name in names}
            missing = [name for name, offset in found.items() if not offset]
        else:
            self._let_go(len(names), log_end)
            self._looked = looked = self._table.find(names)
            found = dict(zip(names, looked.offsets, strict=True))
            missing = [names[at] for at in looked.unknown]
        if not missing:
            return found, missing
        for aside in (self._before, self._recent):
            there = list(filter(aside.__contains__, missing))
            if there:
                found.update([(name, aside[name]) for name in there])
        return found, [name for name in missing if not found[name]]

    def keep(self, offsets: dict[str, int]) -> None:
        """The next offsets of the names that were found last, after their append. Repeatable."""
        if self._looked is None:
            self._small.update(offsets)
        else:
            self._put(self._looked, offsets)

    def _put(self, looked: Looked, offsets: dict[str, int]) -> None:
        if self._recent:
            self._recent |= offsets
        else:
            self._recent = offsets
        self._table.put(looked, list(offsets.values()))

    def _move(self, log_end: int) -> None:
        """What small appends left goes to the table. An interrupt leaves it here as well."""
        # A copy: one dict that is two generations would be let go with the older one.
        small = self._small.copy()
        self._let_go(len(small), log_end)
        self._put(self._table.find(list(small)), small)
        self._small = {}

    def forget(self, name: str) -> None:
        for known in (self._small, self._recent, self._before):
            known.pop(name, None)
        self._table.forget(name)

    def _let_go(self, count: int, log_end: int) -> None:
        """Some of what goes, so many come; then a new generation, if the older one may go."""
        gone = self._gone
        if len(gone) > _FEW_GONE + _GONE_LIGHT * count:
            for _ in range(_GONE_LIGHT * count):
                gone.popitem()
        elif self._recent and self._dispatched() >= self._before_end:
            # No call in between, so no interrupt: none is lost.
            self._gone = self._before
            self._before = self._recent
            self._before_end = log_end
            self._recent = {}


class QueueOffsets:
    """Hot queues, of topics and light ones.

    Thread: only under the append lock. Memory: of topics at most `limit` queues, plus those written
    to since the last dispatch, plus what is left of a generation that is let go.
    """

    def __init__(
        self,
        limit: int,
        light_bytes: int,
        load: Callable[[Sequence[tuple[str, int]], Sequence[str], int], Sequence[int]],
        dispatched: Callable[[], int],
    ) -> None:
        """`light_bytes` is the most that the table of light queues takes.

        `load` looks the next offsets of queues and light queues up, for a log that ends there.

        It returns those of the queues, then those of the light queues.
        """
        # Only here: a front, which loads this room, does without numpy.
        from store.log.known_offsets import KnownOffsets

        self.young = Hot()
        self._old = Hot()
        self._old_end = 0  # log end when `_old` was closed
        # Let go, bit by bit. What it says of a queue counts if that is in no younger one.
        self._gone = Hot()
        self._light = LightOffsets(KnownOffsets(light_bytes), dispatched)
        self._generation = max(1, limit // 2)
        self._load = load
        self._dispatched = dispatched

    def __len__(self) -> int:
        return len(self.young.queues.keys() | self._old.queues.keys()) + len(self._light)

    def warm(
        self,
        queues: Collection[tuple[str, int]],
        light: Sequence[str],
        log_end: int,
        most: int | None = None,
    ) -> None:
        """These queues, which are not in `young`, are in it afterwards, and of light queues these
        alone, all different.

        Raises what `load` raises, and AppendWouldWaitError when more than `most` must be looked up;
        it changes nothing then.
        """
        young, old = self.young, self._old
        missing: list[tuple[str, int]] = []
        if queues:
            self._gone.drop_queues(_GONE_QUEUES * len(queues))
            missing = list(filterfalse(old.queues.__contains__, queues))
        found: dict[str, int] = {}
        missing_light: list[str] = []
        loaded: Sequence[int] = ()
        if light:
            found, missing_light = self._light.find(light, log_end)
        if missing or missing_light:
            count = len(missing) + len(missing_light)
            if most is not None and count > most:
                raise AppendWouldWaitError(f"{count} queues must be looked up")
            loaded = self._load(missing, missing_light, log_end)
            found.update(zip(missing_light, loaded[len(missing) :], strict=True))
        # Nothing is taken out of the older ones: an interrupt must not lose a queue that is not
        # dispatched yet.
        if len(missing) < len(queues):
            young.queues |= {key: old.queues[key] for key in queues if key in old.queues}
        young.queues.update(zip(missing, loaded, strict=False))
        young.light = found

    def keep_light(self) -> None:
        """The append is certain: what it took of light queues is remembered. Repeatable."""
        if self.young.light:
            self._light.keep(self.young.light)

    def turn(self, log_end: int) -> Hot:
        """The young ones, a new generation of them when there are enough for one. Before `warm`."""
        young = self.young
        if len(young.queues) >= self._generation and self._dispatched() >= self._old_end:
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
            if isinstance(key, str):
                self._light.forget(key)
            else:
                for hot in (self.young, self._old, self._gone):
                    hot.queues.pop(key, None)
