"""A run's document as one HTML page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_bench.report.figures import tables
from kvcq_bench.report.goals import judge
from kvcq_bench.report.markup import items, table, text, whole_page
from kvcq_bench.report.numbers import number_text
from kvcq_bench.report.plots import NO_PLOTS, plots

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from kvcq_bench.report.figures import Table
    from kvcq_bench.report.goals import Judged

#: With more cases than this, each has a row instead of a column.
_MOST_COLUMNS = 6
_SHARES = {
    "mean_ms": "mean",
    "p50_ms": "p50",
    "p90_ms": "p90",
    "p99_ms": "p99",
    "p99.9_ms": "p99.9",
    "p100_ms": "max",
}


def run_page(document: Mapping[str, Any]) -> str:
    """From the conclusion to the conditions."""
    judged = judge(document)
    parts = [
        f"<h1>{text(document['title'])}</h1>",
        f"<p><strong>{text(_conclusion(document, judged))}</strong></p>",
        f"<p>{text(_in_one_line(document))}</p>",
    ]
    if judged:
        rows = [
            (one.work, one.value, one.unit, one.wanted, "met" if one.met else "missed")
            for one in judged
        ]
        head = ("work", "measured", "", "wanted", "met or missed")
        parts += ["<h2>Goals</h2>", table(head, rows)]
    parts += ["<h2>Figures</h2>", *map(_figures, tables(document["figures"]))]
    parts += ["<h2>Latencies, in milliseconds</h2>", _latencies(document["latencies"])]
    if document["notes"]:
        parts += ["<h2>Notes</h2>", items(document["notes"])]
    phases = [
        (number, round(phase["at_s"], 1), phase["name"])
        for number, phase in enumerate(document["phases"], 1)
    ]
    parts += ["<h2>Phases</h2>", "<p>The plots mark them by their numbers.</p>"]
    parts.append(table(("number", "begins at, s", "phase"), phases))
    drawn = plots(document)
    parts += [
        f"<h2>{text(plot.title)}</h2><p>{text(plot.explanation)}</p>{plot.svg}" for plot in drawn
    ] or [NO_PLOTS]
    parts += ["<h2>Conditions</h2>", table(("condition", "value"), _conditions(document))]
    return whole_page(f"kvcq bench: {document['title']}", parts)


def _conclusion(document: Mapping[str, Any], judged: Sequence[Judged]) -> str:
    kept = "No acknowledged message that was read back was lost, repeated, out of order or changed"
    if document["scale"] < 1:
        return f"{kept}; goals are for scale 1, and this run had scale {document['scale']:g}."
    if not judged:
        return f"{kept}."
    missed = [one for one in judged if not one.met]
    if not missed:
        return f"{kept}, and all goals are met."
    told = "; ".join(f"{one.work} ({_with_unit(one)}, wanted {one.wanted})" for one in missed)
    return f"{kept}. Missed, of {len(judged)} goals: {told}."


def _with_unit(one: Judged) -> str:
    return f"{number_text(one.value)} {one.unit}".rstrip()


def _in_one_line(document: Mapping[str, Any]) -> str:
    machine = document["machine"]
    return (
        f"{machine['time']}, on {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_bytes'] / 1e9:,.0f} GB of memory; {document['target']}; "
        f"seed {document['seed']}, scale {document['scale']:g}; "
        f"{document['duration_s']:,.0f} s in all."
    )


def _figures(one: Table) -> str:
    if len(one.cases) <= _MOST_COLUMNS:
        return table(("", *one.cases), [(what, *values) for what, values in one.rows.items()])
    columns = zip(*one.rows.values(), strict=True)
    by_case = [(case, *values) for case, values in zip(one.cases, columns, strict=True)]
    return table(("", *one.rows), by_case)


def _latencies(latencies: Mapping[str, Mapping[str, float]]) -> str:
    rows = [
        (name, one["count"], *(one.get(share, "") for share in _SHARES))
        for name, one in latencies.items()
        if one["count"]
    ]
    return table(("", "count", *_SHARES.values()), rows)


def _conditions(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    single = [(name, document[name]) for name in ("scenario", "seed", "scale", "target")]
    groups = {
        "machine": "machine",
        "version": "versions",
        "store": "store",
        "parameter": "parameters",
    }
    several = [
        (f"{group}.{name}", one)
        for group, key in groups.items()
        for name, one in document[key].items()
    ]
    return [(name, _value_text(value)) for name, value in [*single, *several]]


def _value_text(value: object) -> str:
    """Of a condition: numbers with grouped digits, lists without brackets."""
    if isinstance(value, dict):
        return ", ".join(f"{name} {_value_text(one)}" for name, one in value.items())
    if isinstance(value, list):
        return ("; " if any(isinstance(one, dict) for one in value) else ", ").join(
            map(_value_text, value)
        )
    if isinstance(value, int | float) and not isinstance(value, bool):
        return number_text(value)
    return str(value)
