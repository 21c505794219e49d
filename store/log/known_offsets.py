"""Next offsets of light queues, 20 bytes each, whatever the length of their names.

The table has no names, only two 64-bit hashes, SipHash under a key of the process (str.__hash__),
of the name and of the name behind a zero. With 16 million entries another name matches one with a
probability of 2**-104: at 10**6 lookups a second that takes 10**17 years. If PYTHONHASHSEED fixes
the key, an attacker who knows it has to try 2**64 hashes to construct such a name.

The first hash selects a bucket of eight slots and, if that is full, the other bucket of its pair.
The table is a cache: an insert into two full buckets evicts an entry, or is itself not kept, and is
then looked up in the consume queue. Memory is touched as the table grows, by splitting one bucket
after another (linear hashing), so each call only does its share of the work.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Sequence

_WAYS = 8
_LINE_BYTES = 64
_PLACE_BYTES = 20
_FIRST_BUCKETS = 8192
#: Names in a bucket on average, when the table begins to grow: one of 1,300 finds no place then.
_FILL = 4
#: Buckets that are split for each name that is looked for meanwhile. Even: pairs stay together.
_PACE = 2

#: By a byte with a bit for each way, and a start: the first set way from the start on, cyclic; the
#: start if no bit is set.
_FIRST_FROM = np.array(
    [
        [next((way % 8 for way in range(start, start + 8) if byte >> way % 8 & 1), start)]
        for byte in range(256)
        for start in range(8)
    ]
).reshape(256, _WAYS)

_Ints = npt.NDArray[np.int64]


class Looked(NamedTuple):
    """The result of `find`, in the order of the names."""

    offsets: _Ints  # 0: not known
    hashes: _Ints
    checks: _Ints
    places: _Ints  # -1: none


class KnownOffsets:
    """Offsets from 1 to 2**32 - 1; others are not kept. Uses at most `limit_bytes`, or a page or
    two if that is less.

    Thread: one at a time. An interrupt may end a call at any point. Names may be lost then, except
    those of a `put` that is repeated, and the count of names may be wrong.
    """

    def __init__(self, limit_bytes: int) -> None:
        # Constant after construction. The memory is zero, and only allocated when it is written to.
        # A bucket is one line of the processor's cache.
        self._most = max(2, limit_bytes // (_PLACE_BYTES * _WAYS) & ~1)
        places = self._most * _WAYS
        memory = np.zeros(places * _PLACE_BYTES + _LINE_BYTES, np.uint8)
        memory = memory[-memory.ctypes.data % _LINE_BYTES :]
        self._hash = np.frombuffer(memory, np.int64, places)  # 0: the place is free
        self._buckets = self._hash.reshape(-1, _WAYS)
        self._check = np.frombuffer(memory, np.int64, places, 8 * places)
        self._offset = np.frombuffer(memory, np.uint32, places, 16 * places)
        # The same, for one place at a time.
        self._hash_at = self._hash.data
        self._check_at = self._check.data
        self._offset_at = self._offset.data
        # Buckets in use, and names in them.
        self._size = min(_FIRST_BUCKETS, self._most)
        self._count = 0

    def __len__(self) -> int:
        return max(0, self._count)

    def find(self, names: Sequence[str]) -> Looked:
        """Look up these distinct names."""
        # Here, because `put` may be repeated after an interrupt, and its places must then be the
        # same.
        self._grow(len(names))
        hashes, checks = _hashes_of(names)
        buckets = self._bucket_of(hashes)
        at, places = self._standing(hashes, buckets)
        same = self._check[places] == checks[at]
        at, places = at[same], places[same]
        offsets = np.zeros(len(names), np.int64)
        offsets[at] = self._offset[places]
        found = np.full(len(names), -1, np.int64)
        found[at] = places
        return Looked(offsets, hashes, checks, found)

    def get(self, name: str) -> int:
        """Like `find`, for one name, in a fiftieth of the time."""
        place = self._place_of(name)
        return 0 if place < 0 else self._offset_at[place]

    def _place_of(self, name: str) -> int:
        name_hash = hash(name) or 1
        bits = (self._size - 1).bit_length()
        bucket = name_hash & ((1 << bits) - 1)
        if bucket >= self._size:  # see _bucket_of
            bucket &= (1 << bits >> 1) - 1
        for first in (bucket * _WAYS, (bucket ^ 1) * _WAYS):
            row = self._hash_at[first : first + _WAYS].tolist()
            if name_hash in row:
                place = first + row.index(name_hash)
                if self._check_at[place] == hash("\0" + name):
                    return place
        return -1

    def put(self, looked: Looked, offsets: Sequence[int] | _Ints) -> None:
        """Set the offset of each of these names; one that finds no slot is dropped, including its
        old offset. `looked` must be the result of the last `find`. Repeatable."""
        numbers = np.asarray(offsets, np.int64)
        fits = (numbers > 0) & (numbers < 1 << 32)
        stays = (looked.places >= 0) & fits
        self._offset[looked.places[stays]] = numbers[stays]
        if stays.all():
            return
        rest = ~stays
        hashes, checks = looked.hashes[rest], looked.checks[rest]
        self._insert(hashes, checks, numbers[rest], fits[rest])

    def _insert(
        self, hashes: _Ints, checks: _Ints, numbers: _Ints, fits: npt.NDArray[np.bool_]
    ) -> None:
        buckets = self._bucket_of(hashes)
        _, places = self._standing(hashes, buckets)
        if len(places):
            self._free(np.unique(places))
        # The first free place from one that the other hash selects, so that names of a bucket that
        # come together seldom collide. Without a free place, that one.
        free = self._slots_with(0, buckets)
        full = np.flatnonzero(free == 0)
        if len(full):
            there = self._slots_with(0, buckets[full] ^ 1)
            full, there = full[there != 0], there[there != 0]
            buckets[full] ^= 1
            free[full] = there
        is_new = (free != 0)[fits]
        places = (buckets * _WAYS + _FIRST_FROM[free, checks & _WAYS - 1])[fits]
        hashes, checks, numbers = hashes[fits], checks[fits], numbers[fits]
        # If several names get one place, the last one stays, in all columns alike. The hash is
        # written last, so a place never mixes two names.
        self._hash[places] = 0
        self._offset[places] = numbers
        self._check[places] = checks
        self._hash[places] = hashes
        self._count += int(np.count_nonzero(is_new & (self._hash[places] == hashes)))

    def forget(self, name: str) -> None:
        """Remove the name."""
        place = self._place_of(name)
        if place >= 0:
            self._hash_at[place] = 0
            self._count -= 1

    def _standing(self, hashes: _Ints, buckets: _Ints) -> tuple[_Ints, _Ints]:
        """Indices of the hashes that are in their bucket or in the other one, and their
        positions."""
        ways = self._slots_with(hashes[:, None], buckets)
        elsewhere = np.flatnonzero(ways == 0)
        if len(elsewhere):
            others = buckets[elsewhere] ^ 1
            ways[elsewhere] = self._slots_with(hashes[elsewhere, None], others)
            buckets = buckets.copy()
            buckets[elsewhere] = others
        at = np.flatnonzero(ways)
        return at, buckets[at] * _WAYS + _FIRST_FROM[ways[at], 0]

    def _slots_with(self, hashes: _Ints | int, buckets: _Ints) -> npt.NDArray[np.uint8]:
        """For each bucket a byte with a bit for each slot that has its hash; hash 0 finds free
        slots."""
        ways = self._buckets.take(buckets, axis=0) == hashes
        return np.packbits(ways, axis=1, bitorder="little")[:, 0]

    def _free(self, places: _Ints) -> None:
        self._hash[places] = 0
        self._count -= len(places)

    def _bucket_of(self, hashes: _Ints) -> _Ints:
        """The last bits of the hash; one fewer for a bucket that is not split off yet."""
        bits = (self._size - 1).bit_length()
        buckets = hashes & ((1 << bits) - 1)
        return np.where(buckets < self._size, buckets, buckets & ((1 << bits >> 1) - 1))

    def _grow(self, names: int) -> None:
        """Grow step by step to twice the size as names are added."""
        step = 1 << (self._size.bit_length() - 1)
        if self._size == self._most or (step == self._size and self._count <= step * _FILL):
            return
        # Names whose next bit is set move as far up as that bit says.
        count = min(_PACE * names, 2 * step - self._size, self._most - self._size)
        old = slice((self._size - step) * _WAYS, (self._size - step + count) * _WAYS)
        new = slice(self._size * _WAYS, (self._size + count) * _WAYS)
        hashes = self._hash[old]
        moves = hashes & step != 0
        self._offset[new] = self._offset[old]
        self._check[new] = self._check[old]
        self._hash[new] = np.where(moves, hashes, 0)
        self._size += count
        self._hash[old] = np.where(moves, 0, hashes)


def _hashes_of(names: Sequence[str]) -> tuple[_Ints, _Ints]:
    hashes = np.fromiter(map(hash, names), np.int64, len(names))
    hashes[hashes == 0] = 1
    checks = np.fromiter(map(hash, map("\0".__add__, names)), np.int64, len(names))
    return hashes, checks
