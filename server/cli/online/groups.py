"""kvcq group …: list, describe, reset, delete."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from kvcq_client import PermissionDeniedError, Start
from server.cli.online.connection import command_at, connect, server_options
from server.cli.terminal import (
    INT64_MAX,
    QUEUE,
    TIME,
    TIMES,
    CommandError,
    Sections,
    ask,
    counted,
    document_of,
    print_done,
    print_json,
    print_table,
    say,
    text,
)
from server.texts import whole_number

if TYPE_CHECKING:
    from kvcq_client import Client, GroupOffset


@click.group(cls=Sections)
def group() -> None:
    """Show and manage the reader groups of a running server."""


@group.command("list")
@server_options
def list_groups(server: str, as_json: bool) -> None:
    """List the groups that have committed offsets, with their lag."""
    with connect(server) as client:
        rows = [(name, client.group_offsets(name)) for name in client.groups()]
    shown = [(name, len(each), sum(one.lag for one in each)) for name, each in rows]
    if as_json:
        print_json([{"group": name, "queues": queues, "lag": lag} for name, queues, lag in shown])
    elif shown:
        print_table("", ("group", "queues", "lag"), shown)
    else:
        say("no groups")


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.option("--topic", type=text, help="Only this topic.")
@server_options
def describe(name: str, topic: str | None, server: str, as_json: bool) -> None:
    """Show the committed offset and the lag of GROUP in each queue."""
    with connect(server) as client:
        found = client.group_offsets(name)
        if not found:
            _require(client, name, server)
    found = [one for one in found if topic in (None, one.topic)]
    if not found:
        where = "any existing topic" if topic is None else topic
        raise CommandError(
            f"group {name!r} has no committed offsets in {where}",
            command=command_at(server, "group list"),
            code="NOTHING_COMMITTED",
        )
    _show(name, found, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.argument("topic", type=text)
@click.option(
    "--to",
    metavar="WHERE",
    required=True,
    help=f"earliest, latest, a queue offset, or the first message since a time. {TIMES}",
)
@click.option(
    "--queue", "queue_ids", type=QUEUE, multiple=True, help="Only this queue; may be repeated."
)
@server_options
def reset(
    name: str,
    topic: str,
    to: str,
    queue_ids: tuple[int, ...],
    server: str,
    as_json: bool,
) -> None:
    """Move the committed offsets of GROUP in TOPIC. Running consumers keep their positions.

    GROUP must exist; `kvcq consume TOPIC --reader-group GROUP --from WHERE`
    creates a group.
    """
    where, time_ms = _where(to)
    with connect(server) as client:
        _require(client, name, server)
        found = client.reset_offsets(name, topic, where, queue_ids=queue_ids, time_ms=time_ms)
    _show(name, found, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def delete(name: str, yes: bool, server: str, as_json: bool) -> None:
    """Delete GROUP and its committed offsets. Messages are not deleted."""
    if not yes:
        without = command_at(server, "group delete", "--yes", name=name)
        ask(f"Delete all offsets of group {name!r}?", without)
    with connect(server) as client:
        _require(client, name, server)
        client.delete_group(name)
    print_done("deleted", name, as_json=as_json)


def _require(client: Client, name: str, server: str) -> None:
    """Raises CommandError when no group of that name has committed anything."""
    if client.group_offsets(name):  # who may administer this group need not see the others
        return
    try:
        known = client.groups()  # also one of topics that are gone
    except PermissionDeniedError:
        known = []
    if name not in known:
        listing = command_at(server, "group list")
        raise CommandError(f"no group {name!r}", command=listing, code="UNKNOWN_GROUP")


def _where(to: str) -> tuple[Start | int, int | None]:
    """A place, and the time that goes before it if `to` is one."""
    if to in (Start.EARLIEST.value, Start.LATEST.value):
        return Start(to), None
    offset = whole_number(to, INT64_MAX)
    if offset is not None:
        return offset, None
    try:
        return Start.EARLIEST, TIME.convert(to, None, None)
    except click.BadParameter as error:
        reason = (
            f"{to!r} is not earliest, latest, an offset, or a time such as -1h or 2026-01-31T12:00"
        )
        raise click.BadParameter(reason, param_hint="--to") from error


def _show(name: str, offsets: list[GroupOffset], *, as_json: bool) -> None:
    if as_json:
        print_json(
            {
                "group": name,
                "queues": [
                    document_of(one, "topic queue_id offset min_offset max_offset lag")
                    for one in offsets
                ],
            }
        )
        return
    print_table(
        f"{name}: {counted(sum(one.lag for one in offsets), 'message')} behind",
        ("topic", "queue", "offset", "min offset", "max offset", "lag"),
        [
            (one.topic, one.queue_id, "-" if one.offset is None else one.offset, *one[3:])
            for one in offsets
        ],
    )
