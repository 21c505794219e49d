"""kvcq topic …: create, delete, describe, list."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import (
    LIGHT_PREFIX,
    MessageType,
    NotFoundError,
    Queue,
    QueueState,
    Retention,
    Topic,
)
from server.cli.online.connection import command_at, connect, server_options
from server.cli.terminal import (
    COUNT,
    OFFSET,
    SIZE,
    SPAN,
    CommandError,
    Sections,
    ask,
    byte_count,
    counted,
    document_of,
    duration,
    print_done,
    print_json,
    print_table,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import LiteParent

PAGE = 1000
_QUEUE_FIELDS = "queue_id min_offset max_offset log_min_offset superseded_messages"


@click.group(cls=Sections)
def topic() -> None:
    """Manage topics and light queues of a running server."""


def _keeping(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds the options for a topic's retention."""
    for option, kind, what in reversed(
        (
            ("--keep", SPAN, "Keep messages of each queue for this long, such as 24h"),
            (
                "--keep-bytes",
                SIZE,
                "Keep the newest messages of each queue up to this size, such as 10GiB",
            ),
            ("--keep-messages", OFFSET, "Keep this many of the newest messages of each queue"),
        )
    ):
        command = click.option(option, type=kind, help=f"{what}; 0: no limit.")(command)
    latest = click.option(
        "--latest/--no-latest",
        default=None,
        help="Keep only the latest message of each key; applied once a day.",
    )
    return latest(command)


_type = click.option(
    "--type",
    "type_name",
    type=click.Choice([each.value for each in MessageType]),
    help="Messages that RocketMQ's clients may send to it.",
)


def _type_of(name: str | None) -> MessageType | None:
    return None if name is None else MessageType(name)


def _given(keeping: dict[str, Any]) -> dict[str, Any]:
    """The given options, as fields of a Retention."""
    fields = {"keep": "time_ms", "keep_bytes": "bytes", "keep_messages": "messages"}
    return {fields.get(name, name): value for name, value in keeping.items() if value is not None}


@topic.command()
@click.argument("names", type=text, nargs=-1, required=True)
@click.option(
    "--queues",
    type=COUNT,
    help="Queues of each topic, up to 65,536; by default the server's setting.",
)
@_keeping
@_type
@server_options
def create(
    names: tuple[str, ...],
    queues: int | None,
    type_name: str | None,
    server: str,
    as_json: bool,
    **keeping: int | None,
) -> None:
    """Create topics NAMES. A topic that already exists with the same settings is not changed."""
    given = _given(keeping)
    retention = Retention(**given) if given else None
    with connect(server) as client:
        made = client.create_topics(
            dict.fromkeys(names, queues), retention=retention, message_type=_type_of(type_name)
        )
    _show(made, as_json=as_json)


@topic.command()
@click.argument("name", type=text)
@_keeping
@_type
@server_options
def update(
    name: str, type_name: str | None, server: str, as_json: bool, **keeping: int | None
) -> None:
    """Change how long topic NAME keeps messages, or what RocketMQ's clients may send to it. What
    has no option here is not changed.

    Messages beyond a limit are hidden from all readers at once (beyond a size limit, within
    seconds). Their disk space is freed when the log drops their segments.
    """
    given = _given(keeping)
    if not given and type_name is None:
        options = "--keep, --keep-bytes, --keep-messages, --latest, --no-latest or --type"
        raise click.UsageError(f"nothing to change: give {options}")
    with connect(server) as client:
        changed = client.update_topic(
            name,
            message_type=_type_of(type_name),
            **{f"retention_{field}": value for field, value in given.items()},
        )
    _show([changed], as_json=as_json)


@topic.command()
@click.argument("name", type=text)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def delete(name: str, yes: bool, server: str, as_json: bool) -> None:
    """Delete topic NAME, or a light queue, and all its messages."""
    if not yes:
        without = command_at(server, "topic delete", "--yes", name=name)
        ask(f"Delete {name!r} and all its messages?", without)
    with connect(server) as client:
        try:
            client.delete_topic(name)
        except NotFoundError as error:
            light = ["--light-queues"] if name.startswith(LIGHT_PREFIX) else []
            listing = command_at(server, "topic list", *light)
            raise CommandError(str(error), command=listing, code=error.reason) from error
    print_done("deleted", name, as_json=as_json)


@topic.command()
@click.argument("name", type=text)
@server_options
def describe(name: str, server: str, as_json: bool) -> None:
    """Show topic NAME, or a light queue, and the offsets of its queues."""
    with connect(server) as client:
        # A light queue has one queue, and no settings of a topic.
        is_light = name.startswith(LIGHT_PREFIX)
        if is_light:
            found = Topic(name, 1, 0)
            [(low, high)] = client.offsets([Queue(name, 0)]).values()
            queues = [QueueState(0, low, high, low)]
        else:
            found, queues = client.topic_queues(name)
    if as_json:
        document = _document(found)
        if found.lite is not None:
            document["lite"] = document_of(found.lite, "expiry_ms lite_topics has_more clients")
        document["queues"] = [{**document_of(each, _QUEUE_FIELDS)} for each in queues]
        print_json(document)
        return
    title = found.name if is_light else f"{name}: created {time_text(found.created_time_ms)}"
    if found.message_type not in (None, MessageType.ANY):
        title = f"{title}, for messages of type {_typed(found.message_type)}"
    if found.lite is not None:
        title = f"{title}, {_lite(found.lite)}"
    columns = ["queue", "min offset", "max offset", "messages"]
    rows = [
        [each.queue_id, each.min_offset, each.max_offset, each.max_offset - each.min_offset]
        for each in queues
    ]
    if found.retention != Retention():
        title = f"{title}, keeps {_kept(found.retention)}"
        columns.append("hidden, still in the log")
        for row, each in zip(rows, queues, strict=True):
            row.append(each.min_offset - each.log_min_offset)
    if any(each.superseded_messages for each in queues):
        columns.append("superseded")
        for row, each in zip(rows, queues, strict=True):
            row.append(each.superseded_messages)
    print_table(title, columns, rows)


@topic.command("list")
@click.option("--prefix", type=text, default="", help="Only names with this prefix.")
@click.option("--light-queues", is_flag=True, help="Light queues instead of topics.")
@click.option("--system", is_flag=True, help="Also the server's own topics.")
@click.option(
    "--limit", type=COUNT, default=PAGE, show_default=True, help="Maximum number of names."
)
@server_options
def list_topics(
    prefix: str, light_queues: bool, system: bool, limit: int, server: str, as_json: bool
) -> None:
    """List topics by name."""
    with connect(server) as client:
        every = client.topics(prefix, light_queues=light_queues, system_topics=system)
        found = list(islice(every, limit + 1))
    if light_queues and len(found) <= limit:
        found.sort()  # the server orders them by length
    _show(found[:limit], as_json=as_json)
    if len(found) > limit:
        say("there are more; show them with a larger --limit, or --prefix")


def _show(topics: list[Topic], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(one) for one in topics])
    elif topics:
        print_table(
            "",
            ("topic", "queues", "created", "keeps", "messages of type"),
            [
                (
                    one.name,
                    one.queue_count,
                    time_text(one.created_time_ms),
                    _kept(one.retention),
                    _typed(one.message_type),
                )
                for one in topics
            ],
        )
    else:
        say("no topics")


def _document(one: Topic) -> dict[str, object]:
    return {
        **document_of(one, "name queue_count created_time_ms"),
        "retention": document_of(one.retention, "time_ms bytes messages latest"),
        "messageType": _typed(one.message_type),
    }


def _lite(lite: LiteParent) -> str:
    count = counted(lite.lite_topics, "lite topic")
    ends = f"deleted when idle for {_span(lite.expiry_ms)}" if lite.expiry_ms else "kept when idle"
    return f"with {'more than ' if lite.has_more else ''}{count}, {ends}"


def _typed(message_type: MessageType | None) -> str:
    return "" if message_type is None else message_type.value


def _kept(retention: Retention) -> str:
    parts = []
    if retention.time_ms:
        parts.append(_span(retention.time_ms))
    if retention.bytes:
        parts.append(byte_count(retention.bytes))
    if retention.messages:
        parts.append(counted(retention.messages, "message"))
    if retention.latest:
        parts.append("the latest of each key")
    return ", ".join(parts) or "all"


def _span(time_ms: int) -> str:
    return duration(time_ms / 1000) if time_ms >= 1000 else f"{time_ms} ms"
