"""Formats numbers for people, and the spread of several rounds."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable


def number_text(value: float) -> str:
    """Grouped digits; four significant ones for small numbers."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def short(value: float) -> str:
    """Three significant digits, since rounds vary by more than the fourth."""
    if value == 0:
        return "0"
    if abs(value) < 100:
        return f"{value:.3g}"
    digits = len(str(int(abs(value)))) - 3
    return f"{round(value / 10**digits) * 10**digits:,}"


@dataclass(frozen=True, slots=True)
class Spread:
    """The median of some rounds, with the lowest and the highest."""

    median: float
    low: float
    high: float
    rounds: int

    def text(self) -> str:
        """`median (low to high)`; only the value for a single round."""
        if self.rounds == 1:
            return number_text(self.median)
        return f"{short(self.median)} ({short(self.low)} to {short(self.high)})"

    def times(self, factor: float) -> Spread:
        return Spread(self.median * factor, self.low * factor, self.high * factor, self.rounds)


def spread_of(values: Iterable[float]) -> Spread | None:
    """The spread of these values; None without values."""
    found = list(values)
    return Spread(median(found), min(found), max(found), len(found)) if found else None
