"""Shows figures as tables on a terminal, or as a document for --json."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from rich.console import Group as Lines
from rich.table import Table
from rich.text import Text

from server.cli.terminal import byte_count, camel_case, counted, duration, one_line
from store.light_queue import LMQ_PREFIX

if TYPE_CHECKING:
    from rich.console import RenderableType

    from server.cli.top.figures import Figures

_NOT_KNOWN = "-"


def document(figures: Figures, server: str, time_ms: int) -> dict[str, Any]:
    """The figures for --json. Rates are per second."""
    found = {
        "time_ms": time_ms,
        "server": server,
        **{
            name: getattr(figures, name)
            for name in ("version", "uptime_s", "ready", "opening", "draining", "denied")
        },
        "rates": asdict(figures.rates),
        "levels": figures.levels,
        "topic_count": figures.topic_count,
        "topics": [one._asdict() for one in figures.topics],
        "group_count": figures.group_count,
        "groups": [one._asdict() for one in figures.groups],
        "dead_letters": [one._asdict() for one in figures.dead_letters],
        "jobs": [one._asdict() for one in figures.jobs],
    }
    answer: dict[str, Any] = camel_case(found)
    return answer


def screen(figures: Figures, server: str, note: str = "") -> RenderableType:
    """The figures for people. `note`: why they are not current."""
    parts: list[RenderableType] = [_head(figures, server)]
    if note:
        parts.append(Text(note, style="bold red"))
    parts += [Text(), _levels(figures)]
    for table in (_topics(figures), _groups(figures), _dead_letters(figures), _jobs(figures)):
        if table is not None:
            parts += [Text(), table]
    if figures.denied:
        parts += [
            Text(),
            Text("Topics, groups and jobs are only shown to administrators.", style="dim"),
        ]
    return Lines(*parts)


def _head(figures: Figures, server: str) -> Text:
    state, style = "ready", "green"
    if figures.draining:
        state, style = "ending", "yellow"
    elif figures.opening is not None:
        state, style = f"opening its store, {figures.opening:.0%}", "yellow"
    elif not figures.ready:
        state, style = "NOT READY: puts are rejected", "bold red"
    counts = [
        counted(count, name)
        for count, name in ((figures.topic_count, "topic"), (figures.group_count, "group"))
        if count is not None
    ]
    return Text.assemble(
        (f"kvcq {figures.version}", "bold"),
        f" at {server}, up {duration(figures.uptime_s)}, ",
        (state, style),
        "".join(f", {one}" for one in counts),
    )


def _levels(figures: Figures) -> Table:
    """Levels in three columns of names and values."""
    rates, levels = figures.rates, figures.levels
    flush = "" if rates.flush_ms is None else f", {rates.flush_ms:.1f} ms each"
    columns = (
        (
            ("put", f"{rates.messages_in:,.0f}/s, {byte_count(rates.bytes_in)}/s"),
            ("pulled", f"{rates.messages_out:,.0f}/s, {byte_count(rates.bytes_out)}/s"),
            ("calls", f"{rates.calls:,.0f}/s"),
            ("refused", f"{rates.refusals:,.1f}/s"),
            ("flushes", f"{rates.flushes:,.1f}/s{flush}"),
        ),
        (
            ("memory", _bytes(levels["memory_bytes"])),
            ("disk", _share(levels["disk_used_ratio"])),
            ("to dispatch", _bytes(levels["dispatch_behind_bytes"])),
            ("to flush", _bytes(levels["flush_behind_bytes"])),
            ("producers", _count(levels["producers"])),
        ),
        (
            ("RocksDB", _bytes(levels["sst_bytes"])),
            ("memtables", _bytes(levels["memtable_bytes"])),
            ("block cache", _bytes(levels["block_cache_bytes"])),
            ("to compact", _bytes(levels["pending_compaction_bytes"])),
            ("level 0", f"{_count(levels['l0_files'])} files{_stop(levels['write_stopped'])}"),
        ),
    )
    table = Table.grid(padding=(0, 2))
    for row in zip(*columns, strict=True):
        cells: list[Text] = []
        for name, value in row:
            cells += [Text(name, style="dim"), Text(value)]
        table.add_row(*cells)
    return table


def _topics(figures: Figures) -> Table | None:
    if not figures.topics:
        return None
    table = _table("topic", "put/s", "bytes/s", "pulled/s", "bytes/s ")
    for one in figures.topics:
        table.add_row(
            _topic(one.topic, "(all others)"),
            Text(f"{one.messages_in:,.0f}"),
            Text(byte_count(one.bytes_in)),
            Text(f"{one.messages_out:,.0f}"),
            Text(byte_count(one.bytes_out)),
        )
    return table


def _groups(figures: Figures) -> Table | None:
    if not figures.groups:
        return None
    table = _table("group", "topic", "behind", "in flight", "again", "oldest")
    for one in figures.groups:
        table.add_row(
            Text(one_line(one.group)),
            _topic(one.topic, "(other topics)"),
            Text(f"{one.messages:,}"),
            Text(f"{one.in_flight:,}" if one.shared else _NOT_KNOWN),
            Text(f"{one.waiting_again:,}" if one.shared else _NOT_KNOWN),
            Text(_NOT_KNOWN if one.behind_s is None else duration(one.behind_s)),
        )
    table.columns[1].justify = "left"
    return table


def _dead_letters(figures: Figures) -> Table | None:
    if not figures.dead_letters:
        return None
    table = _table("group", "dead letters")
    for one in figures.dead_letters:
        table.add_row(Text(one_line(one.group)), Text(f"{one.messages:,}"))
    return table


def _jobs(figures: Figures) -> Table | None:
    if not figures.jobs:
        return None
    table = _table("job", "kind", "step", "done", "for")
    for one in figures.jobs:
        table.add_row(
            Text(one_line(one.job_id)),
            Text(one_line(one.kind)),
            Text(one_line(one.step)),
            Text(_NOT_KNOWN if one.percent is None else f"{one.percent:.1f} %"),
            Text(duration(one.elapsed_s)),
        )
    for column in table.columns[1:3]:
        column.justify = "left"
    return table


def _table(first: str, *others: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(first, overflow="ellipsis", no_wrap=True, max_width=48)
    for name in others:
        table.add_column(name, justify="right", no_wrap=True)
    return table


def _topic(name: str, others: str) -> Text:
    """A topic's name, or `others` for all topics without a row. Control characters are escaped."""
    if name == "":
        return Text(others, style="dim")
    if name == LMQ_PREFIX:
        return Text("(light queues)", style="dim")
    return Text(one_line(name))


def _bytes(value: float | None) -> str:
    return _NOT_KNOWN if value is None else byte_count(value)


def _count(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:,.0f}"


def _share(value: float | None) -> str:
    return _NOT_KNOWN if value is None else f"{value:.1%} used"


def _stop(value: float | None) -> str:
    return ", WRITES STOPPED" if value else ""
