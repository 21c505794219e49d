"""kvcq group …: create, update, list, describe, reset, pause, resume, delete."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import NotFoundError, Start
from server.cli.online.connection import command_at, connect, server_options
from server.cli.online.groups_shown import print_offsets, print_settings, print_shared, row_of
from server.cli.terminal import (
    COUNT,
    INT64_MAX,
    QUEUE,
    SPAN,
    TIME,
    TIMES,
    CommandError,
    Sections,
    ask,
    counted,
    print_done,
    print_json,
    print_table,
    say,
    text,
)
from server.texts import whole_number

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import GroupState

_COLUMNS = ("group", "kind", "queues", "lag", "in flight", "dead letters")


@click.group(cls=Sections)
def group() -> None:
    """Manage the groups of a running server.

    Members of a shared group share the messages of a topic, and acknowledge
    each of them. Consumers of a reader group read all messages, and commit
    the offsets that they have reached.
    """


def _settings(command: Callable[..., None]) -> Callable[..., None]:
    """Adds the options for settings of a group."""
    for option in reversed(
        (
            click.option(
                "--max-deliveries",
                type=COUNT,
                help="Deliveries before a message becomes a dead letter, 1 to 1000.",
            ),
            click.option(
                "--invisible",
                "invisible_ms",
                type=SPAN,
                help="How long a receiver has a message, such as 30s or 10m.",
            ),
            click.option(
                "--most-in-flight",
                type=COUNT,
                help="Messages of one queue that receivers have at a time, 1 to 10000.",
            ),
            click.option(
                "--keep-dead-letters",
                "dead_letters_keep_ms",
                type=SPAN,
                help="How long dead letters are kept, such as 30d.",
            ),
            click.option(
                "--backoff",
                "backoff_ms",
                type=SPAN,
                multiple=True,
                help="Delay before what was given back is delivered again; may be repeated, for "
                "the third delivery and so on.",
            ),
        )
    ):
        command = option(command)
    return command


def _given(settings: dict[str, Any]) -> dict[str, Any]:
    """The settings that the user gave. An empty backoff counts as not given."""
    return {name: value for name, value in settings.items() if value not in (None, ())}


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.option(
    "--in-order", is_flag=True, help="Deliver messages with the same ordering key one by one."
)
@click.option("--from-latest", is_flag=True, help="Begin with new messages, not with the oldest.")
@_settings
@server_options
def create(
    name: str,
    in_order: bool,
    from_latest: bool,
    server: str,
    as_json: bool,
    **settings: Any,  # noqa: ANN401 - those of `_settings`
) -> None:
    """Create the shared group GROUP. Settings that are not given have their defaults.

    --in-order and --from-latest cannot be changed later.
    """
    with connect(server) as client:
        made = client.create_group(
            name, in_order=in_order, from_latest=from_latest, **_given(settings)
        )
    print_settings(name, made, as_json=as_json, said="created")


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@_settings
@click.option("--no-backoff", is_flag=True, help="Deliver what is given back at once.")
@server_options
def update(
    name: str,
    no_backoff: bool,
    server: str,
    as_json: bool,
    **settings: Any,  # noqa: ANN401 - those of `_settings`
) -> None:
    """Change settings of the shared group GROUP. Messages in flight keep their leases."""
    given = _given(settings)
    if no_backoff:
        if "backoff_ms" in given:
            raise click.UsageError("--backoff and --no-backoff exclude each other")
        given["backoff_ms"] = ()
    if not given:
        raise click.UsageError("nothing to change: give at least one setting")
    with connect(server) as client:
        print_settings(name, client.update_group(name, **given), as_json=as_json, said="updated")


@group.command("list")
@server_options
def list_groups(server: str, as_json: bool) -> None:
    """List all groups with their kind, and with their lag: messages not committed, or not done."""
    with connect(server) as client:
        rows = []
        for name in client.groups():
            with suppress(NotFoundError):  # it was deleted since it was listed
                state = client.describe_group(name)
                offsets = [] if state.is_shared else client.group_offsets(name)
                rows.append(row_of(name, state, offsets))
    if as_json:
        print_json([row.document() for row in rows])
    elif rows:
        print_table("", _COLUMNS, [row.cells() for row in rows])
    else:
        say("no groups")


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.option("--topic", type=text, help="Only this topic.")
@server_options
def describe(name: str, topic: str | None, server: str, as_json: bool) -> None:
    """Show the settings of GROUP, and where it is in each queue."""
    with connect(server) as client:
        state = client.describe_group(name)
        found = [] if state.is_shared else client.group_offsets(name)
    if state.settings is not None:
        queues = [one for one in state.queues if topic in (None, one.topic)]
        print_shared(name, state._replace(queues=queues), as_json=as_json)
        return
    found = [one for one in found if topic in (None, one.topic)]
    if not found:
        where = "any existing topic" if topic is None else topic
        raise CommandError(
            f"group {name!r} has no committed offsets in {where}",
            command=command_at(server, "group list"),
            code="NOTHING_COMMITTED",
        )
    print_offsets(name, found, as_json=as_json)


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
    """Move GROUP in TOPIC.

    A shared group loses its messages in flight there: they can no longer be
    acknowledged, and are delivered again unless they are before WHERE. For a
    reader group the committed offsets are moved; running consumers keep their
    positions.
    """
    where, time_ms = _where(to)
    with connect(server) as client:
        if client.describe_group(name).is_shared:
            done = client.reset_group(name, topic, where, queue_ids=queue_ids, time_ms=time_ms)
            state = client.describe_group(name)
            moved = state._replace(queues=done.queues)
            print_shared(name, moved, as_json=as_json, ended=done.ended_in_flight)
            return
        found = client.reset_offsets(name, topic, where, queue_ids=queue_ids, time_ms=time_ms)
    print_offsets(name, found, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@server_options
def pause(name: str, server: str, as_json: bool) -> None:
    """Deliver nothing to the shared group GROUP until `kvcq group resume`.

    What is in flight can still be acknowledged, given back and renewed.
    """
    with connect(server) as client:
        client.update_group(name, paused=True)
    print_done("paused", name, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@server_options
def resume(name: str, server: str, as_json: bool) -> None:
    """Deliver messages to the shared group GROUP again."""
    with connect(server) as client:
        client.update_group(name, paused=False)
    print_done("resumed", name, as_json=as_json)


@group.command()
@click.argument("name", metavar="GROUP", type=text)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def delete(name: str, yes: bool, server: str, as_json: bool) -> None:
    """Delete GROUP, with its position in each queue. Messages are not deleted.

    Messages in flight of a shared group can no longer be acknowledged. Its
    dead letters are kept.
    """
    with connect(server) as client:
        state = client.describe_group(name)
        if not yes:
            without = command_at(server, "group delete", "--yes", name=name)
            ask(_question(name, state), without)
        client.delete_group(name)
    print_done("deleted", name, as_json=as_json)


def _question(name: str, state: GroupState) -> str:
    if not state.is_shared:
        return f"Delete all offsets of group {name!r}?"
    flight = sum(one.in_flight for one in state.queues)
    messages = counted(flight, "message")
    return f"Delete shared group {name!r}? {messages} in flight can then not be acknowledged"


def _where(to: str) -> tuple[Start | int, int | None]:
    """The position for the client's reset, and the time in ms if `to` is a time."""
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
