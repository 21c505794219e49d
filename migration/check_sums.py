"""Proves that two runs of rows are the same, whatever order they come in, without keeping them.

Each row is hashed with its value (64 bits). The hash names one of 65,536 buckets and is added to
it where the row should be, taken off where it is. A bucket at zero holds the same rows on both
sides; of two that differ one in 2**64 would pass for equal. Only rows of the other buckets need to
be looked at one by one. Memory: 512 KiB.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from kvcq.engine import Pair

_BUCKETS = 1 << 16


class RowSums:
    """Sums of what should be in one family less what is."""

    def __init__(self) -> None:
        self._sums = np.zeros(_BUCKETS, np.int64)

    def should_be(self, rows: Sequence[Pair]) -> None:
        hashes = _hashes(rows)
        np.add.at(self._sums, hashes & (_BUCKETS - 1), hashes)

    def is_there(self, rows: Sequence[Pair]) -> None:
        hashes = _hashes(rows)
        np.subtract.at(self._sums, hashes & (_BUCKETS - 1), hashes)

    @property
    def differ(self) -> bool:
        return bool(self._sums.any())

    def suspects(self, rows: Sequence[Pair]) -> list[Pair]:
        """Those of the rows that are in a bucket whose two sides differ."""
        differs = self._sums[_hashes(rows) & (_BUCKETS - 1)] != 0
        return [rows[index] for index in np.flatnonzero(differs).tolist()]


def _hashes(rows: Sequence[Pair]) -> npt.NDArray[np.int64]:
    return np.fromiter(map(hash, rows), np.int64, len(rows))
