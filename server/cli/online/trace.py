"""kvcq trace: the history of a message."""

from __future__ import annotations

import shlex
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from kvcq_client import MessageState, NotFoundError, TraceEventKind
from server.cli.online.connection import connect, server_options
from server.cli.terminal import (
    document_of,
    print_json,
    print_next,
    print_table,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from kvcq_client import Client, Trace, TracedGroup, TraceEvent

_MESSAGE = "message_id physical_offset store_time_ms topic places state due_ms producer_group"
_LOG = "next_page_token searched_until_ms log_start_offset log_start_ms groups_limited"
_GROUP = "group topic queue_id queue_offset state deliveries until_ms user address"
_EVENT = (
    "what time_ms physical_offset group topic queue_id queue_offset delivery until_ms position "
    "message_id user address"
)
_GROUPS = ("group", "topic", "queue", "now", "deliveries", "until", "with")
_EVENTS = ("time", "event", "group", "topic", "delivery", "until", "who", "message")
#: Most redrives that are followed from one message to the next.
_MOST_FOLLOWED = 20
#: Events whose message id is the id of the previous message in the chain.
_CAME_FROM = (TraceEventKind.BURIED, TraceEventKind.TIMER_SET, TraceEventKind.BEGUN)


@click.command()
@click.argument("message_id", type=text)
@click.option(
    "--delayed",
    type=text,
    metavar="TOPIC",
    help="MESSAGE_ID is the handle of a delayed message of TOPIC.",
)
@click.option("--transaction", is_flag=True, help="MESSAGE_ID is the id of a transaction.")
@click.option(
    "--search",
    "search_s",
    type=click.FloatRange(0, 3600),
    metavar="SECONDS",
    default=10.0,
    show_default=True,
    help="How long to search the log.",
)
@click.option("--after", type=text, default="", help="Continue a search that took too long.")
@server_options
def trace(
    message_id: str,
    delayed: str | None,
    transaction: bool,
    search_s: float,
    after: str,
    server: str,
    as_json: bool,
) -> None:
    """Show what became of a message: who received it, how often, when it was acknowledged.

    MESSAGE_ID is what put returned. Dead letters, and delayed and half messages,
    can be traced as well.
    """
    if delayed is not None and transaction:
        raise click.UsageError("--delayed and --transaction exclude each other")
    if delayed is None and not transaction and not _is_message_id(message_id):
        raise click.UsageError(
            f"{message_id!r:.80} is not a message id: those have 32 or 56 hexadecimal digits. Add "
            "--delayed TOPIC for the handle of a delayed message, --transaction for the id of a "
            "transaction; find ids by key with: kvcq query TOPIC KEY"
        )
    with connect(server) as client:
        found = client.trace(
            "" if delayed is not None or transaction else message_id,
            handle=message_id if delayed is not None else "",
            topic=delayed or "",
            transaction_id=message_id if transaction else "",
            search_s=search_s,
            page_token=after,
        )
        others = _followed(client, found, search_s)
    if as_json:
        again = [_document(one) for one in others]
        print_json({**_document(found), "redriven": again})
        return
    _print(found)
    for one in others:
        say(f"it was redriven as {one.message_id}:")
        _print(one)
    if found.next_page_token:
        how = ["--delayed", delayed] if delayed is not None else ["--transaction"] * transaction
        command = ["kvcq", "trace", message_id, *how, "--after", found.next_page_token]
        until = "" if found.searched_until_ms is None else time_text(found.searched_until_ms)
        say(f"the search ended at {until}, before the log's end; groups are shown as they are now")
        print_next(shlex.join(command), None)


def _followed(client: Client, found: Trace, search_s: float) -> list[Trace]:
    """Traces of the messages that this message was redriven as, one after the other."""
    others: list[Trace] = []
    ids = deque(found.redriven_as)
    while ids and len(others) < _MOST_FOLLOWED:
        with suppress(NotFoundError):  # dropped by retention
            others.append(client.trace(ids.popleft(), search_s=search_s))
            ids.extend(others[-1].redriven_as)
    return others


def _document(found: Trace) -> dict[str, object]:
    return {
        **document_of(found, _MESSAGE),
        "state": found.state.value,
        "outcome": None if found.end is None else found.end.what.value,
        "places": [document_of(one, "topic queue_id offset") for one in found.places],
        "groups": [
            {
                **document_of(one, _GROUP),
                "state": one.state.value,
                "outcome": found.outcome(one),
            }
            for one in found.groups
        ],
        "events": [{**document_of(one, _EVENT), "what": one.what.value} for one in found.events],
        **document_of(found, _LOG),
    }


def _is_message_id(message_id: str) -> bool:
    """Also of the id that a RocketMQ client shows, about which the server's error is better."""
    return len(message_id) in (32, 34, 56) and all(
        each in "0123456789abcdefABCDEF" for each in message_id
    )


def _print(found: Trace) -> None:
    waits = {MessageState.PENDING: "waits for its time", MessageState.OPEN: "waits for a decision"}
    end = found.end
    rows = [
        ("message", found.message_id),
        ("topic", found.topic),
        ("stored", time_text(found.store_time_ms)),
        ("state", waits.get(found.state, found.state.value) if end is None else end.what.value),
    ]
    rows += [
        ("stands in", f"{one.topic}, queue {one.queue_id}, offset {one.offset}")
        for one in found.places
    ]
    if found.due_ms is not None:
        rows.append(("due", time_text(found.due_ms)))
    if found.producer_group:
        rows.append(("producers", found.producer_group))
    since = "" if found.log_start_ms is None else f", {time_text(found.log_start_ms)}"
    rows.append(("log begins at", f"{found.log_start_offset}{since}"))
    print_table("", ("field", "value"), rows)
    if found.groups:
        print_table("groups", _GROUPS, [_group_row(found, one) for one in found.groups])
    if found.events:
        print_table("events", _EVENTS, [_event_row(found, one) for one in found.events])
    if not found.groups and not found.events:
        say("no group has received or read it yet")
    if found.groups_limited:
        say("groups that you have no right to read with are not shown")


def _group_row(found: Trace, one: TracedGroup) -> tuple[object, ...]:
    return (
        one.group,
        one.topic,
        one.queue_id,
        found.outcome(one),
        one.deliveries or "-",
        "-" if one.until_ms is None else time_text(one.until_ms),
        _who(one),
    )


def _event_row(found: Trace, one: TraceEvent) -> tuple[object, ...]:
    what = one.what.value
    if one.position is not None:
        what += f", to {one.position}"
    link = one.message_id
    came_back = one.what is TraceEventKind.REDRIVEN and link not in found.redriven_as
    if link and (came_back or one.what in _CAME_FROM):
        link = f"was {link}"
    return (
        time_text(one.time_ms),
        what,
        one.group or "-",
        one.topic or "-",
        one.delivery or "-",
        "-" if one.until_ms is None else time_text(one.until_ms),
        _who(one),
        link or "-",
    )


def _who(one: TraceEvent | TracedGroup) -> str:
    return " ".join(filter(None, (one.user, one.address))) or "-"
