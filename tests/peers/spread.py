"""Median and spread of rounds. A figure without its spread is not printed."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


class NoSpreadError(Exception):
    """There are too few rounds to say how much a figure swings."""


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of rounds, the lowest and the highest. Raises NoSpreadError below two rounds."""

    median: float
    low: float
    high: float
    rounds: int

    def __post_init__(self) -> None:
        if self.rounds < 2:
            raise NoSpreadError(
                f"{self.median:,.4g} of {self.rounds} round: no figure is printed without its "
                "spread; measure at least 2 rounds"
            )

    def text(self) -> str:
        """`median (low to high)`, in numbers that count."""
        return f"{short(self.median)} ({short(self.low)} to {short(self.high)})"

    def times(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.rounds)


def spread_of(values: Sequence[float]) -> Spread:
    """Raises NoSpreadError."""
    return Spread(median(values), min(values), max(values), len(values))


def spread_if(values: Iterable[float]) -> Spread | None:
    """None where there are no two rounds."""
    found = list(values)
    return spread_of(found) if len(found) > 1 else None


def short(value: float) -> str:
    """Three digits that count: the swing of a round leaves no use for more."""
    if value == 0:
        return "0"
    if abs(value) < 100:
        return f"{value:.3g}"
    digits = len(str(int(abs(value)))) - 3
    return f"{round(value / 10**digits) * 10**digits:,}"
