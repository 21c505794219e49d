"""A run's document as JSON and as one HTML page; two of them side by side."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any, TypeGuard

from kvcq_bench.engine import FORMAT
from kvcq_bench.errors import ScenarioError
from kvcq_bench.goals import judge
from kvcq_bench.numbers import number_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_NO_PLOTS = "<p>No plots: they need matplotlib, which the extra <code>report</code> has.</p>"
_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 64rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem; max-width: 100% }
th { vertical-align: bottom }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.met { color: #17692f } .missed { color: #b3261e; font-weight: 600 }
.pair { display: grid; gap: 0 1rem; align-items: end }
.pair p { margin: 0; color: #555 }
.wide { max-width: 120rem }
@media (min-width: 100rem) { .pair { grid-template-columns: 1fr 1fr } }
svg { max-width: 100%; height: auto }
"""


def write_report(document: Mapping[str, Any], stem: Path) -> tuple[Path, Path]:
    """`stem`.json and `stem`.html; returns both paths."""
    stem.parent.mkdir(parents=True, exist_ok=True)
    json_path, html_path = stem.with_suffix(".json"), stem.with_suffix(".html")
    json_path.write_text(json.dumps(document, indent=1), encoding="utf-8")
    html_path.write_text(page(document), encoding="utf-8")
    return json_path, html_path


def read_report(path: Path) -> dict[str, Any]:
    """A document that `write_report` wrote. Raises ScenarioError."""
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ScenarioError(f"{path} cannot be read: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise ScenarioError(f"{path} is no report of this version")
    return document


def page(document: Mapping[str, Any]) -> str:
    """One HTML page, with nothing outside of it."""
    parts = [
        f"<h1>{_text(document['title'])}</h1>",
        f"<p>{_text(_in_one_line(document))}</p>",
        "<p>Every acknowledged message that the scenario reads back was there once, in order, "
        "with the right body.</p>",
        *_goals(document),
        "<h2>Figures</h2>",
        _table(("figure", "value"), document["figures"].items()),
        "<h2>Latencies, in milliseconds</h2>",
        _latency_table(document["latencies"]),
    ]
    if document["notes"]:
        notes = "".join(f"<li>{_text(note)}</li>" for note in document["notes"])
        parts.append(f"<h2>Notes</h2><ul>{notes}</ul>")
    parts += _plots(document)
    phases = enumerate(document["phases"], 1)
    parts += [
        "<h2>Phases</h2>",
        _table(
            ("number", "begins at, s", "phase"),
            [(number, round(phase["at_s"], 1), phase["name"]) for number, phase in phases],
        ),
        "<h2>Conditions</h2>",
        _table(
            ("condition", "value"),
            [
                (name, _value_text(value))
                for name, value in (
                    ("scenario", document["scenario"]),
                    ("seed", document["seed"]),
                    ("scale", document["scale"]),
                    ("target", document["target"]),
                    *((f"machine.{name}", one) for name, one in document["machine"].items()),
                    *((f"version.{name}", one) for name, one in document["versions"].items()),
                    *((f"store.{name}", one) for name, one in document["store"].items()),
                    *((f"parameter.{name}", one) for name, one in document["parameters"].items()),
                )
            ],
        ),
    ]
    return _page(f"kvcq bench: {document['title']}", parts)


def _in_one_line(document: Mapping[str, Any]) -> str:
    machine = document["machine"]
    return (
        f"{machine['time']}, on {machine['cores']} cores of {machine['processor']}, "
        f"{machine['memory_bytes'] / 1e9:,.0f} GB of memory; {document['target']}; "
        f"seed {document['seed']}, scale {document['scale']:g}; "
        f"{document['duration_s']:,.0f} s in all."
    )


def _goals(document: Mapping[str, Any]) -> list[str]:
    judged = judge(document)
    if not judged:
        return []
    rows = [
        (one.work, one.value, one.unit, one.wanted, "met" if one.met else "missed")
        for one in judged
    ]
    parts = ["<h2>Goals</h2>", _table(("work", "measured", "", "wanted", "met or missed"), rows)]
    if document["scale"] != 1:
        scale = f"{document['scale']:g}"
        parts.append(f"<p>The goals are for scale 1; this run had scale {scale}.</p>")
    return parts


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


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Name and both values of all figures and latencies that two documents share.

    Raises ScenarioError when they are of different scenarios.
    """
    if one["scenario"] != other["scenario"]:
        raise ScenarioError(f"{one['scenario']!r} and {other['scenario']!r} cannot be compared")
    left, right = _flat(one), _flat(other)
    return [(name, left[name], right[name]) for name in left if name in right]


def differing_conditions(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What was not the same, in words: figures that differ may come from it."""
    found = []
    for table in ("parameters", "store", "versions", "machine"):
        names = sorted({*one[table], *other[table]} - {"time", "load_average"})
        found += [
            f"{table}.{name}: {one[table].get(name)} / {other[table].get(name)}"
            for name in names
            if one[table].get(name) != other[table].get(name)
        ]
    found += [
        f"{name}: {one[name]} / {other[name]}"
        for name in ("seed", "scale", "target")
        if one[name] != other[name]
    ]
    return found


def comparison_page(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Two reports side by side."""
    rows = [
        (name, left, right, f"{right / left:.2f}" if left else "")
        for name, left, right in compare(one, other)
    ]
    times = (one["machine"]["time"], other["machine"]["time"])
    left_plots, right_plots = dict(_plot_pairs(one)), dict(_plot_pairs(other))
    differing = "".join(f"<li>{_text(each)}</li>" for each in differing_conditions(one, other))
    parts = [
        f"<h1>{_text(one['title'])}: two runs</h1>",
        "<p>The ratio is the second value over the first.</p>",
        _table(("figure", *times, "ratio"), rows),
        "<h2>What was not the same</h2>",
        f"<ul>{differing}</ul>" if differing else "<p>Nothing that is recorded.</p>",
    ]
    for title in [*left_plots, *(name for name in right_plots if name not in left_plots)]:
        cells = "".join(
            f"<div><p>{_text(time)}</p>{drawn.get(title, '<p>No such plot.</p>')}</div>"
            for time, drawn in zip(times, (left_plots, right_plots), strict=True)
        )
        parts.append(f'<h2>{_text(title)}</h2><div class="pair">{cells}</div>')
    if not left_plots and not right_plots:
        parts.append(_NO_PLOTS)
    return _page(f"kvcq bench: {one['title']}", parts, "wide")


def _flat(document: Mapping[str, Any]) -> dict[str, float]:
    found = dict(document["figures"])
    for name, summary in document["latencies"].items():
        for share in ("p50_ms", "p99_ms"):
            if share in summary:
                found[f"{name} {share}"] = summary[share]
    return found


def _plot_pairs(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Title and SVG of each plot; none without matplotlib."""
    from kvcq_bench.plots import plots

    try:
        return plots(document)
    except ImportError:
        return []


def _plots(document: Mapping[str, Any]) -> list[str]:
    pairs = _plot_pairs(document)
    return [f"<h2>{_text(title)}</h2>{svg}" for title, svg in pairs] if pairs else [_NO_PLOTS]


def _latency_table(latencies: Mapping[str, Mapping[str, float]]) -> str:
    columns = ("count", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "p100_ms")
    rows = [
        (name, *(one.get(column, "") for column in columns))
        for name, one in latencies.items()
        if one["count"]
    ]
    return _table(("latency", "count", "mean", "p50", "p90", "p99", "p99.9", "max"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    kept = list(rows)
    # A column of numbers has its name at its right side too.
    numeric = [any(_is_number(row[at]) for row in kept) for at in range(len(head))]
    cells = "".join(
        f'<th class="n">{_text(name)}</th>' if right else f"<th>{_text(name)}</th>"
        for name, right in zip(head, numeric, strict=True)
    )
    lines = [f"<tr>{cells}</tr>"]
    for row in kept:
        cells = "".join(map(_table_cell, row))
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def _is_number(value: object) -> TypeGuard[float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _table_cell(value: object) -> str:
    if _is_number(value):
        return f'<td class="n">{number_text(value)}</td>'
    text = _text(str(value))
    return f'<td class="{text}">{text}</td>' if text in ("met", "missed") else f"<td>{text}</td>"


def _text(text: str) -> str:
    return html.escape(text)


def _page(title: str, parts: Sequence[str], kind: str = "") -> str:
    head = f'<meta charset="utf-8"><title>{_text(title)}</title><style>{_STYLE}</style>'
    body = f'<body class="{kind}">{"".join(parts)}</body>'
    return f'<!doctype html><html lang="en"><head>{head}</head>{body}</html>\n'
