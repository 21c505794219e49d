"""The next offset of each queue that was written recently.

For topics' queues this is a bounded cache in front of the consume queue store, in two generations.
`young` takes what is used; when it is full, the older generation is dropped as a whole. A dropped
offset is loaded again from the consume queue, so it must be dispatched by then. Therefore the older
generation is only dropped after dispatch has passed the log's end as of when that generation was
closed. Freeing it at once would stop an append for 20 ms, so it is freed in pieces while the next
one fills.

Light queues are in a compact table (known_offsets.py), which may drop any of them; a dropped one is
loaded as well. So offsets that are not dispatched yet are kept separately, by name, in two
generations that follow dispatch.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import filterfalse
from typing import TYPE_CHECKING

from store.errors import AppendWouldWaitError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

    import numpy as np
    import numpy.typing as npt

    from store.log.known_offsets import KnownOffsets, Looked

    _Ints = npt.NDArray[np.int64]

#: (topic, queue id), or the name of a light queue. A message whose topic is a light queue's name
#: never finds one here, and is rejected like any other invalid topic.
QueueKey = tuple[str, int] | str


#: For each new queue this many old ones are freed: more than one, so that none is left when the new
#: ones make up a generation. Python's collector compares numbers of freed and created objects. If
#: queues were freed as slowly as new ones come, it would run rarely, and then look at very many.
#: Plain numbers do not count there.
_GONE_QUEUES = 16
_GONE_LIGHT = 2
#: An append to fewer light queues looks them up one by one, since a call for columns takes 100 us.
#: When such appends have left this many entries, they move to the table, in half a millisecond.
_SMALL = 64
_MOST_SMALL = 1024
#: Maximum number of names of light queues that are kept aside without a dict.
_MOST_APART = 16_384
#: This many light queues, and as many that come twice, are dropped at once: one millisecond.
_FEW_GONE = 4096


class TakenLight:
    """Next offsets of the light queues that an append names, in columns; by name only on demand."""

    __slots__ = ("_by_name", "_offsets", "names")

    def __init__(self, names: Sequence[str] = (), offsets: Sequence[int] | _Ints = ()) -> None:
        """The names must be distinct."""
        self.names = names  # constant
        self._offsets = offsets
        self._by_name: dict[str, int] | None = None

    def __len__(self) -> int:
        return len(self.names)

    @property
    def by_name(self) -> dict[str, int]:
        """Offsets in the order of the names. The caller may modify them."""
        if self._by_name is None:
            self._by_name = dict(zip(self.names, _listed(self._offsets), strict=True))
        return self._by_name

    @property
    def offsets(self) -> Sequence[int] | _Ints:
        """One offset for each of the names."""
        return self._offsets if self._by_name is None else list(self._by_name.values())


class Hot:
    """Next offsets of the queues in use."""

    __slots__ = ("light", "queues")

    def __init__(self) -> None:
        self.queues: dict[tuple[str, int], int] = {}
        #: The light queues of the current append.
        self.light = TakenLight()

    def drop_queues(self, count: int) -> None:
        """Drop `count` queues, or all if there are fewer."""
        drop = self.queues.popitem
        for _ in range(min(count, len(self.queues))):
            drop()


class _Aside:
    """Next offsets of light queues, by name, of consecutive appends.

    Usually no caller asks, and no dict is built. Where dispatch lags, each addition builds a part
    of the earlier ones. No dict is built for more names than take a few milliseconds.
    """

    def __init__(self) -> None:
        # Names, all different, and their offsets.
        self._parts: list[tuple[Sequence[str], Sequence[int] | _Ints]] = []
        self._by_name: dict[str, int] = {}

    def __len__(self) -> int:
        """Number of names; those in several parts count several times."""
        return len(self._by_name) + self._apart

    @property
    def _apart(self) -> int:
        """Names that are not in a dict yet."""
        return sum([len(names) for names, _ in self._parts])

    def add(self, names: Sequence[str], offsets: Sequence[int] | _Ints) -> None:
        self._parts.append((names, offsets))
        while self._apart > _MOST_APART:
            self._take_in_first()

    @property
    def by_name(self) -> dict[str, int]:
        """The offsets of all names."""
        while self._parts:
            self._take_in_first()
        return self._by_name

    def _take_in_first(self) -> None:
        names, offsets = self._parts[0]
        # Piece by piece, so that other threads have the interpreter in between.
        for start in range(0, len(names), _MOST_APART):
            piece = slice(start, start + _MOST_APART)
            self._by_name.update(zip(names[piece], _listed(offsets[piece]), strict=True))
        del self._parts[0]  # only now: an interrupt loses none

    def drop(self, count: int) -> None:
        """Drop about `count` names, or all if there are fewer."""
        while self._parts and count > 0:
            count -= len(self._parts.pop()[0])
        for _ in range(min(count, len(self._by_name))):
            self._by_name.popitem()


class LightOffsets:
    """Next offsets of light queues: a few by name, then the table, and by name those not dispatched
    yet.

    Thread: only under the append lock. Memory: that of the table, plus offsets written since the
    last dispatch.
    """

    def __init__(self, table: KnownOffsets, dispatched: Callable[[], int]) -> None:
        self._table = table
        self._dispatched = dispatched
        # Entries of small appends: missing in the table, or newer than there.
        self._small: dict[str, int] = {}
        # All other entries: of appends up to the log's end, and of appends up to `_before_end`.
        self._recent = _Aside()
        self._before = _Aside()
        self._before_end = 0
        self._gone = _Aside()  # being freed in pieces
        self._looked: Looked | None = None  # of the current append; None for a small one

    def __len__(self) -> int:
        return len(self._table) + len(self._small)

    def find(self, names: Sequence[str], log_end: int) -> tuple[list[int] | _Ints, Sequence[int]]:
        """Look up these distinct names. Returns the offset of each, 0 if unknown, and the indices
        of unknown ones."""
        is_small = len(names) < _SMALL
        if self._small and (not is_small or len(self._small) >= _MOST_SMALL):
            self._move(log_end)
        offsets: list[int] | _Ints
        if is_small:
            self._looked = None
            small, known = self._small, self._table.get
            offsets = [small.get(name) or known(name) for name in names]
            missing = [at for at, offset in enumerate(offsets) if not offset]
        else:
            self._drop_old(len(names), log_end)
            self._looked = looked = self._table.find(names)
            offsets = looked.offsets
            missing = (offsets == 0).nonzero()[0].tolist()
        for aside in (self._recent, self._before):
            if not missing:
                break
            known_by_name = aside.by_name
            for at in missing:
                offsets[at] = known_by_name.get(names[at], 0)
            missing = [at for at in missing if not offsets[at]]
        return offsets, missing

    def keep(self, taken: TakenLight) -> None:
        """Store the next offsets of the names found last, after their append. Repeatable."""
        if self._looked is None:
            self._small.update(zip(taken.names, _listed(taken.offsets), strict=True))
        else:
            self._put(self._looked, taken)

    def _put(self, looked: Looked, taken: TakenLight) -> None:
        offsets = taken.offsets
        self._recent.add(taken.names, offsets)
        self._table.put(looked, offsets)

    def _move(self, log_end: int) -> None:
        """Move the offsets of small appends to the table. An interrupt leaves them here as well."""
        small = TakenLight(list(self._small), list(self._small.values()))
        self._drop_old(len(small), log_end)
        self._put(self._table.find(small.names), small)
        self._small = {}

    def forget(self, name: str) -> None:
        for known in (self._small, self._recent.by_name, self._before.by_name):
            known.pop(name, None)
        self._table.forget(name)

    def _drop_old(self, count: int, log_end: int) -> None:
        """Drop some old entries as `count` new ones arrive; then start a new generation, if the
        older one may be dropped."""
        gone = self._gone
        if len(gone) > _FEW_GONE + _GONE_LIGHT * count:
            gone.drop(_GONE_LIGHT * count)
        elif self._recent and self._dispatched() >= self._before_end:
            fresh = _Aside()
            # No call in between, so no interrupt: none is lost, or two generations at once.
            self._gone = self._before
            self._before = self._recent
            self._before_end = log_end
            self._recent = fresh


def _listed(offsets: Sequence[int] | _Ints) -> Sequence[int]:
    """The offsets as Python ints."""
    return offsets if isinstance(offsets, Sequence) else offsets.tolist()


class QueueOffsets:
    """The hot queues, of topics and light queues.

    Thread: only under the append lock. Memory: at most `limit` queues of topics, plus those written
    since the last dispatch, plus the rest of a generation that is being freed.
    """

    def __init__(
        self,
        limit: int,
        light_bytes: int,
        load: Callable[[Sequence[tuple[str, int]], Sequence[str], int], Sequence[int]],
        dispatched: Callable[[], int],
    ) -> None:
        """`light_bytes`: maximum size of the table of light queues.

        `load` looks up the next offsets of queues, then of light queues, for a log that ends there,
        and returns them in that order.
        """
        # Only here: a front, which loads this room, does without numpy.
        from store.log.known_offsets import KnownOffsets

        self.young = Hot()
        self._old = Hot()
        self._old_end = 0  # log end when `_old` was closed
        # Being freed in pieces. Its entry for a queue counts if no newer table has one.
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
        """Load these queues, which are not in `young`, and these distinct light queues, which
        replace the ones loaded before.

        Raises what `load` raises, and AppendWouldWaitError if more than `most` must be looked up;
        nothing changes then.
        """
        young, old = self.young, self._old
        missing: list[tuple[str, int]] = []
        if queues:
            self._gone.drop_queues(_GONE_QUEUES * len(queues))
            missing = list(filterfalse(old.queues.__contains__, queues))
        offsets: list[int] | _Ints = []
        unknown: Sequence[int] = ()
        loaded: Sequence[int] = ()
        if light:
            offsets, unknown = self._light.find(light, log_end)
        if missing or unknown:
            count = len(missing) + len(unknown)
            if most is not None and count > most:
                raise AppendWouldWaitError(f"{count} queues must be looked up")
            loaded = self._load(missing, [light[at] for at in unknown], log_end)
            for at, offset in zip(unknown, loaded[len(missing) :], strict=True):
                offsets[at] = offset
        # Nothing is taken out of the older ones: an interrupt must not lose a queue that is not
        # dispatched yet.
        if len(missing) < len(queues):
            young.queues |= {key: old.queues[key] for key in queues if key in old.queues}
        young.queues.update(zip(missing, loaded, strict=False))
        young.light = TakenLight(light, offsets)

    def keep_light(self) -> None:
        """Store the light-queue offsets of an append that is certain to be in the log.
        Repeatable."""
        if self.young.light:
            self._light.keep(self.young.light)

    def turn(self, log_end: int) -> Hot:
        """The young generation; starts a new one if it is full. Call before `warm`."""
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
        """Drop these queues, whose topic is deleted."""
        for key in keys:
            if isinstance(key, str):
                self._light.forget(key)
            else:
                for hot in (self.young, self._old, self._gone):
                    hot.queues.pop(key, None)
