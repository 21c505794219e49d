"""A report as one HTML page that needs nothing beside it: no script, no link, plots inside."""

from __future__ import annotations

import io
import warnings
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from migration.spark.errors import SparkMissingError

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from migration.spark.jobs.report import LogReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: right; }
td:first-child, th:first-child { text-align: left; overflow-wrap: anywhere; }
svg { height: auto; max-width: 100%; }
"""
#: Bars of a plot, and letters of a name beside one.
_BARS = 20
_NAME_LENGTH = 40


def render(report: LogReport) -> str:
    """The page as text. Raises SparkMissingError without matplotlib."""
    layout = report.layout
    state = f"{report.holes:,} holes, {report.duplicates:,} offsets used more than once"
    facts = {
        "log": f"{layout.start:,} to {layout.end:,}, {len(layout.segments)} segments",
        **{name: f"{value:,}" for name, value in report.as_json().items()},
    }
    rows = "".join(f"<tr><td>{name}</td><td>{fact}</td></tr>" for name, fact in facts.items())
    parts = [
        '<!doctype html><html lang="en"><head><meta charset="utf-8">',
        f"<title>Commit log report</title><style>{_STYLE}</style></head><body>",
        f"<h1>Commit log report</h1><table>{rows}</table>",
    ]
    if report.messages:
        parts += [_plots(report), "<h2>Topics</h2>", _table(_shaped(report.topics))]
        if report.topic_count > len(report.topics):
            parts.append(f"<p>The largest {len(report.topics):,} of {report.topic_count:,}.</p>")
    parts += ["<h2>Holes and duplicates</h2>", f"<p>{escape(state)}</p>"]
    parts += [_table(report.broken_queues), "<h2>Top keys</h2>", _table(report.keys)]
    return "\n".join([*parts, "</body></html>"]) + "\n"


def _shaped(topics: pd.DataFrame) -> pd.DataFrame:
    """What follows from the figures, beside them; times as text."""
    seconds = (topics.newest - topics.oldest) / 1000
    return topics.assign(
        mean_size=topics.bytes / topics.messages,
        rate=(topics.messages / seconds.where(seconds > 0)).fillna(0),
        oldest=topics.oldest.map(_time),
        newest=topics.newest.map(_time),
        hours=seconds / 3600,
    )


def _table(frame: pd.DataFrame) -> str:
    import pandas as pd

    if frame.empty:
        return "<p>None.</p>"
    numbers = dict.fromkeys(frame.select_dtypes("integer"), "{:,}".format)
    with pd.option_context("display.max_colwidth", None):
        text: str = frame.to_html(
            index=False, border=0, formatters=numbers, float_format="{:,.1f}".format
        )
    return text


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _plots(report: LogReport) -> str:
    """Rates, sizes, the largest topics and how far they reach back, as one SVG."""
    try:
        # Not pyplot: it keeps every figure, and may look for a screen.
        from matplotlib import rc_context
        from matplotlib.figure import Figure
    except ImportError as error:
        raise SparkMissingError("matplotlib", extra="report") from error
    target = io.StringIO()
    with (
        warnings.catch_warnings(),
        rc_context(
            {
                "svg.fonttype": "none",  # drawn by the reader's browser, which has more letters
                "text.parse_math": False,
                "date.converter": "concise",
                "axes.grid": True,
                "axes.axisbelow": True,
                "grid.alpha": 0.3,
            }
        ),
    ):
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(14, 10), layout="constrained")
        _draw(figure, report)
        figure.savefig(target, format="svg")
    text = target.getvalue()
    return text[text.index("<svg") :]  # without the XML header, which HTML does not take


def _draw(figure: Figure, report: LogReport) -> None:
    (rates, sizes), (large, far) = figure.subplots(2, 2)
    times = report.rates.index.to_numpy().astype("datetime64[ms]")
    for topic, values in report.rates.items():
        rates.plot(times, values, label=_short(str(topic)), marker=".")
    rates.set(xlabel="time, UTC", ylabel="messages a second", ylim=(0, None))
    rates.legend(fontsize="small")
    sizes.bar([f"≤ {size:,}" for size in report.sizes["size"]], report.sizes.messages)
    sizes.set(xlabel="size of the record, bytes", ylabel="records")
    topics = report.topics.nlargest(_BARS, "bytes")
    names = [_short(topic) for topic in topics.topic]
    hours = (topics.newest.max() - topics.oldest) / 3_600_000
    for axes, values, label in (
        (large, topics.bytes / 1e6, "MB in the log"),
        (far, hours, "hours from the oldest message to the end"),
    ):
        axes.barh(range(len(names)), values)  # by position: two names may be cut to the same text
        axes.set_yticks(range(len(names)), names)
        axes.invert_yaxis()
        axes.set_xlabel(label)


def _short(name: str) -> str:
    return name if len(name) <= _NAME_LENGTH else name[: _NAME_LENGTH - 1] + "…"
