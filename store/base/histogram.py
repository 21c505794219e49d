"""Histograms: counts of values between fixed bounds."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Counted(NamedTuple):
    """A snapshot of a histogram."""

    bounds: tuple[float, ...]
    counts: tuple[int, ...]  # up to each bound, itself included, and one for all above the last
    total: float  # of all values

    @property
    def times(self) -> int:
        return sum(self.counts)


class Histogram:
    """Counts of values between fixed bounds, and their sum.

    Thread: one that adds; any that reads. A reader may see a value in the counts before it is in
    the sum. An `add` takes well under a microsecond.
    """

    __slots__ = ("_bounds", "_counts", "_total")

    def __init__(self, bounds: Sequence[float]) -> None:
        """`bounds` must be ascending."""
        self._bounds = tuple(bounds)
        self._counts = [0] * (len(self._bounds) + 1)
        self._total = 0.0

    def add(self, value: float, times: int = 1) -> None:
        """Count the value `times` times."""
        self._counts[bisect_left(self._bounds, value)] += times
        self._total += value * times

    def read(self) -> Counted:
        return Counted(self._bounds, tuple(self._counts), self._total)
