"""Writes what the kept reports say into docs: the plot of many queues, and the tables of the page.

    python -m docs.performance

The reports are in docs/reports: `benchmarks.json.gz` of `make bench-peers`, `benchmarks-….json.gz`
of some works alone, the others as `kvcq bench run` wrote them, compressed by `gzip -9n`. Only the
newest of each is kept. Run it when one is replaced; a test fails when that was forgotten.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvcq_bench.report import MET, Table, goals, judge, met_text, read_report
from tests.benchmarks.tables import beside_limits, beside_peers, beside_variants

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcq_bench.report import Report

_HERE = Path(__file__).parent
REPORTS = _HERE / "reports"
PLOT = _HERE / "many-queues.svg"
PAGE = _HERE / "performance.md"
#: What the names of reports of works begin with.
_WORKS = "benchmarks"
#: Between these lines, with the name of a part, stands what is generated.
_PART = re.compile(r"(<!-- generated: (.*?) -->\n).*?(<!-- end -->)", re.DOTALL)

_PANEL = 310  # width of one, with its margin
_HEIGHT = 275
_BASE, _TOP = 215, 70  # of the bars
_OURS, _FILES = "#2b6cb0", "#c05621"


class Bar(NamedTuple):
    """Its height, and the label above it."""

    value: float
    label: str
    color: str


#: Below a group of bars its name.
Group = tuple[str, list[Bar]]


def plot() -> str:
    """Memory and start against the number of queues, and disk against queues in files."""
    topics, light, files = (_report(name) for name in ("topics", "light-queues", "file-against-kv"))
    topic_points, light_points = (one.results[-1].course["points"] for one in (topics, light))
    restarted = [point for point in (*topic_points, *light_points) if "ready_s" in point]
    memory: list[Group] = [
        (_count(point["queues"]), [_ours(point["resident_bytes"] / 1e6, ".0f")])
        for point in [topic_points[0], *restarted]
    ]
    ready: list[Group] = [
        (_count(point["queues"]), [_ours(point["ready_s"], ".2f")]) for point in restarted
    ]
    disk: list[Group] = []
    figures = files.results[-1].figures
    for queues in files.conditions["parameters"]["counts"]:
        in_files = figures[f"consumequeue, files, {queues:,} queues"].value
        ours = figures[f"kvcq, rocksdb, {queues:,} queues"].value
        bars = [Bar(in_files, f"{in_files:.0f}", _FILES), _ours(ours, ".1f")]
        disk.append((_count(queues), bars))
    disk_title = f"Disk of queues, MB: {_in(_FILES, 'files')}, {_in(_OURS, 'RocksDB')}"
    panels = [
        _panel(0, "Memory after a restart, MB", "idle queues", memory),
        _panel(1, "Seconds until ready after a stop", "idle queues", ready),
        _panel(2, disk_title, "queues of 5 messages", disk),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * _PANEL} {_HEIGHT}"'
            ' font-family="sans-serif" font-size="12" text-anchor="middle">',
            '<rect width="100%" height="100%" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def page(old: str) -> str:
    """The page with its tables made again."""
    paths = sorted(REPORTS.glob("*.json.gz"))
    works = [read_report(path) for path in paths if path.name.startswith(_WORKS)]
    scenarios = [read_report(path) for path in paths if not path.name.startswith(_WORKS)]
    outcomes = [one for report in (*works, *scenarios) for one in judge(report)]
    missed = goals([one for one in outcomes if one.verdict != MET])
    parts = {
        "goals": f"{met_text(outcomes)}.",
        "conditions": "\n".join(map(_conditions, (*works, *scenarios))),
        "peers": _tables(map(beside_peers, works)),
        "limits": _tables(map(beside_limits, works)),
        "variants": _tables(map(beside_variants, works)) or "The kept run has no such figures.",
        "missed": Table(missed.head[:5], [row[:5] for row in missed.rows]).markdown(),
        "scenarios": goals([one for each in scenarios for one in judge(each)]).markdown(),
        "notes": "\n".join(f"* {note}" for report in works for note in report.notes),
    }
    return _PART.sub(lambda found: f"{found[1]}\n{parts[found[2]]}\n\n{found[3]}", old)


def _tables(tables: Iterable[Table]) -> str:
    """Those that have rows."""
    return "\n\n".join(table.markdown() for table in tables if table.rows)


def _conditions(report: Report) -> str:
    machine, scale = report.machine, report.conditions["scale"]
    return (
        f"* {report.title}: {machine['time'][:10]}, {machine['cores']} cores of "
        f"{machine['processor']}, Python {report.versions['python']}, scale {scale:g}, "
        f"{report.duration_s:,.0f} s."
    )


def _report(name: str) -> Report:
    return read_report(REPORTS / f"{name}.json.gz")


def _ours(value: float, form: str) -> Bar:
    return Bar(value, format(value, form), _OURS)


def _in(color: str, word: str) -> str:
    """A word in the color of its bars."""
    return f'<tspan fill="{color}">{word}</tspan>'


def _count(queues: int) -> str:
    if queues >= 1_000_000:
        return f"{queues / 1e6:g} M"
    return f"{queues // 1000} k" if queues else "0"


def _panel(number: int, title: str, below: str, groups: Sequence[Group]) -> str:
    left, width = number * _PANEL + 25, _PANEL - 45
    highest = max(bar.value for _, bars in groups for bar in bars)
    each = width / len(groups)
    parts = [
        f'<text x="{left + width / 2:.0f}" y="30" font-weight="bold">{title}</text>',
        f'<text x="{left + width / 2:.0f}" y="260" fill="#555">{below}</text>',
        f'<path d="M{left} {_BASE}h{width}" stroke="#555"/>',
    ]
    for place, (name, bars) in enumerate(groups):
        thick = each * 0.7 / len(bars)
        parts.append(f'<text x="{left + each * (place + 0.5):.0f}" y="{_BASE + 20}">{name}</text>')
        for nth, (value, label, color) in enumerate(bars):
            x = left + each * (place + 0.15) + nth * thick
            high = max(1.0, value / highest * (_BASE - _TOP))
            parts += [
                f'<rect x="{x:.1f}" y="{_BASE - high:.1f}" width="{thick:.1f}"'
                f' height="{high:.1f}" fill="{color}"/>',
                f'<text x="{x + thick / 2:.1f}" y="{_BASE - high - 5:.1f}">{label}</text>',
            ]
    return "\n".join(parts)


if __name__ == "__main__":
    PLOT.write_text(plot(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
