"""Two reports of one scenario, side by side."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import ScenarioError
from kvcq_bench.report.figures import with_latencies
from kvcq_bench.report.markup import items, table, text, whole_page
from kvcq_bench.report.plots import NO_PLOTS, plots

if TYPE_CHECKING:
    from collections.abc import Mapping


def compare(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, float, float]]:
    """Name and both values of all figures and latencies that two documents share.

    Raises ScenarioError when they are of different scenarios.
    """
    if one["scenario"] != other["scenario"]:
        raise ScenarioError(f"{one['scenario']!r} and {other['scenario']!r} cannot be compared")
    left, right = with_latencies(one), with_latencies(other)
    return [(name, left[name], right[name]) for name in left if name in right]


def differing_conditions(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    """What was not the same, in words: figures that differ may come from it."""
    found = []
    for group in ("parameters", "store", "versions", "machine"):
        names = sorted({*one[group], *other[group]} - {"time", "load_average"})
        found += [
            f"{group}.{name}: {one[group].get(name)} / {other[group].get(name)}"
            for name in names
            if one[group].get(name) != other[group].get(name)
        ]
    found += [
        f"{name}: {one[name]} / {other[name]}"
        for name in ("seed", "scale", "target")
        if one[name] != other[name]
    ]
    return found


def comparison_page(one: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Both as one HTML page."""
    rows = [
        (name, left, right, f"{right / left:.2f}" if left else "")
        for name, left, right in compare(one, other)
    ]
    times = (one["machine"]["time"], other["machine"]["time"])
    drawn = [{plot.title: plot.svg for plot in plots(document)} for document in (one, other)]
    differing = differing_conditions(one, other)
    parts = [
        f"<h1>{text(one['title'])}: two runs</h1>",
        "<p>The ratio is the second value over the first.</p>",
        table(("figure", *times, "ratio"), rows),
        "<h2>What was not the same</h2>",
        items(differing) if differing else "<p>Nothing that is recorded.</p>",
    ]
    for title in dict.fromkeys([*drawn[0], *drawn[1]]):
        cells = "".join(
            f"<div><p>{text(time)}</p>{made.get(title, '<p>No such plot.</p>')}</div>"
            for time, made in zip(times, drawn, strict=True)
        )
        parts.append(f'<h2>{text(title)}</h2><div class="pair">{cells}</div>')
    if not any(drawn):
        parts.append(NO_PLOTS)
    return whole_page(f"kvcq bench: {one['title']}", parts, "wide")
