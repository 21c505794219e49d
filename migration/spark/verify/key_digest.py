"""A digest of many rows of the key index, independent of their order; see unit_digest.py.

A row is known by its whole key: topic, message key, store time, place in the log. Its value, the
expiry stamp, follows from the time; one that does not is part of the hash.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from migration.columnar import expiry_stamps, gather, gather_ints
from migration.spark.verify.unit_digest import BUCKETS, bucket_of, mixed

if TYPE_CHECKING:
    import numpy.typing as npt
    import pyarrow as pa

    from migration.columnar import Bytes, Ints
    from migration.spark.verify.unit_digest import Hashes

_WORD = 8
#: What a key has besides its texts: no key is shorter than a word.
_MIN_KEY = 28


class KeyRows(NamedTuple):
    """Keys of index rows, one after the other in `data`; `stamps` None: as they should be."""

    data: Bytes
    starts: Ints
    ends: Ints
    stamps: Ints | None = None

    @property
    def places(self) -> Ints:
        """Physical offset at the end of each key."""
        return gather_ints(self.data, ">i8", self.ends - 8)

    @property
    def proper_stamps(self) -> Ints:
        """The stamps that follow from the times in the keys."""
        return expiry_stamps(gather_ints(self.data, ">i8", self.ends - 16))

    def where(self, mask: npt.NDArray[np.bool_]) -> KeyRows:
        stamps = None if self.stamps is None else self.stamps[mask]
        return KeyRows(self.data, self.starts[mask], self.ends[mask], stamps)

    def whole(self) -> list[bytes]:
        """Each key."""
        data = self.data.tobytes()
        pairs = zip(self.starts.tolist(), self.ends.tolist(), strict=True)
        return [data[start:end] for start, end in pairs]


def key_rows(keys: pa.BinaryArray) -> KeyRows:
    """Rows derived from the log, without copying them."""
    if not len(keys):
        none = np.empty(0, dtype=np.int64)
        return KeyRows(np.empty(0, dtype=np.uint8), none, none)
    small = np.frombuffer(keys.buffers()[1], dtype=np.int32)
    bounds = small[keys.offset : keys.offset + len(keys) + 1].astype(np.int64)
    return KeyRows(np.frombuffer(keys.buffers()[2], dtype=np.uint8), bounds[:-1], bounds[1:])


def key_row_hashes(rows: KeyRows) -> Hashes:
    """A hash of each whole key; the same in every process."""
    lengths = rows.ends - rows.starts
    if not len(lengths):
        return np.empty(0, dtype=np.uint64)
    words = -(-lengths // _WORD)
    firsts = np.cumsum(words) - words
    number = np.arange(int(words.sum())) - np.repeat(firsts, words)
    # The last word of a key overlaps the one before; the length makes up for that.
    at = np.minimum(
        np.repeat(rows.starts, words) + _WORD * number, np.repeat(rows.ends - _WORD, words)
    )
    values = gather(rows.data, "V8", at).view(np.uint64)
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
