"""Rows of the table, and how a rate is taken."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.machine import touch_memory

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: More than a round of any case writes.
_TOUCHED_BYTES = 1 << 30
BODY_BYTES = 1024
BATCH = 128


@dataclass(frozen=True)
class Row:
    """One figure. `probe` is the raw figure beside it, in the same unit."""

    work: str
    value: float
    unit: str
    wanted: str  # in words, as promised
    met: bool
    probe: float | None = None
    probe_of: str = ""

    @property
    def ratio(self) -> float | None:
        return self.value / self.probe if self.probe else None

    def document(self) -> dict[str, Any]:
        return {**asdict(self), "ratio": self.ratio}


@dataclass
class Bench:
    """What a case works with: a directory of its own, and how much to do."""

    directory: Path
    scale: float = 1.0
    rounds: int = 3
    rows: list[Row] = field(default_factory=list)
    skipped: str = ""  # why nothing was measured

    def amount(self, full: int, least: int = 1) -> int:
        """So much of `full` as the scale says."""
        return max(least, round(full * self.scale))

    def fresh(self, name: str) -> Path:
        """An empty directory."""
        path = self.directory / name
        path.mkdir(parents=True)
        return path

    def rate(self, work: Callable[[], float]) -> float:
        """Events a second of a piece of work that says how many there were."""
        touch_memory(self.amount(_TOUCHED_BYTES))
        started_s = perf_counter()
        count = work()
        return count / (perf_counter() - started_s)

    def beside(self, work: str, beside: list[float], alone: list[float], wanted: float) -> None:
        """A row of pairs of turns: messages a second beside something, and without it."""
        ratios = sorted(one / other for one, other in zip(beside, alone, strict=True))
        self.rows.append(
            Row(
                f"{work}; {len(ratios)} pairs of turns, {ratios[0]:.2f} to {ratios[-1]:.2f}",
                median(ratios) * median(alone),
                "messages/s",
                f"{wanted:g} of that without",
                median(ratios) >= wanted,
                median(alone),
                "without it, in turns",
            )
        )

    def in_turn(self, *works: Callable[[], float]) -> list[float]:
        """The median rate of each work; they take turns."""
        found: list[list[float]] = [[] for _ in works]
        for _ in range(self.rounds):
            for rates, work in zip(found, works, strict=True):
                rates.append(self.rate(work))
        return [median(rates) for rates in found]
