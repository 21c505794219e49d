"""One table of many reports: of scenarios, and of `make bench --json`. Figures come from files."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report.document import is_report, read_json
from kvcq_bench.report.goals import judge
from kvcq_bench.report.numbers import number_text

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

#: What stands for a goal where there is none.
_NO_GOAL = ("none", "no bound")


@dataclass(frozen=True)
class Line:
    """A line of the table: one figure with its bound."""

    work: str
    measured: float
    unit: str
    wanted: str
    met: bool
    probe: float | None
    probe_of: str
    command: str  # what measures it again

    @property
    def verdict(self) -> str:
        """`met`, `missed`, or nothing for a figure without a goal."""
        if self.wanted in _NO_GOAL:
            return ""
        return "met" if self.met else "missed"

    def document(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True)
class Summary:
    """Lines of all reports, and a line on each run."""

    lines: list[Line]
    runs: list[str]

    def document(self) -> dict[str, Any]:
        return {"lines": [line.document() for line in self.lines], "runs": self.runs}

    def markdown(self) -> str:
        """For a page of docs."""
        rows = [
            "| work | measured | wanted | | raw probe of the same run | again with |",
            "|---|---|---|---|---|---|",
        ]
        rows += [
            f"| {_cell(line.work)} | {number_text(line.measured)} {line.unit} | {line.wanted} "
            f"| {line.verdict.replace('missed', '**missed**')} | {_probe(line)} "
            f"| `{line.command}` |"
            for line in self.lines
        ]
        return "\n".join([*rows, "", *(f"* {_cell(run)}" for run in self.runs)]) + "\n"


def summarise(paths: Sequence[Path]) -> Summary:
    """Read reports; a directory stands for all that is below it. Raises ScenarioError."""
    lines: list[Line] = []
    runs: list[str] = []
    for path in _files(paths):
        document = read_json(path)
        if is_report(document):
            lines += _of_scenario(document)
            runs.append(_run_text(document))
        elif "rows" in document:
            lines += _of_benchmarks(document)
        else:
            raise ScenarioError(f"{path} is no report of this version")
    return Summary(lines, runs)


def _files(paths: Sequence[Path]) -> list[Path]:
    found: list[Path] = []
    for path in paths:
        found += (
            sorted(path.rglob("*.json")) + sorted(path.rglob("*.json.gz"))
            if path.is_dir()
            else [path]
        )
    if paths and not found:
        raise ScenarioError(f"no report in {', '.join(map(str, paths))}")
    return found


def _scale(document: dict[str, Any]) -> str:
    return "" if document["scale"] == 1 else f" --scale {document['scale']:g}"


def _of_scenario(document: dict[str, Any]) -> list[Line]:
    command = f"kvcq bench run {document['scenario']}{_scale(document)}"
    return [
        Line(one.work, one.value, one.unit, one.wanted, one.met, None, "", command)
        for one in judge(document)
    ]


def _of_benchmarks(document: dict[str, Any]) -> list[Line]:
    return [
        Line(
            row["work"],
            row["value"],
            row["unit"],
            row["wanted"],
            row["met"],
            row["probe"],
            row["probe_of"],
            "make bench",
        )
        for row in document["rows"]
    ]


def _run_text(document: dict[str, Any]) -> str:
    checked = sum(
        document["counters"].get(name, 0)
        for name in ("read_back", "pulled", "cold_read", "light_units_read")
    )
    put = document["counters"].get("put", 0)
    return (
        f"{document['title']}: {document['duration_s']:,.0f} s, {put:,} messages acknowledged, "
        f"{checked:,} reads checked, nothing lost, repeated or out of order; "
        f"{document['target']}, seed {document['seed']}, scale {document['scale']:g}, "
        f"{document['machine']['time']}"
    )


def _probe(line: Line) -> str:
    if line.probe is None:
        return ""
    ratio = f"{line.measured / line.probe:.2f} of {number_text(line.probe)}" if line.probe else "0"
    return f"{ratio}: {_cell(line.probe_of)}"


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def met_text(lines: Sequence[Line]) -> str:
    """How many were met, in words."""
    verdicts = [line.verdict for line in lines if line.verdict]
    if not verdicts:
        return "nothing that was measured has a goal"
    return f"{verdicts.count('met')} of {len(verdicts)} met"
