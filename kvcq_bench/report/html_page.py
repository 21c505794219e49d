"""A report as one self-contained HTML page, from the conclusion to the conditions."""

from __future__ import annotations

import html
from typing import TYPE_CHECKING

from kvcq_bench.report import tables
from kvcq_bench.report.judging import judge
from kvcq_bench.report.numbers import number_text
from kvcq_bench.report.plots import NO_PLOTS, plots

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcq_bench.report.results import Report, Result
    from kvcq_bench.report.tables import Table

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; max-width: 100% }
th { vertical-align: bottom }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd;
         font-variant-numeric: tabular-nums }
svg { max-width: 100%; height: auto }
"""


def page(report: Report) -> str:
    """The whole document."""
    title = html.escape(report.title)
    head = f'<meta charset="utf-8"><title>kvcq bench: {title}</title><style>{_STYLE}</style>'
    body = f"<h1>{title}</h1>{''.join(_parts(report))}"
    return f'<!doctype html><html lang="en"><head>{head}</head><body>{body}</body></html>\n'


def _parts(report: Report) -> Iterator[str]:
    machine = report.machine
    yield f"<p><strong>{html.escape(tables.conclusion(report))}</strong></p>"
    yield _paragraph(
        f"{machine['time']}, {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_bytes'] / 1e9:,.0f} GB of memory; {report.duration_s:,.0f} s in all."
    )
    if outcomes := judge(report):
        yield f"<h2>Goals</h2>{_table(tables.goals(outcomes))}"
    for work in report.works:
        yield from _work(work, report.of(work))
    yield f"<h2>Conditions</h2>{_table(tables.Table(('', ''), list(_conditions(report))))}"


def _work(work: str, results: list[Result]) -> Iterator[str]:
    """All rounds of a workload side by side, and the course of the last round."""
    yield f"<h2>{html.escape(work)}</h2>{_table(tables.figures(results))}"
    last = results[-1]
    if not last.course:
        return
    yield f"<h2>Latencies, in milliseconds</h2>{_table(tables.latencies(last))}"
    if last.course["notes"]:
        items = "".join(f"<li>{html.escape(note)}</li>" for note in last.course["notes"])
        yield f"<h2>Notes</h2><ul>{items}</ul>"
    phases = [
        [str(number), number_text(round(phase["at_s"], 1)), phase["name"]]
        for number, phase in enumerate(last.course["phases"], 1)
    ]
    yield "<h2>Phases</h2><p>The plots mark them by their numbers.</p>"
    yield _table(tables.Table(("number", "begins at, s", "phase"), phases))
    drawn = plots(last.course)
    for plot in drawn:
        yield f"<h2>{plot.title}</h2>{_paragraph(plot.explanation)}{plot.svg}"
    if not drawn:
        yield NO_PLOTS


def _paragraph(text: str) -> str:
    return f"<p>{html.escape(text)}</p>" if text else ""


def _table(table: Table) -> str:
    def line(tag: str, cells: Iterable[str]) -> str:
        return "".join(f"<{tag}>{html.escape(cell)}</{tag}>" for cell in cells)

    rows = [line("th", table.head), *(line("td", row) for row in table.rows)]
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in rows)}</table>"


def _conditions(report: Report) -> Iterator[tuple[str, str]]:
    for group in (report.conditions, report.machine, report.versions):
        for name, value in group.items():
            yield name, _value_text(value)


def _value_text(value: object) -> str:
    """A value as text: numbers with grouped digits, lists without brackets."""
    if isinstance(value, dict):
        return "; ".join(f"{name} {_value_text(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ", ".join(map(_value_text, value))
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return str(value)
