"""A report as one HTML page that needs nothing beside it: no script, no link, plots inside."""

from __future__ import annotations

from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING

from migration.spark.jobs.report_plots import plot_rates, plot_retention, plot_sizes, plot_topics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from migration.spark.jobs.report import LogReport

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 84rem; padding: 0 1rem; }
table { border-collapse: collapse; margin: 1rem 0; }
td, th { border-bottom: 1px solid #ddd; padding: .2rem .6rem; text-align: right;
         font-variant-numeric: tabular-nums; }
td { white-space: nowrap; }
td:first-child, th:first-child { text-align: left; min-width: 9rem; overflow-wrap: anywhere;
                                 white-space: normal; padding-left: 0; }
svg { height: auto; max-width: 100%; }
.bad { color: #b00020; }
"""


def render(report: LogReport) -> str:
    """The page as text. Raises SparkMissingError without matplotlib."""
    parts = [
        "<!doctype html>",
        '<html lang="en"><head><meta charset="utf-8"><title>Commit log report</title>',
        f"<style>{_STYLE}</style></head><body>",
        "<h1>Commit log report</h1>",
        *_overview(report),
    ]
    if report.messages:
        parts += _topics(report)
        parts += ["<h2>Rates</h2>", plot_rates(report), "<h2>Sizes</h2>", plot_sizes(report)]
        parts += ["<h2>Retention</h2>", plot_retention(report)]
    parts += [*_queues(report), *_keys(report), "</body></html>"]
    return "\n".join(parts) + "\n"


def _overview(report: LogReport) -> list[str]:
    layout = report.layout
    state = "dense: every offset once in every queue"
    if report.holes or report.duplicates:
        state = f"{report.holes:,} holes, {report.duplicates:,} offsets used more than once"
    rows = [
        ("made", _time(report.made_ms)),
        ("log", f"{layout.start:,} to {layout.end:,}, {len(layout.segments)} segments"),
        ("messages", f"{report.messages:,}"),
        ("bytes", f"{report.bytes:,}"),
        ("topics", f"{report.topic_count:,}"),
        ("queues", f"{report.queue_count:,}"),
        ("queue offsets", state),
    ]
    return [_table(("", ""), rows)]


def _topics(report: LogReport) -> list[str]:
    head = (
        *("topic", "messages", "MB", "queues", "mean size", "largest", "messages/s", "tags"),
        *("with a key", "oldest", "newest", "reaches back"),
    )
    rows = [
        (
            topic.topic,
            f"{topic.messages:,}",
            f"{topic.bytes / 1e6:,.1f}",
            topic.queues,
            f"{topic.mean_size:,.0f}",
            f"{topic.max_size:,}",
            f"{topic.rate:,.1f}",
            topic.tags,
            f"{topic.keyed / topic.messages:.0%}",
            _time(topic.first_ms),
            _time(topic.last_ms),
            _hours(topic.last_ms - topic.first_ms),
        )
        for topic in report.topics
    ]
    parts = ["<h2>Topics</h2>", plot_topics(report), _table(head, rows)]
    if report.topic_count > len(rows):
        parts.append(f"<p>The largest {len(rows):,} of {report.topic_count:,}.</p>")
    return parts


def _queues(report: LogReport) -> list[str]:
    parts = ["<h2>Holes and duplicates</h2>"]
    if not report.broken_queues:
        return [*parts, "<p>None.</p>"]
    head = ("topic", "queue", "first offset", "last offset", "messages", "holes", "duplicates")
    rows = [tuple(queue) for queue in report.broken_queues]
    return [*parts, '<p class="bad">Queues whose offsets are not dense:</p>', _table(head, rows)]


def _keys(report: LogReport) -> list[str]:
    parts = ["<h2>Top keys</h2>"]
    if not report.keys:
        return [*parts, "<p>No message has a key.</p>"]
    rows = [(key.key, key.topic, f"{key.messages:,}") for key in report.keys]
    return [*parts, _table(("key", "topic", "messages"), rows)]


def _table(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    lines = ["<table>"]
    if any(head):
        lines.append("<tr>" + "".join(f"<th>{escape(name)}</th>" for name in head) + "</tr>")
    lines += [
        "<tr>" + "".join(f"<td>{escape(str(cell))}</td>" for cell in row) + "</tr>" for row in rows
    ]
    lines.append("</table>")
    return "\n".join(lines)


def _time(time_ms: int) -> str:
    return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def _hours(length_ms: int) -> str:
    return f"{length_ms / 3_600_000:,.1f} h"
