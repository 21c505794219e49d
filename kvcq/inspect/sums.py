"""Proves that two runs of rows are the same, whatever order they come in, without keeping them.

Each row is hashed (64 bits). A hash names one of some buckets and is added to it. Of equal sums the
bucket holds the same rows on both sides; of two that differ one in 2**64 would pass for equal: sums
and not exclusive or, since a row that stands twice would cancel itself. Only rows of the other
buckets need to be looked at one by one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kvcq.tables import Hashes

    Ints = npt.NDArray[np.int64]

_BUCKETS = 1 << 16


class BucketSums:
    """Sums of hashes in a power of two of buckets. May be pickled."""

    def __init__(self, buckets: int) -> None:
        self.count = 0  # rows
        self._sums = np.zeros(buckets, np.uint64)

    def add(self, hashes: Hashes, by: Hashes | None = None) -> None:
        """`by`: other hashes of the rows that name their buckets."""
        self.count += len(hashes)
        np.add.at(self._sums, self.buckets_of(hashes if by is None else by), hashes)

    def merge(self, other: BucketSums) -> BucketSums:
        """This one, with the other added: that of both."""
        self.count += other.count
        self._sums += other._sums
        return self

    def clear(self) -> None:
        self.count = 0
        self._sums[:] = 0

    def buckets_of(self, hashes: Hashes) -> Ints:
        return (hashes & np.uint64(len(self._sums) - 1)).view(np.int64)

    def differing(self, other: BucketSums) -> Ints:
        """Buckets in which the two do not hold the same, rising."""
        return np.flatnonzero(self._sums != other._sums)

    def differs_at(self, other: BucketSums, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the hashes are in a bucket in which the two do not hold the same."""
        at = self.buckets_of(hashes)
        return np.asarray(self._sums[at] != other._sums[at], np.bool_)


class RowSums:
    """What should be in one place, and what is. All calls take hashes of rows. Memory: 1 MiB."""

    def __init__(self) -> None:
        self._wanted = BucketSums(_BUCKETS)
        self._there = BucketSums(_BUCKETS)

    def should_be(self, hashes: Hashes) -> None:
        self._wanted.add(hashes)

    def are_there(self, hashes: Hashes) -> None:
        self._there.add(hashes)

    def forget_what_should_be(self) -> None:
        """To count it once more, when more is known of it."""
        self._wanted.clear()

    @property
    def differ(self) -> bool:
        return len(self._wanted.differing(self._there)) > 0

    def suspects(self, hashes: Hashes) -> Ints:
        """Indexes of those that are in a bucket whose two sides differ."""
        return np.flatnonzero(self._wanted.differs_at(self._there, hashes))


def hashes_of(rows: Sequence[Hashable]) -> Hashes:
    """A hash of each row by its values; the same in this process only."""
    return np.fromiter(map(hash, rows), np.int64, len(rows)).view(np.uint64)
