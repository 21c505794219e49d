"""Tables of a report, for terminals, pages and documents."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kvcq_bench.report.judging import MET, judge
from kvcq_bench.report.numbers import number_text, short
from kvcq_bench.report.results import RATE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq_bench.report.judging import Outcome
    from kvcq_bench.report.numbers import Spread
    from kvcq_bench.report.results import Figure, Report, Result

#: Percentiles of a latency that a table shows.
SHARES = {
    "mean_ms": "mean",
    "p50_ms": "p50",
    "p90_ms": "p90",
    "p99_ms": "p99",
    "p99.9_ms": "p99.9",
    "p100_ms": "max",
}


class Table(NamedTuple):
    """A header, and rows with the same number of cells."""

    head: Sequence[str]
    rows: Sequence[Sequence[str]]

    def markdown(self) -> str:
        lines = [self.head, ["---"] * len(self.head), *self.rows]
        return "\n".join(f"| {' | '.join(_cell(one) for one in line)} |" for line in lines)


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def figures(results: Sequence[Result]) -> Table:
    """Figures of one workload with their units. A column for each result, and, if there are two,
    their ratio."""
    rows = []
    for name in dict.fromkeys(name for result in results for name in result.figures):
        found = [result.figures.get(name) for result in results]
        cells = [number_text(one.value) if one else "" for one in found]
        if len(found) == 2:
            cells.append(_ratio(*found))
        rows.append([name, *cells, next(one.unit for one in found if one)])
    titles = [""] if len(results) == 1 else [str(number) for number in range(1, len(results) + 1)]
    ratio = ["ratio"] if len(results) == 2 else []
    return Table(["figure", *titles, *ratio, "unit"], rows)


def _ratio(one: Figure | None, other: Figure | None) -> str:
    return f"{other.value / one.value:.2f}" if one and other and one.value else ""


def latencies(result: Result) -> Table:
    """All percentiles, in milliseconds."""
    rows = [
        [
            name,
            number_text(one["count"]),
            *(number_text(one[share]) if share in one else "" for share in SHARES),
        ]
        for name, one in result.course.get("latencies", {}).items()
        if one["count"]
    ]
    return Table(["latency, ms", "count", *SHARES.values()], rows)


def rates(report: Report, works: Sequence[str], systems: Sequence[str]) -> Table:
    """A row for each workload, a column for each system with a figure for any of them. A cell of
    another system ends with our speed as a multiple of it."""
    ours = report.ours
    there = [one for one in systems if any(report.spread(one, work) for work in works)]
    rows = []
    for work in works:
        cells = [_rate(report, work, system, ours) for system in there]
        if any(cells):
            rows.append([f"{work}, {report.units(work)}", *(cell or "-" for cell in cells)])
    return Table(["work", *(report.systems[system] for system in there)], rows)


def _rate(report: Report, work: str, system: str, ours: str) -> str:
    found = report.spread(system, work)
    if found is None:
        return ""
    if system == ours:
        return found.text()
    ratio = report.ratio((ours, work), (system, work))
    if report.units(work) == "s":  # the figure is a duration
        ratio = report.ratio((system, work), (ours, work))
    return f"{found.text()}, {short(ratio.median)}x" if ratio else found.text()


def costs(report: Report, works: Sequence[str], systems: Sequence[str]) -> Table:
    """Processor time per unit of each workload, server and client, in microseconds."""

    def cell(system: str, work: str) -> str:
        server, client = (
            report.spread(system, work, f"{side} processor time") for side in ("server", "client")
        )
        return f"{_short(server)} + {_short(client)}" if server and client else "-"

    systems = [one for one in systems if one in report.systems]
    rows = [[work, *(cell(system, work) for system in systems)] for work in works]
    return Table(
        ["processor time, us, server + client", *(report.systems[one] for one in systems)],
        [row for row in rows if any(cell != "-" for cell in row[1:])],
    )


def _short(spread: Spread) -> str:
    return short(spread.median)


def goals(outcomes: Sequence[Outcome]) -> Table:
    """Required and reached values, with the reason for each goal."""
    return Table(
        ["work", "wanted", "reached", "", "nearest limit", "why"],
        [
            [
                _of(one),
                one.wanted,
                one.reached_text,
                one.verdict,
                one.limit,
                one.goal.reason,
            ]
            for one in outcomes
        ],
    )


def _of(outcome: Outcome) -> str:
    goal = outcome.goal
    parts = [
        goal.work,
        *([goal.figure] if goal.figure != RATE else []),
        *filter(None, [goal.system]),
    ]
    return ": ".join(parts)


def met_text(outcomes: Sequence[Outcome]) -> str:
    """How many goals were met, as a phrase."""
    if not outcomes:
        return "no figure that was measured has a goal"
    met = sum(one.verdict == MET for one in outcomes)
    return f"{met} of {len(outcomes)} goals met"


def conclusion(report: Report) -> str:
    """The first sentence about a run."""
    scale = report.conditions.get("scale", 1.0)
    if scale < 1:
        return f"Goals are for scale 1, and this run had scale {scale:g}."
    outcomes = judge(report)
    missed = [one for one in outcomes if one.verdict != MET]
    told = "; ".join(f"{_of(one)} ({one.reached_text}, wanted {one.wanted})" for one in missed)
    text = met_text(outcomes)
    return f"{text[0].upper()}{text[1:]}{'. Missed: ' if missed else ''}{told}."
