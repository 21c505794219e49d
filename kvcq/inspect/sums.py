"""Proves that two sets of rows are equal, in any order, without storing them.

Each row is hashed to 64 bits. A hash selects one of the buckets and is added to it. If the sums are
equal, the bucket has the same rows on both sides; two different ones match with a probability of
2**-64. It uses sums and not exclusive or, since a row that occurs twice would cancel itself. Only
rows of the other buckets are compared one by one.
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
    """Sums of hashes in a power of two of buckets. Can be pickled."""

    def __init__(self, buckets: int) -> None:
        self.count = 0  # rows
        self._sums = np.zeros(buckets, np.uint64)

    def add(self, hashes: Hashes, by: Hashes | None = None) -> None:
        """`by`: other hashes of the rows, which select their buckets."""
        self.count += len(hashes)
        np.add.at(self._sums, self.buckets_of(hashes if by is None else by), hashes)

    def merge(self, other: BucketSums) -> None:
        """Add the other's sums."""
        self.count += other.count
        self._sums += other._sums

    def buckets_of(self, hashes: Hashes) -> Ints:
        return (hashes & np.uint64(len(self._sums) - 1)).view(np.int64)

    def differing(self, other: BucketSums) -> Ints:
        """Buckets in which the two differ, ascending."""
        return np.flatnonzero(self._sums != other._sums)

    def differs_at(self, other: BucketSums, hashes: Hashes) -> npt.NDArray[np.bool_]:
        """Which of the hashes are in a bucket in which the two differ."""
        at = self.buckets_of(hashes)
        return np.asarray(self._sums[at] != other._sums[at], np.bool_)


class RowSums:
    """Expected and actual rows. All calls take hashes of rows. Memory: 1 MiB."""

    def __init__(self) -> None:
        self._wanted = BucketSums(_BUCKETS)
        self._there = BucketSums(_BUCKETS)

    def add_expected(self, hashes: Hashes) -> None:
        self._wanted.add(hashes)

    def add_found(self, hashes: Hashes) -> None:
        self._there.add(hashes)

    @property
    def expected(self) -> int:
        """Number of rows that should be there."""
        return self._wanted.count

    @property
    def differ(self) -> bool:
        return len(self._wanted.differing(self._there)) > 0

    def candidates(self, hashes: Hashes) -> Ints:
        """Indexes of the hashes in buckets whose two sides differ."""
        return np.flatnonzero(self._wanted.differs_at(self._there, hashes))


def hashes_of(rows: Sequence[Hashable]) -> Hashes:
    """A hash of each row by its values; only stable within this process."""
    return np.fromiter(map(hash, rows), np.int64, len(rows)).view(np.uint64)
