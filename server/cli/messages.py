"""kvcq put, pull, query, get: messages in and out of a running server."""

from __future__ import annotations

import base64
import sys
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import LIGHT_PREFIX, Message, Queue
from server.cli.connection import TIMEOUT_S, connect, server_option
from server.cli.output import (
    body_text,
    json_option,
    notes,
    print_json,
    print_table,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kvcq_client import Client, StoredMessage

#: Lines of standard input that are sent, then waited for, together.
BLOCK_LINES = 20_000


@click.command()
@click.argument("topic")
@click.argument("body", required=False)
@click.option("--queue", type=click.IntRange(0), help="Queue of the topic; else in turn.")
@click.option("--tag", default="", help="Tag to filter by.")
@click.option("--key", "keys", multiple=True, help="Key to query for; may be repeated.")
@click.option(
    "--light-queue", "light_queues", multiple=True, help="Light queue, %LMQ%…; may be repeated."
)
@click.option("--property", "properties", multiple=True, metavar="NAME=VALUE")
@click.option("--lines", is_flag=True, help="Read standard input, a message for each line.")
@server_option
@json_option
def put(
    topic: str,
    body: str | None,
    queue: int | None,
    tag: str,
    keys: tuple[str, ...],
    light_queues: tuple[str, ...],
    properties: tuple[str, ...],
    lines: bool,  # noqa: FBT001 - click passes options by name
    server: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Put a message into TOPIC: BODY, or standard input when BODY is left out.

    The topic is created if it is new and the server allows that.
    """
    if lines and body is not None:
        raise click.UsageError("BODY and --lines exclude each other")
    template = Message(
        topic,
        b"",
        queue,
        tag,
        keys,
        light_queues,
        dict(map(_name_and_value, properties)) or None,
    )
    with connect(server) as client:
        if lines:
            _put_lines(client, template, as_json=as_json)
            return
        content = body.encode() if body is not None else sys.stdin.buffer.read()
        placed = client.put(replace(template, body=content))
    if as_json:
        print_json(
            {
                "topic": topic,
                "queueId": placed.queue_id,
                "queueOffset": placed.queue_offset,
                "physicalOffset": placed.physical_offset,
                "messageId": placed.message_id,
                "storeTimeMs": placed.store_time_ms,
            }
        )
        return
    print_table(
        "",
        ("topic", "queue", "offset", "message id"),
        [(topic, placed.queue_id, placed.queue_offset, placed.message_id)],
    )


def _put_lines(client: Client, template: Message, *, as_json: bool) -> None:
    total = 0
    lines = iter(sys.stdin.buffer)
    with notes.status("putting…") as status, client.producer() as producer:
        while block := list(islice(lines, BLOCK_LINES)):
            producer.send_many(
                [replace(template, body=line.rstrip(b"\r\n")) for line in block]
            ).result()
            total += len(block)
            status.update(f"put {total:,} messages")
    if as_json:
        print_json({"topic": template.topic, "messages": total})
    else:
        notes.print(f"put {total:,} messages into {template.topic}")


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value


@click.command()
@click.argument("topic")
@click.option("--queue", type=click.IntRange(0), help="One queue; else all of the topic.")
@click.option("--offset", type=click.IntRange(0), help="From here on; else from the oldest.")
@click.option("--limit", type=click.IntRange(1, 10_000), default=32, show_default=True)
@click.option("--tag", "tag_filter", default="", help='Such as "created || paid".')
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 60),
    default=0.0,
    help="Seconds to wait for a message when there is none; needs --queue.",
)
@click.option("--raw", is_flag=True, help="Print the bodies alone, a line each.")
@server_option
@json_option
def pull(
    topic: str,
    queue: int | None,
    offset: int | None,
    limit: int,
    tag_filter: str,
    wait_s: float,
    raw: bool,  # noqa: FBT001 - click passes options by name
    server: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Read messages of TOPIC; a light queue's name (%LMQ%…) reads that."""
    if queue is None and (offset is not None or wait_s) and not topic.startswith(LIGHT_PREFIX):
        raise click.UsageError("--offset and --wait need --queue")
    found: list[StoredMessage] = []
    positions: list[dict[str, Any]] = []
    with connect(server) as client:
        for queue_id, start in _starts(client, topic, queue, offset):
            if len(found) >= limit:
                break
            next_offset, max_offset = start, start
            while len(found) < limit:
                pulled = client.pull(
                    topic,
                    queue_id,
                    next_offset,
                    max_messages=limit - len(found),
                    tag_filter=tag_filter,
                    wait_s=0 if found else wait_s,
                    timeout_s=TIMEOUT_S + wait_s,
                )
                found.extend(pulled.messages)
                moved = pulled.next_offset > next_offset
                next_offset, max_offset = pulled.next_offset, pulled.max_offset
                if not moved or next_offset >= max_offset:
                    break
            positions.append(
                {"queueId": queue_id, "nextOffset": next_offset, "maxOffset": max_offset}
            )
    if as_json:
        print_json({"messages": [_document(message) for message in found], "queues": positions})
    elif raw:
        for message in found:
            sys.stdout.buffer.write(message.body + b"\n")
    else:
        _print_messages(found)
        behind = sum(int(one["maxOffset"]) - int(one["nextOffset"]) for one in positions)
        if behind > 0:
            notes.print(f"{behind:,} more; see them with --limit, or --queue and --offset")


def _starts(
    client: Client, topic: str, queue: int | None, offset: int | None
) -> list[tuple[int, int]]:
    """Queues to read, and where each begins."""
    if queue is None and not topic.startswith(LIGHT_PREFIX):
        count = client.describe_topic(topic).queue_count
        bounds = client.offsets(Queue(topic, queue_id) for queue_id in range(count))
        return [(queue.queue_id, low) for queue, (low, high) in bounds.items() if high > low]
    wanted = Queue(topic, queue or 0)
    if offset is not None:
        return [(wanted.queue_id, offset)]
    return [(wanted.queue_id, client.offsets([wanted])[wanted].min_offset)]


@click.command()
@click.argument("topic")
@click.argument("key")
@click.option("--begin-ms", type=click.IntRange(0), default=0, help="Stored at or after, ms.")
@click.option("--end-ms", type=click.IntRange(0), default=0, help="Stored at or before, ms.")
@click.option("--limit", type=click.IntRange(1, 100_000), default=32, show_default=True)
@server_option
@json_option
def query(
    topic: str,
    key: str,
    begin_ms: int,
    end_ms: int,
    limit: int,
    server: str,
    as_json: bool,  # noqa: FBT001 - click passes options by name
) -> None:
    """Find messages of TOPIC that carry KEY, oldest first."""
    found: list[StoredMessage] = []
    cursor, complete = b"", False
    with connect(server) as client:
        while not complete and len(found) < limit:
            page = client.query(
                topic,
                key,
                begin_time_ms=begin_ms,
                end_time_ms=end_ms,
                max_messages=min(1000, limit - len(found)),
                cursor=cursor,
            )
            found.extend(page.messages)
            cursor, complete = page.cursor, page.complete
    if as_json:
        print_json({"messages": [_document(one) for one in found], "complete": complete})
        return
    _print_messages(found)
    if not complete:
        notes.print("there are more; show them with a larger --limit")


@click.command()
@click.argument("message_id")
@click.option("--raw", is_flag=True, help="Print the body alone.")
@server_option
@json_option
def get(
    message_id: str,
    raw: bool,  # noqa: FBT001 - click passes options by name
    server: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """Show one message by the MESSAGE_ID that put returned."""
    with connect(server) as client:
        message = client.get(message_id)
    if raw:
        sys.stdout.buffer.write(message.body)
        return
    document = _document(message)
    if as_json:
        print_json(document)
        return
    document["body"] = body_text(message.body)
    document["bornTime"] = time_text(document.pop("bornTimeMs"))
    document["storeTime"] = time_text(document.pop("storeTimeMs"))
    print_table("", ("field", "value"), [(name, str(value)) for name, value in document.items()])


def _print_messages(messages: Iterable[StoredMessage]) -> None:
    rows = [
        (
            message.queue_id,
            message.queue_offset,
            time_text(message.store_time_ms),
            message.tag,
            " ".join(message.keys),
            body_text(message.body),
        )
        for message in messages
    ]
    if not rows:
        notes.print("no messages")
        return
    print_table("", ("queue", "offset", "stored", "tag", "keys", "body"), rows)


def _document(message: StoredMessage) -> dict[str, Any]:
    """Field by field; a body that is not text is given in base64 under another name."""
    try:
        body = {"body": message.body.decode()}
    except UnicodeDecodeError:
        body = {"bodyBase64": base64.b64encode(message.body).decode()}
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "physicalOffset": message.physical_offset,
        "messageId": message.message_id,
        **body,
        "tag": message.tag,
        "keys": list(message.keys),
        "lightQueues": list(message.light_queues),
        "properties": dict(message.properties),
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bornTimeMs": message.born_time_ms,
        "bornHost": message.born_host,
        "storeTimeMs": message.store_time_ms,
        "storeHost": message.store_host,
        "reconsumeTimes": message.reconsume_times,
    }
