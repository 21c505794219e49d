"""A digest of many rows of the key index, independent of their order; see unit_digest.py.

A row is known by its whole key: topic, message key, store time, place in the log. Its value, the
expiry stamp, follows from the time; one that does not is part of the hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.tables import expiry_stamps
from migration.columnar import gather, gather_ints
from migration.spark.verify.unit_digest import BUCKETS, bucket_of, mixed

if TYPE_CHECKING:
    import numpy.typing as npt

    from migration.columnar import Bools, Ints, Strings
    from migration.spark.verify.unit_digest import Hashes

_WORD = 8
#: What a key has besides its texts: no key is shorter than a word.
_MIN_KEY = 28


class KeyRows(NamedTuple):
    """Keys of index rows; `stamps` None: as they should be."""

    keys: Strings
    stamps: Ints | None = None

    @property
    def places(self) -> Ints:
        """Physical offset at the end of each key."""
        return gather_ints(self.keys.data, ">i8", self.keys.ends - 8)

    @property
    def proper_stamps(self) -> Ints:
        """The stamps that follow from the times in the keys."""
        return expiry_stamps(gather_ints(self.keys.data, ">i8", self.keys.ends - 16))

    def where(self, mask: Bools) -> KeyRows:
        return KeyRows(self.keys[mask], None if self.stamps is None else self.stamps[mask])


def key_row_hashes(rows: KeyRows) -> Hashes:
    """A hash of each whole key; the same in every process."""
    keys = rows.keys
    lengths = keys.lengths
    if not len(lengths):
        return np.empty(0, dtype=np.uint64)
    words = -(-lengths // _WORD)
    firsts = np.cumsum(words) - words
    number = np.arange(int(words.sum())) - np.repeat(firsts, words)
    # The last word of a key overlaps the one before; the length makes up for that.
    at = np.minimum(
        np.repeat(keys.starts, words) + _WORD * number, np.repeat(keys.ends - _WORD, words)
    )
    values = gather(keys.data, "V8", at).view(np.uint64)
    hashes = np.add.reduceat(mixed(values ^ mixed(number.astype(np.uint64))), firsts)
    return mixed(hashes ^ mixed(lengths.astype(np.uint64)))


class KeyDigest:
    """Counts and sums of BUCKETS buckets. Adding two of disjoint sets gives that of both."""

    def __init__(self) -> None:
        self.table: Hashes = np.zeros((3, BUCKETS), dtype=np.uint64)

    @property
    def count(self) -> int:
        return int(self.table[0].sum())

    def add(self, rows: KeyRows) -> None:
        keys = key_row_hashes(rows)
        hashes = keys
        if rows.stamps is not None:
            wrong = (rows.stamps - rows.proper_stamps).view(np.uint64)
            hashes = np.where(wrong == 0, keys, keys ^ mixed(wrong))
        buckets = bucket_of(keys)
        np.add.at(self.table[0], buckets, np.uint64(1))
        np.add.at(self.table[1], buckets, hashes)
        np.add.at(self.table[2], buckets, mixed(hashes))

    def merge(self, other: KeyDigest) -> KeyDigest:
        """This one, with the other added."""
        self.table += other.table
        return self

    def differing(self, other: KeyDigest) -> npt.NDArray[np.int64]:
        """Buckets in which the two sets are not the same."""
        return np.flatnonzero((self.table != other.table).any(axis=0))


assert _MIN_KEY > _WORD
