"""Plots of a report as inline SVG. Needs matplotlib: the extra `report`."""

from __future__ import annotations

import io
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes

_INCHES = 3.8  # height of a plot
#: Most lines of one plot; more cannot be told apart.
_LINES = 8
#: Files that plots leave out: those that are always small, and the log, which dwarfs the others.
_NOT_SHOWN = ("abort", "checkpoint", "checkpoint.tmp", "lock", "store.json", "migration.json")
_MEMORY = ("resident_bytes", "private_bytes")
_SHARES = {"p50_ms": "p50", "p90_ms": "p90", "p99_ms": "p99", "p99.9_ms": "p99.9", "p100_ms": "max"}
_OF_QUEUES = ("disk_kvcq_bytes", "disk_consumequeue_bytes")

NO_PLOTS = "<p>No plots: they need matplotlib, which the extra <code>report</code> has.</p>"
_MAPPED = (
    "Resident memory has the pages of the mapped log that are in memory just now, which the "
    "kernel takes back when it needs them. Private memory is the process's own."
)


class Plot(NamedTuple):
    """One plot, with notes for its reader."""

    title: str
    explanation: str
    svg: str


def plots(course: Mapping[str, Any]) -> list[Plot]:
    """The plots for which the course of a run has data; none without matplotlib."""
    try:
        import matplotlib  # noqa: F401
    except ImportError:
        return []
    samples, phases = course["samples"], course["phases"]
    small = {f"disk_{name}_bytes" for name in (*_NOT_SHOWN, "commitlog")}
    disk = sorted({name for row in samples for name in row if name.startswith("disk_")} - small)
    levels = _named(samples, ("l0_files", "running_compactions", "write_stopped"))
    sizes = _named(samples, ("sst_bytes", "memtable_bytes", "pending_compaction_bytes"))

    def over_time(names: Sequence[str], y_label: str, unit: float) -> str:
        def paint(axes: Axes) -> bool:
            drawn = _lines(axes, samples, "at_s", names, unit)
            _label(axes, "seconds since the begin", y_label)
            _mark(axes, phases)
            return drawn

        return _figure([paint], _INCHES)

    made = [
        Plot("Rate over time", "", _rates(samples, phases)),
        Plot(
            "Latency percentiles",
            "",
            _figure([lambda axes: _latencies(axes, course["latencies"])], _INCHES),
        ),
        Plot("Memory over time", _MAPPED, over_time(_MEMORY, "MB", 1e6)),
        Plot("Disk over time", "Without the log.", over_time(disk, "MB", 1e6)),
        Plot(
            "Memory and disk by number of queues",
            _MAPPED,
            _figure([lambda axes: _points(axes, course["points"])], _INCHES),
        ),
        Plot("RocksDB: levels and stalls", "", over_time(levels, "files, or compactions", 1)),
        Plot("RocksDB: sizes", "", over_time(sizes, "MB", 1e6)),
    ]
    return [plot for plot in made if plot.svg]


def _figure(paints: Sequence[Callable[[Axes], bool]], inches: float) -> str:
    """Plots one below the other over the same time axis, each `inches` high; "" if none has
    data."""
    # Not pyplot, which keeps figures in memory and selects a window system.
    from matplotlib.backends.backend_svg import FigureCanvasSVG
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10.5, inches * len(paints)), layout="constrained")
    FigureCanvasSVG(figure)
    several = figure.subplots(len(paints), 1, sharex=True, squeeze=False)[:, 0]
    for axes, paint in zip(several, paints, strict=True):
        axes.grid(visible=True, alpha=0.3)
        if not paint(axes):
            return ""
    if any(axes.get_legend_handles_labels()[0] for axes in several):
        # Beside the plot, where it hides no lines.
        figure.legend(loc="outside right upper", fontsize="small", frameon=False)
    text = io.StringIO()
    figure.savefig(text, format="svg")
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _rates(samples: Sequence[Mapping[str, float]], phases: Sequence[Mapping[str, Any]]) -> str:
    """Plot each kind of event on its own scale, because there may be hundreds of queries and a
    hundred thousand puts."""
    names = sorted({name for row in samples for name in row if name.startswith("count.")})[:_LINES]

    def rate(name: str) -> Callable[[Axes], bool]:
        def paint(axes: Axes) -> bool:
            times, rates = [], []
            for before, after in pairwise([{"at_s": 0.0}, *samples]):
                span_s = after["at_s"] - before["at_s"]
                if span_s > 0:
                    times.append(after["at_s"])
                    rates.append((after.get(name, 0) - before.get(name, 0)) / span_s)
            axes.plot(times, rates, marker=".", markersize=3)
            axes.set_ylim(bottom=0)
            axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
            words = name.removeprefix("count.").replace("_", " ")
            is_last = name == names[-1]
            _label(axes, "seconds since the begin" if is_last else "", f"{words}/s")
            _mark(axes, phases)
            return bool(times)

        return paint

    return _figure([rate(name) for name in names], 2.2) if names else ""


def _mark(axes: Axes, phases: Sequence[Mapping[str, Any]]) -> None:
    """A thin line and a number where each phase begins. The page has a table of their names."""
    low, high = axes.get_xlim()
    free = low  # from here on a number does not overlap the previous one
    for number, phase in enumerate(phases, 1):
        axes.axvline(phase["at_s"], color="grey", alpha=0.35, linewidth=0.8)
        if free <= phase["at_s"] <= high:
            free = phase["at_s"] + (high - low) / 40
            axes.annotate(
                str(number),
                (phase["at_s"], 1),
                xycoords=("data", "axes fraction"),
                xytext=(2, 2),
                textcoords="offset points",
                fontsize="x-small",
                color="grey",
            )


def _latencies(axes: Axes, latencies: Mapping[str, Mapping[str, float]]) -> bool:
    from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

    shown = [(name, one) for name, one in latencies.items() if one["count"]][:_LINES]
    for name, one in shown:
        axes.plot([*_SHARES.values()], [one[share] for share in _SHARES], marker="o", label=name)
    axes.set_yscale("log")
    # Plain numbers, and enough ticks if all values are within one power of ten.
    axes.yaxis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(NullFormatter())
    _label(axes, "", "milliseconds (log)")
    return bool(shown)


def _points(axes: Axes, points: Sequence[Mapping[str, float]]) -> bool:
    points = sorted(points, key=lambda point: point["queues"])
    if len({point["queues"] for point in points}) < 2:
        return False
    # Points after a restart have a line of their own: buffers for writing are empty there.
    restarted = [point for point in points if "ready_s" in point]
    written = [point for point in points if "ready_s" not in point]
    names = [*_MEMORY, *_OF_QUEUES]
    drawn = _lines(axes, written, "queues", names, 1e6, ", just written", marker="o")
    drawn |= _lines(axes, restarted, "queues", names, 1e6, ", restarted", marker="s")
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    _label(axes, "queues", "MB")
    return drawn


def _named(samples: Sequence[Mapping[str, float]], endings: tuple[str, ...]) -> list[str]:
    return sorted({name for row in samples for name in row if name.endswith(endings)})


def _lines(
    axes: Axes,
    rows: Sequence[Mapping[str, float]],
    by: str,
    names: Sequence[str],
    unit: float,
    suffix: str = "",
    marker: str = "",
) -> bool:
    drawn = 0
    for name in names:
        points = [(row[by], row[name] / unit) for row in rows if name in row]
        if points and any(value for _, value in points) and drawn < _LINES:
            label = name.removesuffix("_bytes").removeprefix("kvcq.").removeprefix("store.")
            label = label.replace("_", " ")
            axes.plot(*zip(*points, strict=True), label=label + suffix, marker=marker)
            drawn += 1
    axes.set_ylim(bottom=0)
    return bool(drawn)


def _label(axes: Axes, x_label: str, y_label: str) -> None:
    axes.set_xlabel(x_label)
    axes.set_ylabel(y_label)
