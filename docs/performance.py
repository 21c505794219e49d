"""Writes what the kept reports say into docs: the plot of many queues, and the table of goals.

    python -m docs.performance

The reports are in docs/reports, each as `kvcq bench` wrote it, compressed by `gzip -9n`. Run it
when one is replaced. A test tells when it was forgotten.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from kvcq_bench.report import met_text, read_report, summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

REPORTS = Path("docs/reports")
PLOT = Path("docs/many-queues.svg")
PAGE = Path("docs/performance.md")
BEGIN, END = "<!-- generated: python -m docs.performance -->", "<!-- end of what is generated -->"

_PANEL = 310  # width of one, with its margin
_BASE, _TOP = 215, 70  # of the bars
_OURS, _FILES = "#2b6cb0", "#c05621"

#: Below a group of bars, its bars: height, label above, color.
Group = tuple[str, list[tuple[float, str, str]]]


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
        bars = [(in_files, f"{in_files:.0f}", _FILES), _ours(ours, ".1f")]
        disk.append((_count(queues), bars))
    disk_title = f"Disk of queues, MB: {_in(_FILES, 'files')}, {_in(_OURS, 'RocksDB')}"
    panels = [
        _panel(0, "Memory after a restart, MB", "idle queues", memory),
        _panel(1, "Seconds until ready after a stop", "idle queues", ready),
        _panel(2, disk_title, "queues of 5 messages", disk),
    ]
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {3 * _PANEL} 275"'
            ' font-family="sans-serif" font-size="12" text-anchor="middle">',
            '<rect width="100%" height="100%" fill="white"/>',
            *panels,
            "</svg>\n",
        ]
    )


def page(old: str) -> str:
    """The page with its table of goals made again."""
    before, _, rest = old.partition(BEGIN)
    _, _, after = rest.partition(END)
    made = summarise([REPORTS])
    return f"{before}{BEGIN}\n\n{met_text(made.lines)}.\n\n{made.markdown()}\n{END}{after}"


def _report(name: str) -> dict[str, Any]:
    return read_report(REPORTS / f"{name}.json.gz")


def _ours(value: float, form: str) -> tuple[float, str, str]:
    return value, format(value, form), _OURS


def _in(color: str, word: str) -> str:
    """A word in the color of its bars."""
    return f'<tspan fill="{color}">{word}</tspan>'


def _count(queues: int) -> str:
    if queues >= 1_000_000:
        return f"{queues / 1e6:g} M"
    return f"{queues // 1000} k" if queues else "0"


def _panel(number: int, title: str, below: str, groups: Sequence[Group]) -> str:
    left, width = number * _PANEL + 25, _PANEL - 45
    highest = max(bar[0] for _, bars in groups for bar in bars)
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
