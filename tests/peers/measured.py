"""A kept document: its samples by what they are of."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.spread import Spread, spread_if
from tests.peers.values import Durability, Sample, sample_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers.works import Work

#: Of the kept documents.
FORMAT = 1


class Measured:
    """The samples of a document by what they are of."""

    def __init__(self, document: dict[str, Any]) -> None:
        if document.get("format") != FORMAT:
            raise ValueError(f"format {document.get('format')!r}, not {FORMAT}")
        self.document = document
        self._samples = [sample_of(one) for one in document["samples"]]
        there = {sample.system for sample in self._samples}
        self.systems = [name for name in document["titles"] if name in there]
        #: Those of them that are no peers: what is possible at all.
        self.limits = [name for name in document.get("limits", ()) if name in there]

    def title(self, system: str) -> str:
        title: str = self.document["titles"][system]
        return title

    def of(self, system: str, durability: Durability, work: Work) -> list[Sample]:
        """Its rounds."""
        key = (system, work.name, durability, work.memory)
        return [
            one
            for one in self._samples
            if (one.system, one.work, one.durability, one.memory) == key
        ]

    def rounds(
        self, system: str, durability: Durability, work: Work, figure: Callable[[Sample], float]
    ) -> dict[int, float]:
        """Its figure by the number of the round, of those in which something was done."""
        samples = self.of(system, durability, work)
        return {one.round: figure(one) for one in samples if one.timed["count"]}

    def memory(self, system: str, durability: Durability, work: Work) -> dict[int, float | None]:
        """By the number of the round, whether memory was cold as it was to be; None: it was not to
        be."""
        samples = self.of(system, durability, work)
        return {one.round: one.more.get("is_cold") for one in samples}

    def ratios(
        self,
        one: tuple[str, Durability, Work],
        other: tuple[str, Durability, Work],
        figure: Callable[[Sample], float],
    ) -> list[float]:
        """The figure of one system over that of another in the same round, of the rounds in which
        memory was alike."""
        figures, of = self.rounds(*one, figure), self.rounds(*other, figure)
        memory, memory_of = self.memory(*one), self.memory(*other)
        return [
            value / of[at]
            for at, value in figures.items()
            if of.get(at) and memory[at] == memory_of[at]
        ]

    def spread(
        self, system: str, durability: Durability, work: Work, figure: Callable[[Sample], float]
    ) -> Spread | None:
        """None where the system has no two rounds of such a work: it stands without a figure."""
        return spread_if(self.rounds(system, durability, work, figure).values())

    def rate(self, system: str, durability: Durability, work: Work) -> Spread | None:
        return self.spread(system, durability, work, lambda sample: sample.rate)
