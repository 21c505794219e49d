"""kvcq pull, query, get: read messages. With --json each message is one line, so that a program can
process them one by one."""

from __future__ import annotations

import sys
from time import sleep
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import LIGHT_PREFIX, DataLossError, Queue
from server.cli.online.connection import TIMEOUT_S, command_error, connect, server_options
from server.cli.terminal import (
    OFFSET,
    QUEUE,
    TIME,
    TIMES,
    Whole,
    body_fields,
    body_text,
    document_of,
    one_line,
    plain_body,
    print_json,
    print_table,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcq_client import Client, StoredMessage

#: While a queue is being rebuilt: number of attempts to read it, and seconds between two.
REBUILD_LOOKS = 60
REBUILD_LOOK_S = 0.5

tag_option = click.option(
    "--tag", "tag_filter", type=text, default="", help='Tags to read, such as "created || paid".'
)
where_option = click.option(
    "--where",
    "sql_filter",
    type=text,
    default="",
    metavar="CONDITION",
    help="Properties of the messages to read, such as \"price > 10 AND TAGS = 'paid'\".",
)
skip_damaged_option = click.option(
    "--skip-damaged", is_flag=True, help="Skip messages that cannot be read, and report each one."
)


@click.command()
@click.argument("topic", type=text)
@click.option("--queue", type=QUEUE, help="Only this queue.")
@click.option("--offset", type=OFFSET, help="Offset of the first message; by default the oldest.")
@click.option(
    "--limit",
    type=Whole(1, 10_000),
    default=32,
    show_default=True,
    help="Maximum number of messages.",
)
@tag_option
@where_option
@click.option(
    "--wait",
    "wait_s",
    type=click.FloatRange(0, 60),
    metavar="SECONDS",
    default=0.0,
    help="If there is no message, wait for one, up to 60 seconds. Needs --queue.",
)
@skip_damaged_option
@click.option("--raw", is_flag=True, help="Print only the bodies, one per line.")
@server_options
def pull(
    topic: str,
    queue: int | None,
    offset: int | None,
    limit: int,
    tag_filter: str,
    sql_filter: str,
    wait_s: float,
    skip_damaged: bool,
    raw: bool,
    server: str,
    as_json: bool,
) -> None:
    """Read messages of TOPIC, which may be a light queue (%LMQ%…).

    Without --queue, all queues are read one after another, each from its oldest message.
    """
    if queue is None and (offset is not None or wait_s) and not topic.startswith(LIGHT_PREFIX):
        raise click.UsageError("--offset and --wait need --queue")
    found: list[StoredMessage] = []
    positions: list[dict[str, Any]] = []
    damage: DataLossError | None = None
    waits = iter(range(REBUILD_LOOKS))
    with connect(server) as client:
        for queue_id, start, end in _starts(client, topic, queue, offset):
            next_offset, max_offset = start, end
            while len(found) < limit and damage is None:
                try:
                    pulled = client.pull(
                        topic,
                        queue_id,
                        next_offset,
                        max_messages=limit - len(found),
                        tag_filter=tag_filter,
                        sql_filter=sql_filter,
                        wait_s=0 if found else wait_s,
                        timeout_s=TIMEOUT_S + wait_s,
                    )
                except DataLossError as error:  # messages read before the error are shown first
                    goes_on_at = _behind(error, next_offset, waits) if skip_damaged else None
                    if goes_on_at is None:
                        damage = error
                        break
                    next_offset = goes_on_at
                    continue
                found.extend(pulled.messages)
                moved = pulled.next_offset > next_offset
                next_offset, max_offset = pulled.next_offset, pulled.max_offset
                if not moved or next_offset >= max_offset:
                    break
            positions.append(
                {"queueId": queue_id, "nextOffset": next_offset, "maxOffset": max_offset}
            )
    if as_json:
        print_documents(found)
    elif raw:
        print_bodies(found)
    elif found or damage is None:
        print_messages(found)
    if damage is None and not raw:
        _tell_what_is_left(positions)
    if damage is not None:
        raise command_error(damage, server) from damage


def _behind(error: DataLossError, asked: int, waits: Iterator[int]) -> int | None:
    """The offset after the damaged message; None if unknown. Waits for a queue's rebuild."""
    if error.next_offset is not None:
        text = f"skipped: {error}; continuing at offset {error.next_offset}"
        say(text)
        return error.next_offset
    if error.reason != "DAMAGED_QUEUE" or next(waits, None) is None:
        return None
    sleep(REBUILD_LOOK_S)
    return asked


def _tell_what_is_left(positions: list[dict[str, Any]]) -> None:
    left = [int(one["maxOffset"]) - int(one["nextOffset"]) for one in positions]
    behind = sum(left)
    if behind <= 0:
        return
    if len(left) > 1:
        where = f" in {sum(one > 0 for one in left)} queues"
        say(f"{behind:,} more{where}; see them with --limit, or --queue and --offset")
    else:
        on = f"--queue {positions[0]['queueId']} --offset {positions[0]['nextOffset']}"
        say(f"{behind:,} more; see them with --limit, or {on}")


def _starts(
    client: Client, topic: str, queue: int | None, offset: int | None
) -> list[tuple[int, int, int]]:
    """For each queue to read: its id, the first offset, and the queue's current end."""
    if queue is None and not topic.startswith(LIGHT_PREFIX):
        count = client.describe_topic(topic).queue_count
        bounds = client.offsets(Queue(topic, queue_id) for queue_id in range(count))
        return [(queue.queue_id, low, high) for queue, (low, high) in bounds.items() if high > low]
    wanted = Queue(topic, queue or 0)
    if offset is not None:
        return [(wanted.queue_id, offset, offset)]
    return [(wanted.queue_id, *client.offsets([wanted])[wanted])]


@click.command()
@click.argument("topic", type=text)
@click.argument("key", type=text)
@click.option("--since", type=TIME, help=f"Stored at that time or later. {TIMES}")
@click.option("--until", type=TIME, help="Stored at that time or earlier.")
@click.option(
    "--limit",
    type=Whole(1, 100_000),
    default=32,
    show_default=True,
    help="Maximum number of messages.",
)
@skip_damaged_option
@server_options
def query(
    topic: str,
    key: str,
    since: int | None,
    until: int | None,
    limit: int,
    skip_damaged: bool,
    server: str,
    as_json: bool,
) -> None:
    """Find messages of TOPIC with KEY, oldest first."""
    if since is not None and until is not None and since > until:
        raise click.UsageError("--since is later than --until")
    found: list[StoredMessage] = []
    damage: DataLossError | None = None
    cursor, complete = b"", False
    with connect(server) as client:
        while not complete and len(found) < limit:
            try:
                page = client.query(
                    topic,
                    key,
                    begin_time_ms=since,
                    end_time_ms=until,
                    max_messages=min(1000, limit - len(found)),
                    cursor=cursor,
                )
            except DataLossError as error:  # messages found before the error are shown first
                if not skip_damaged or error.next_cursor is None:
                    damage = error
                    break
                say(f"skipped: {error}")
                cursor = error.next_cursor
                continue
            found.extend(page.messages)
            cursor, complete = page.cursor, page.complete
    if as_json:
        print_documents(found)
    elif found or damage is None:
        print_messages(found)
    if damage is not None:
        raise command_error(damage, server) from damage
    if not complete:
        say("there are more; show them with a larger --limit")


@click.command()
@click.argument("message_id", type=text)
@click.option("--raw", is_flag=True, help="Print only the body.")
@server_options
def get(message_id: str, raw: bool, server: str, as_json: bool) -> None:
    """Show one message by the MESSAGE_ID that put returned."""
    with connect(server) as client:
        message = client.get(message_id)
    if raw:
        sys.stdout.buffer.write(body_of(message))
        sys.stdout.buffer.flush()
        return
    if as_json:
        print_documents([message])
    else:
        print_message(message)


def print_message(message: StoredMessage) -> None:
    """Print all of a message, for people."""
    document = _document(message)
    del document["queue"], document["queueOffset"]  # found by id, without a queue
    document["body"] = body_text(body_of(message))
    document["bornTime"] = time_text(document.pop("bornTimeMs"))
    document["storeTime"] = time_text(document.pop("storeTimeMs"))
    document["keys"] = " ".join(message.keys)
    document["lightQueues"] = "\n".join(message.light_queues)
    document["properties"] = "\n".join(
        f"{name}={value}" for name, value in message.properties.items()
    )
    print_table("", ("field", "value"), [(name, str(value)) for name, value in document.items()])


def print_documents(messages: Iterable[StoredMessage]) -> None:
    """Print each message as one JSON object on a line."""
    for message in messages:
        print_json(_document(message))


def print_bodies(messages: Iterable[StoredMessage]) -> None:
    """Print only the bodies, each with a newline, as bytes."""
    for message in messages:
        sys.stdout.buffer.write(body_of(message) + b"\n")
    sys.stdout.buffer.flush()


def print_messages(messages: Iterable[StoredMessage]) -> None:
    """Print a table for people. Queue and offset are those that were read."""
    rows = [
        (
            message.queue.queue_id,
            message.queue_offset,
            time_text(message.store_time_ms),
            one_line(message.tag),
            one_line(" ".join(message.keys)),
            body_text(body_of(message)),
        )
        for message in messages
    ]
    if not rows:
        say("no messages")
        return
    print_table("", ("queue", "offset", "stored", "tag", "keys", "body"), rows)


def body_of(message: StoredMessage) -> bytes:
    return plain_body(message.raw_body, message.sys_flag)


def _document(message: StoredMessage) -> dict[str, Any]:
    place = "topic queue_id topic_queue_offset physical_offset message_id"
    given = "tag keys light_queues properties flag sys_flag born_time_ms born_host"
    return {
        "queue": document_of(message.queue, "topic queue_id"),
        "queueOffset": message.queue_offset,
        **document_of(message, place),
        **body_fields(body_of(message)),
        **document_of(message, f"{given} store_time_ms store_host reconsume_times"),
    }
