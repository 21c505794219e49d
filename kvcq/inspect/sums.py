"""Proves that two runs of rows are the same, whatever order they come in, without keeping them.

Each row is hashed (64 bits). The hash names one of 65,536 buckets and is added to it where the row
should be, taken off where it is. A bucket at zero holds the same rows on both sides; of two that
differ one in 2**64 would pass for equal. Only rows of the other buckets need to be looked at one
by one. A row is any tuple that hashes by its values. Memory: 1 MiB.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, TypeVar

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import numpy.typing as npt

    Hashes = npt.NDArray[np.int64]

_BUCKETS = 1 << 16

Row = TypeVar("Row", bound=Hashable)


class RowSums:
    """Sums of what should be in one place less what is."""

    def __init__(self) -> None:
        self._wanted = np.zeros(_BUCKETS, np.int64)
        self._there = np.zeros(_BUCKETS, np.int64)

    def should_be(self, rows: Sequence[Hashable]) -> None:
        hashes = _hashes(rows)
        np.add.at(self._wanted, hashes & (_BUCKETS - 1), hashes)

    def is_there(self, rows: Sequence[Hashable]) -> None:
        self.are_there(_hashes(rows))

    def are_there(self, hashes: Hashes) -> None:
        """As `is_there`, of rows with these hashes."""
        np.add.at(self._there, hashes & (_BUCKETS - 1), hashes)

    def forget_what_should_be(self) -> None:
        """To count it once more, when more is known of it."""
        self._wanted[:] = 0

    @property
    def differ(self) -> bool:
        return not np.array_equal(self._wanted, self._there)

    def suspects(self, rows: Sequence[Row]) -> list[Row]:
        """Those of the rows that are in a bucket whose two sides differ."""
        return [rows[index] for index in self.suspicious(_hashes(rows)).tolist()]

    def suspicious(self, hashes: Hashes) -> Hashes:
        """Indexes of those hashes that are in a bucket whose two sides differ."""
        buckets = hashes & (_BUCKETS - 1)
        return np.flatnonzero(self._wanted[buckets] != self._there[buckets])


def hashes_of(rows: Iterable[Hashable], count: int) -> Hashes:
    """A hash of each of so many rows; the same in this process only."""
    return np.fromiter(map(hash, rows), np.int64, count)


def _hashes(rows: Sequence[Hashable]) -> Hashes:
    return hashes_of(rows, len(rows))
