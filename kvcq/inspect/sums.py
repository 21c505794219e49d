"""Proves that two runs of rows are the same, whatever order they come in, without keeping them.

Each row is hashed (64 bits). The hash names one of 65,536 buckets and is added to it where the row
should be, and where it is. Of equal sums the bucket holds the same rows on both sides; of two that
differ one in 2**64 would pass for equal. Only rows of the other buckets need to be looked at one
by one. Memory: 1 MiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Hashable, Sequence

    from kvcq.tables import Hashes

_BUCKETS = 1 << 16


class RowSums:
    """Sums of what should be in one place, and of what is. All calls take hashes of rows."""

    def __init__(self) -> None:
        self._wanted = np.zeros(_BUCKETS, np.uint64)
        self._there = np.zeros(_BUCKETS, np.uint64)

    def should_be(self, hashes: Hashes) -> None:
        np.add.at(self._wanted, _buckets(hashes), hashes)

    def are_there(self, hashes: Hashes) -> None:
        np.add.at(self._there, _buckets(hashes), hashes)

    def forget_what_should_be(self) -> None:
        """To count it once more, when more is known of it."""
        self._wanted[:] = 0

    @property
    def differ(self) -> bool:
        return not np.array_equal(self._wanted, self._there)

    def suspects(self, hashes: Hashes) -> npt.NDArray[np.int64]:
        """Indexes of those that are in a bucket whose two sides differ."""
        buckets = _buckets(hashes)
        return np.flatnonzero(self._wanted[buckets] != self._there[buckets])


def _buckets(hashes: Hashes) -> Hashes:
    return hashes & np.uint64(_BUCKETS - 1)


def hashes_of(rows: Sequence[Hashable]) -> Hashes:
    """A hash of each row by its values; the same in this process only."""
    return np.fromiter(map(hash, rows), np.int64, len(rows)).view(np.uint64)
