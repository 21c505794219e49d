"""The plots of a report, as SVG text that stands in the page itself."""

from __future__ import annotations

import io
import warnings
from typing import TYPE_CHECKING

from migration.spark.errors import SparkMissingError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from migration.spark.jobs.report import LogReport

_INCHES = (9.0, 3.2)
_NAME_LENGTH = 40
_DAY_MS = 86_400_000


def plot_rates(report: LogReport) -> str:
    """Messages a second over time, the largest topics."""
    figure, axes = _new(_INCHES)
    seconds = report.rate_step_ms / 1000
    for topic, points in report.rates.items():
        times = [begin / _DAY_MS for begin, _ in points]  # days since 1970, matplotlib's unit
        axes.plot(times, [count / seconds for _, count in points], label=_name(topic), marker=".")
    if report.rates:
        from matplotlib import rc_context

        # What all labels share, such as the day, stands once at the end of the axis.
        with rc_context({"date.converter": "concise"}):
            axes.xaxis_date()
        axes.legend(fontsize="small", loc="upper left", bbox_to_anchor=(1.0, 1.0))
    axes.set_xlabel("time, UTC")
    axes.set_ylabel("messages a second")
    axes.set_ylim(bottom=0)
    return _svg(figure)


def plot_sizes(report: LogReport) -> str:
    """How many records there are of each size."""
    figure, axes = _new(_INCHES)
    axes.bar([f"≤ {_size(limit)}" for limit, _ in report.sizes], [n for _, n in report.sizes])
    axes.set_ylabel("records")
    axes.set_xlabel("size of the record")
    return _svg(figure)


def plot_topics(report: LogReport) -> str:
    """Bytes of the largest topics."""
    largest = sorted(report.topics, key=lambda topic: topic.bytes, reverse=True)[:20]
    return _bars([t.topic for t in largest], [t.bytes / 1e6 for t in largest], "MB in the log")


def plot_retention(report: LogReport) -> str:
    """How far back each of the largest topics reaches."""
    shown = report.topics[:20]
    latest = max((topic.last_ms for topic in shown), default=0)
    hours = [(latest - topic.first_ms) / 3_600_000 for topic in shown]
    return _bars(
        [topic.topic for topic in shown], hours, "hours from the oldest message to the end"
    )


def _bars(names: Sequence[str], values: Sequence[float], label: str) -> str:
    figure, axes = _new((_INCHES[0], 1.0 + 0.25 * len(names)))
    # By position: two names may be cut to the same text.
    axes.barh(range(len(names)), values)
    axes.set_yticks(range(len(names)), [_name(name) for name in names])
    axes.invert_yaxis()
    axes.set_xlabel(label)
    return _svg(figure)


def _new(inches: tuple[float, float]) -> tuple[Figure, Axes]:
    try:
        # Not pyplot: it keeps every figure, and may look for a screen.
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SparkMissingError("matplotlib", extra="report") from error
    figure = Figure(figsize=inches, layout="constrained")
    axes = figure.add_subplot()
    axes.grid(visible=True, alpha=0.3)
    axes.set_axisbelow(True)
    return figure, axes


def _svg(figure: Figure) -> str:
    from matplotlib import rc_context

    target = io.StringIO()
    with warnings.catch_warnings(), rc_context({"svg.fonttype": "none"}):
        # Text stays text, drawn by the reader's browser, which has more letters than we have.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure.savefig(target, format="svg")
    text = target.getvalue()
    return text[text.index("<svg") :]  # without the XML header, which HTML does not take


def _name(name: str) -> str:
    short = name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"
    # A dollar sign would begin a formula.
    return short.replace("$", r"\$")


def _size(limit: int) -> str:
    for unit in ("B", "KiB", "MiB"):
        if limit < 1024:
            return f"{limit} {unit}"
        limit //= 1024
    return f"{limit} GiB"
