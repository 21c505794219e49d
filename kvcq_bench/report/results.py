"""Measurements: a result for each workload, system and round, and the report with all of them.

A report on disk is JSON, optionally compressed. Samples and points are stored in columns, so that
the names of their thirty or so values are stored once.
"""

from __future__ import annotations

import gzip
import json
import zlib
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report.goal import Goal
from kvcq_bench.report.numbers import Spread, spread_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

#: Version of the documents; others are rejected.
FORMAT = 3
#: The figure that most goals and tables use: work per second.
RATE = "rate"
_IN_COLUMNS = ("samples", "points")

Row = dict[str, float]


class Figure(NamedTuple):
    """One number with its unit."""

    value: float
    unit: str


@dataclass
class Result:
    """The result of one run of a workload by one system."""

    system: str
    work: str
    round: int
    figures: dict[str, Figure]
    #: What a scenario also records: counters, latencies, phases, samples, points, notes.
    course: dict[str, Any] = field(default_factory=dict)

    def document(self) -> dict[str, Any]:
        course = {**self.course}
        course |= {name: _columns(course[name]) for name in _IN_COLUMNS if name in course}
        return {**vars(self), "course": course}

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Result:
        """Inverse of `document`."""
        figures = {name: Figure(*one) for name, one in document["figures"].items()}
        course = dict(document["course"])
        course |= {name: _rows(course[name]) for name in _IN_COLUMNS if name in course}
        return cls(document["system"], document["work"], document["round"], figures, course)


@dataclass
class Report:
    """All results of a run with its conditions and goals."""

    title: str
    machine: dict[str, Any]
    versions: dict[str, str]
    #: What is needed to repeat it: scale, seed, parameters, settings of each system.
    conditions: dict[str, Any]
    #: Name to title, in the order of columns. Ours is first.
    systems: dict[str, str]
    #: Systems among them that do less work, and show what is possible.
    limits: list[str] = field(default_factory=list)
    goals: list[Goal] = field(default_factory=list)
    results: list[Result] = field(default_factory=list)
    #: Notes for the reader, such as what was left out and why.
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    duration_s: float = 0.0

    @property
    def ours(self) -> str:
        return next(iter(self.systems))

    @property
    def works(self) -> list[str]:
        """Workloads in the order in which they were first run."""
        return list(dict.fromkeys(one.work for one in self.results))

    def units(self, work: str, figure: str = RATE) -> str:
        found = (one.figures[figure].unit for one in self.of(work) if figure in one.figures)
        return next(found, "")

    def of(self, work: str, system: str | None = None) -> list[Result]:
        """Results of a workload, by all systems or one."""
        return [one for one in self.results if one.work == work and system in (None, one.system)]

    def rounds(self, system: str, work: str, figure: str = RATE) -> dict[int, float]:
        """A figure by round number."""
        return {
            one.round: one.figures[figure].value
            for one in self.of(work, system)
            if figure in one.figures
        }

    def spread(self, system: str, work: str, figure: str = RATE) -> Spread | None:
        """The spread of a figure over all rounds; None if the system has no such figure."""
        return spread_of(self.rounds(system, work, figure).values())

    def ratio(
        self, one: tuple[str, str], other: tuple[str, str], figure: str = RATE
    ) -> Spread | None:
        """The ratio of two figures, each of a (system, workload), computed round by round: a change
        of the machine's speed affects both."""
        ours, theirs = self.rounds(*one, figure), self.rounds(*other, figure)
        return spread_of(value / theirs[at] for at, value in ours.items() if theirs.get(at))

    def document(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            **vars(self),
            "goals": [asdict(goal) for goal in self.goals],
            "results": [result.document() for result in self.results],
        }


def write_report(report: Report, path: Path) -> None:
    """Write the report, compressed if the name ends in `.gz`. Creates the directory."""
    path.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps(report.document(), separators=(",", ":")).encode()
    # Without a time, so that the same report is the same file.
    path.write_bytes(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data)


def read_report(path: Path) -> Report:
    """Read a report. Raises ScenarioError."""
    try:
        data = path.read_bytes()
        document = json.loads(gzip.decompress(data) if path.suffix == ".gz" else data)
    except (OSError, EOFError, zlib.error, ValueError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.pop("format", None) != FORMAT:
        raise ScenarioError(f"{path} is not a report of this version")
    document["goals"] = [Goal(**goal) for goal in document["goals"]]
    document["results"] = [Result.of(one) for one in document["results"]]
    return Report(**document)


def _columns(rows: Sequence[Row]) -> dict[str, list[float | None]]:
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _rows(columns: Mapping[str, Sequence[float | None]]) -> list[Row]:
    named = [[(name, value) for value in values] for name, values in columns.items()]
    return [
        {name: value for name, value in row if value is not None}
        for row in zip(*named, strict=True)
    ]
