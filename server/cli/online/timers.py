"""kvcq timers …: list and recall delayed messages. Also reads the times of kvcq put."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import click

from kvcq_client import RecallOutcome
from server.cli.online.connection import command_at, connect, server_options
from server.cli.terminal import (
    COUNT,
    CommandError,
    Sections,
    counted,
    print_first,
    print_json,
    print_table,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import Client, Delayed, DeliverAt, Message

_DOCUMENT = "handle deliver_at_ms topic queue_id tag keys light_queues body_bytes"


def deliver_at(delay_ms: int | None, at_ms: int | None) -> DeliverAt | None:
    """The value of --delay or --at; None if neither is given. Raises UsageError for both."""
    if delay_ms is not None and at_ms is not None:
        raise click.UsageError("--delay and --at exclude each other")
    if delay_ms is not None:
        return timedelta(milliseconds=delay_ms)
    if at_ms is None:
        return None
    try:
        return datetime.fromtimestamp(at_ms // 1000, UTC) + timedelta(milliseconds=at_ms % 1000)
    except (ValueError, OverflowError, OSError):
        raise click.BadParameter(f"{at_ms} ms is out of range", param_hint="--at") from None


def put_delayed(client: Client, message: Message, when: DeliverAt, *, as_json: bool) -> None:
    done = client.put_delayed(message, deliver_at=when)
    if as_json:
        print_json(
            {"topic": message.topic, "deliverAtMs": done.deliver_at_ms, "handle": done.handle}
        )
        return
    is_past = done.deliver_at_ms <= time.time() * 1000
    at = "at once" if is_past else f"at {time_text(done.deliver_at_ms)}"
    print_table("", ("topic", "delivered", "handle"), [(message.topic, at, done.handle)])


@click.group(cls=Sections)
def timers() -> None:
    """Manage delayed messages: those put with --delay or --at.

    Each waits until its time, and can be recalled by its handle until then.
    """


@timers.command("list")
@click.argument("topic", type=text, default="")
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Rows to print.")
@server_options
def list_timers(topic: str, limit: int, server: str, as_json: bool) -> None:
    """List messages that wait for their time, the next one first; of TOPIC, or of all topics."""
    with connect(server) as client:
        found = client.delayed(topic, max_messages=limit + 1)
        if topic and not found:
            client.describe_topic(topic)  # raises NotFoundError for an unknown topic
    columns: dict[str, Callable[[Delayed], object]] = {
        "delivered at": lambda one: time_text(one.deliver_at_ms),
        "topic": lambda one: one.topic,
        "queue": lambda one: one.queue_id,
        "tag": lambda one: one.tag or "-",
        "bytes": lambda one: one.body_bytes,
        "handle": lambda one: one.handle,
    }
    none = f"no delayed messages of topic {topic}" if topic else "no delayed messages"
    print_first(found, limit, _DOCUMENT, columns, none, as_json=as_json)


@timers.command()
@click.argument("topic", type=text)
@click.argument("handles", type=text, nargs=-1, required=True)
@server_options
def recall(topic: str, handles: tuple[str, ...], server: str, as_json: bool) -> None:
    """Recall delayed messages of TOPIC, so that they are not delivered.

    HANDLES are what `kvcq put` printed, or `kvcq timers list` shows. A message
    that was delivered or recalled before stays as it is, and the exit code is 1
    then.
    """
    with connect(server) as client:
        outcomes = client.recall(topic, handles)
    recalled = outcomes.count(RecallOutcome.RECALLED)
    if as_json:
        print_json({"outcomes": [outcome.value for outcome in outcomes]})
    elif recalled:
        say(f"recalled {counted(recalled, 'message')}")
    if late := len(outcomes) - recalled:
        raise CommandError(
            f"{counted(late, 'message')} could not be recalled: already delivered or recalled",
            command=command_at(server, "timers list", name=topic),
            code="NOT_WAITING",
        )
