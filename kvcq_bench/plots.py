"""Plots of a report as inline SVG. Needs matplotlib: the extra `report`."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from matplotlib.axes import Axes

#: Most lines of one plot; more cannot be told apart.
_LINES = 8


def plots(document: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Title and SVG of each plot that the document has data for. Raises ImportError."""
    samples = document["samples"]
    made = [
        ("Rate over time", _draw(lambda axes: _rates(axes, samples, document["phases"]))),
        ("Latency percentiles", _draw(lambda axes: _latencies(axes, document["latencies"]))),
        ("Memory and disk over time", _draw(lambda axes: _sizes(axes, samples))),
        ("Memory and disk by number of queues", _draw(lambda axes: _points(axes, document))),
        ("RocksDB: levels and stalls", _draw(lambda axes: _rocks(axes, samples))),
    ]
    return [(title, svg) for title, svg in made if svg]


def _draw(paint: Any) -> str:  # noqa: ANN401 - a function of axes that says whether it drew
    # Not pyplot: that keeps figures alive, and picks a window system.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.6), layout="constrained")
    FigureCanvasSVG(figure)
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    if not paint(axes):
        return ""
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize="small")
    text = io.StringIO()
    figure.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _rates(
    axes: Axes, samples: Sequence[Mapping[str, float]], phases: Sequence[Mapping[str, Any]]
) -> bool:
    names = sorted({name for row in samples for name in row if name.startswith("count.")})
    drawn = False
    for name in names[:_LINES]:
        times, rates = [], []
        for before, after in pairwise(samples):
            span_s = after["at_s"] - before["at_s"]
            if span_s > 0:
                times.append(after["at_s"])
                rates.append((after.get(name, 0) - before.get(name, 0)) / span_s)
        if times:
            axes.plot(times, rates, label=name.removeprefix("count."))
            drawn = True
    for phase in phases:
        axes.axvline(phase["at_s"], color="grey", alpha=0.25, linewidth=0.8)
    axes.set_xlabel("s")
    axes.set_ylabel("a second")
    return drawn


def _latencies(axes: Axes, latencies: Mapping[str, Mapping[str, float]]) -> bool:
    shares = ("p50_ms", "p90_ms", "p99_ms", "p99.9_ms", "p100_ms")
    shown = [(name, one) for name, one in latencies.items() if one["count"]][:_LINES]
    for name, one in shown:
        axes.plot(
            [share.removesuffix("_ms") for share in shares],
            [one[share] for share in shares],
            marker="o",
            label=name,
        )
    axes.set_yscale("log")
    axes.set_ylabel("ms")
    return bool(shown)


def _sizes(axes: Axes, samples: Sequence[Mapping[str, float]]) -> bool:
    names = ["resident_bytes"]
    names += sorted({name for row in samples for name in row if name.startswith("disk_")})
    return _lines(axes, samples, "at_s", names, "s", "MB", 1e6)


def _points(axes: Axes, document: Mapping[str, Any]) -> bool:
    points = document["points"]
    if len(points) < 2:
        return False
    names = ["resident_bytes", "disk_kvcq_bytes", "disk_meta_bytes", "disk_consumequeue_bytes"]
    axes.set_xlabel("queues")
    return _lines(axes, points, "queues", names, "queues", "MB", 1e6, marker="o")


def _rocks(axes: Axes, samples: Sequence[Mapping[str, float]]) -> bool:
    wanted = ("l0_files", "running_compactions", "write_stopped")
    names = sorted({name for row in samples for name in row if name.endswith(wanted)})
    return _lines(axes, samples, "at_s", names, "s", "", 1)


def _lines(
    axes: Axes,
    rows: Sequence[Mapping[str, float]],
    by: str,
    names: Sequence[str],
    x_label: str,
    y_label: str,
    unit: float,
    marker: str = "",
) -> bool:
    drawn = 0
    for name in names:
        points = [(row[by], row[name] / unit) for row in rows if name in row]
        if points and any(value for _, value in points) and drawn < _LINES:
            axes.plot(*zip(*points, strict=True), label=name, marker=marker)
            drawn += 1
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
    return bool(drawn)
