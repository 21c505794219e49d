"""A run's document as JSON and as one HTML page; two of them side by side."""

from __future__ import annotations

import html
import json
from typing import TYPE_CHECKING, Any

from kvcq_bench.engine import FORMAT
from kvcq_bench.errors import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem;
       color: #222 }
table { border-collapse: collapse; margin: .5rem 0 1.5rem }
td, th { padding: .2rem .8rem .2rem 0; text-align: left; border-bottom: 1px solid #ddd }
td.n { text-align: right; font-variant-numeric: tabular-nums }
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
        "<p>Every acknowledged message that the scenario reads back was there once, in order, "
        "with the right body.</p>",
        "<h2>Figures</h2>",
        _table(("figure", "value"), document["figures"].items()),
        "<h2>Latencies</h2>",
        _latency_table(document["latencies"]),
    ]
    if document["notes"]:
        notes = "".join(f"<li>{_text(note)}</li>" for note in document["notes"])
        parts.append(f"<h2>Notes</h2><ul>{notes}</ul>")
    parts += _plots(document)
    parts += [
        "<h2>Conditions</h2>",
        _table(
            ("", ""),
            [
                ("scenario", document["scenario"]),
                ("seed", document["seed"]),
                ("scale", document["scale"]),
                ("target", document["target"]),
                *document["machine"].items(),
                *document["versions"].items(),
                *((f"store.{name}", value) for name, value in document["store"].items()),
                *document["parameters"].items(),
            ],
        ),
    ]
    return _page(f"kvcq bench: {document['title']}", parts)


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
    differing = "".join(f"<li>{_text(each)}</li>" for each in differing_conditions(one, other))
    parts = [
        f"<h1>{_text(one['title'])}: two runs</h1>",
        _table(("", one["machine"]["time"], other["machine"]["time"], "ratio"), rows),
        "<h2>What was not the same</h2>",
        f"<ul>{differing}</ul>" if differing else "<p>Nothing that is recorded.</p>",
    ]
    for document in (one, other):
        parts.append(f"<h2>{_text(document['machine']['time'])}</h2>")
        parts += _plots(document)
    return _page(f"kvcq bench: {one['title']}", parts)


def _flat(document: Mapping[str, Any]) -> dict[str, float]:
    found = dict(document["figures"])
    for name, summary in document["latencies"].items():
        for share in ("p50_ms", "p99_ms"):
            if share in summary:
                found[f"{name} {share}"] = summary[share]
    return found


def _plots(document: Mapping[str, Any]) -> list[str]:
    try:
        from kvcq_bench.plots import plots

        return [f"<h2>{_text(title)}</h2>{svg}" for title, svg in plots(document)]
    except ImportError:
        return ["<p>No plots: they need matplotlib, which the extra <code>report</code> has.</p>"]


def _latency_table(latencies: Mapping[str, Mapping[str, float]]) -> str:
    columns = ("count", "mean_ms", "p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "p100_ms")
    rows = [(name, *(one.get(column, "") for column in columns)) for name, one in latencies.items()]
    return _table(("latency", *columns), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    cells = "".join(f"<th>{_text(name)}</th>" for name in head)
    lines = [f"<tr>{cells}</tr>"]
    for row in rows:
        cells = "".join(
            f'<td class="n">{number_text(value)}</td>'
            if isinstance(value, int | float) and not isinstance(value, bool)
            else f"<td>{_text(str(value))}</td>"
            for value in row
        )
        lines.append(f"<tr>{cells}</tr>")
    return f"<table>{''.join(lines)}</table>"


def number_text(value: float) -> str:
    """Grouped digits; four that count for small numbers."""
    return f"{value:,.0f}" if abs(value) >= 1000 or value == int(value) else f"{value:.4g}"


def _text(text: str) -> str:
    return html.escape(text)


def _page(title: str, parts: Sequence[str]) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{_text(title)}'
        f"</title><style>{_STYLE}</style></head><body>{''.join(parts)}</body></html>\n"
    )
