"""Writes what the kept reports say into docs: plots, the table of goals, the tables of peers. Of
each goal beside other systems that was missed it prints what bounds it.

    python -m docs.performance

The reports are in docs/reports, each as `kvcq bench` wrote it, compressed by `gzip -9n`, and
docs/peers.json.gz is as `make bench-peers` wrote it; docs/peers-*.json.gz are runs before that one.
Run it when one is replaced. A test tells when it was forgotten.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_bench.report import met_text, read_report, summarise
from tests.peers import report as peers_report
from tests.peers.goals import goals
from tests.peers.measured import Measured
from tests.peers.runs import beside_limits, beside_peers, goals_in_runs
from tests.peers.table import figures_of_plot, markdown

if TYPE_CHECKING:
    from collections.abc import Sequence

_HERE = Path(__file__).parent
REPORTS = _HERE / "reports"
PLOT = _HERE / "many-queues.svg"
PAGE = _HERE / "performance.md"
BEGIN, END = "<!-- generated: python -m docs.performance -->", "<!-- end of what is generated -->"
PEERS_PLOT = _HERE / "peers.svg"
PEERS_BEGIN, PEERS_END = "<!-- generated: make bench-peers -->", "<!-- end of the peers -->"
BESIDE_BEGIN = "<!-- generated: ratios of the run that is kept -->"
BESIDE_END = "<!-- end of the ratios -->"
RUNS_BEGIN, RUNS_END = "<!-- generated: all runs that are kept -->", "<!-- end of the runs -->"

_PANEL = 310  # width of one, with its margin
_HEIGHT = 275
_BASE, _TOP = 215, 70  # of the bars
_OURS, _FILES = "#2b6cb0", "#c05621"


class Bar(NamedTuple):
    """Its height, the label above it, and where it has one its spread."""

    value: float
    label: str
    color: str
    low: float | None = None
    high: float | None = None


#: Below a group of bars its name.
Group = tuple[str, list[Bar]]


def plot() -> str:
    """Memory and start against the number of queues, and disk against queues in files."""
    topics, light, files = (_report(name) for name in ("topics", "light-queues", "file-against-kv"))
    restarted = [point for point in topics["points"] if "ready_s" in point]
    restarted += [point for point in light["points"] if "ready_s" in point]
    memory: list[Group] = [
        (_count(point["queues"]), [_ours(point["resident_bytes"] / 1e6, ".0f")])
        for point in [topics["points"][0], *restarted]
    ]
    ready: list[Group] = [
        (_count(point["queues"]), [_ours(point["ready_s"], ".2f")]) for point in restarted
    ]
    disk: list[Group] = []
    for queues in files["parameters"]["counts"]:
        in_files = files["figures"][f"consumequeue_mb files {queues}"]
        ours = files["figures"][f"kvcq_mb rocksdb {queues}"]
        bars = [Bar(in_files, f"{in_files:.0f}", _FILES), _ours(ours, ".1f")]
        disk.append((_count(queues), bars))
    disk_title = f"Disk of queues, MB: {_in(_FILES, 'files')}, {_in(_OURS, 'RocksDB')}"
    panels = [
        _panel(0, "Memory after a restart, MB", "idle queues", memory),
        _panel(1, "Seconds until ready after a stop", "idle queues", ready),
        _panel(2, disk_title, "queues of 5 messages", disk),
    ]
    return _svg(panels, rows=1)


def peers_plot() -> str:
    """Rates beside those of other systems, with the spread of the rounds."""
    measured = Measured(peers_report.read())
    panels = []
    for number, (title, unit, spreads) in enumerate(figures_of_plot(measured)):
        groups: list[Group] = [
            (name, [Bar(one.median, _short(one.median), color, one.low, one.high)])
            for name, one, color in (
                (name, one, _OURS if is_ours else _FILES) for name, one, is_ours in spreads
            )
        ]
        panels.append(_panel(number, title, unit, groups))
    return _svg(panels, rows=-(-len(panels) // 3))


def _short(rate: float) -> str:
    return f"{rate / 1000:.3g} k" if rate >= 1000 else f"{rate:.0f}"


def _svg(panels: Sequence[str], rows: int) -> str:
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * _PANEL} {rows * _HEIGHT}"'
            ' font-family="sans-serif" font-size="12" text-anchor="middle">',
            '<rect width="100%" height="100%" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def page(old: str) -> str:
    """The page with its table of goals and those of peers made again."""
    made = summarise([REPORTS])
    new = _replaced(old, BEGIN, END, f"{met_text(made.lines)}.\n\n{made.markdown()}")
    new = _replaced(new, PEERS_BEGIN, PEERS_END, _peers())
    runs = [Measured(document) for document in peers_report.kept()]
    new = _replaced(new, BESIDE_BEGIN, BESIDE_END, f"{beside_peers(runs[0])}\n" if runs else "")
    text = f"{goals_in_runs(runs)}\n\n{beside_limits(runs)}\n" if runs else ""
    return _replaced(new, RUNS_BEGIN, RUNS_END, text)


def _replaced(old: str, begin: str, end: str, made: str) -> str:
    before, _, rest = old.partition(begin)
    _, _, after = rest.partition(end)
    return f"{before}{begin}\n\n{made}\n{end}{after}"


def _peers() -> str:
    if not peers_report.REPORT.exists():
        return "No run is kept. `make bench-peers` makes one, and what stands here.\n"
    picture = f"![Rates beside those of other systems]({PEERS_PLOT.name})"
    return f"{picture}\n\n{markdown(peers_report.read())}\n"


def _report(name: str) -> dict[str, Any]:
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
    row, column = divmod(number, 3)
    left, width = column * _PANEL + 25, _PANEL - 45
    highest = max(bar.high or bar.value for _, bars in groups for bar in bars)
    each = width / len(groups)
    parts = [
        f'<text x="{left + width / 2:.0f}" y="30" font-weight="bold">{title}</text>',
        f'<text x="{left + width / 2:.0f}" y="260" fill="#555">{below}</text>',
        f'<path d="M{left} {_BASE}h{width}" stroke="#555"/>',
    ]
    for place, (name, bars) in enumerate(groups):
        thick = each * 0.7 / len(bars)
        parts.append(f'<text x="{left + each * (place + 0.5):.0f}" y="{_BASE + 20}">{name}</text>')
        for nth, (value, label, color, low, top) in enumerate(bars):
            x = left + each * (place + 0.15) + nth * thick
            high = max(1.0, value / highest * (_BASE - _TOP))
            if low is not None and top is not None:
                ends = [_BASE - one / highest * (_BASE - _TOP) for one in (low, top)]
                parts.append(f'<path d="M{x - 3:.1f} {ends[0]:.1f}V{ends[1]:.1f}" stroke="#555"/>')
            parts += [
                f'<rect x="{x:.1f}" y="{_BASE - high:.1f}" width="{thick:.1f}"'
                f' height="{high:.1f}" fill="{color}"/>',
                f'<text x="{x + thick / 2:.1f}" y="{_BASE - high - 5:.1f}">{label}</text>',
            ]
    text = "\n".join(parts)
    return f'<g transform="translate(0 {row * _HEIGHT})">\n{text}\n</g>' if row else text


def missed() -> list[str]:
    """Each goal beside other systems that was missed, with what bounds it."""
    if not peers_report.REPORT.exists():
        return []
    measured = Measured(peers_report.read())
    return [
        f"{goal.verdict}: {goal.name}: {goal.reached}, wanted {goal.wanted}; "
        f"limit: {goal.limit or 'not measured'}".replace("*", "")
        for goal in goals(measured)
        if goal.verdict != "met"
    ]


if __name__ == "__main__":
    PLOT.write_text(plot(), encoding="utf-8")
    if peers_report.REPORT.exists():
        PEERS_PLOT.write_text(peers_plot(), encoding="utf-8")
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
    sys.stdout.writelines(f"{line}\n" for line in missed())
