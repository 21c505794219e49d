"""kvcq dlq …: list, show, redrive and delete dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from server.cli.online.connection import command_at, connect, server_options
from server.cli.online.messages import print_documents, print_message
from server.cli.terminal import (
    COUNT,
    OFFSET,
    CommandError,
    Sections,
    ask,
    counted,
    document_of,
    print_first,
    print_json,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client import Client, DeadLetter

_DOCUMENT = "offset topic queue_id queue_offset message_id deliveries time_ms"


@click.group(cls=Sections)
def dlq() -> None:
    """Manage dead letters: messages delivered as often as their group allows.

    Each group has its own, named by their OFFSETs. They are kept as long as
    the group says, 30 days by default.
    """


@dlq.command("list")
@click.argument("group", type=text)
@click.option("--limit", type=COUNT, default=100, show_default=True, help="Rows to print.")
@server_options
def list_letters(group: str, limit: int, server: str, as_json: bool) -> None:
    """List the dead letters of GROUP, the oldest first."""
    with connect(server) as client:
        found = client.dead_letters(group, max_letters=limit + 1)
    columns: dict[str, Callable[[DeadLetter], object]] = {
        "offset": lambda one: one.offset,
        "from": lambda one: one.topic or "-",
        "queue": lambda one: one.queue_id,
        "queue offset": lambda one: "-" if one.queue_offset is None else one.queue_offset,
        "deliveries": lambda one: one.deliveries,
        "since": lambda one: time_text(one.time_ms),
        "message id": lambda one: one.message_id or "-",
    }
    none = f"no dead letters of group {group}"
    print_first(found, limit, _DOCUMENT, columns, none, as_json=as_json)


@dlq.command()
@click.argument("group", type=text)
@click.argument("offset", type=OFFSET, metavar="OFFSET")
@server_options
def show(group: str, offset: int, server: str, as_json: bool) -> None:
    """Show the dead letter of GROUP at OFFSET, with its body."""
    with connect(server) as client:
        letter = _find(client, group, offset, server)
        pulled = client.pull(f"%DLQ%{group}", 0, letter.place, max_messages=1)
    if as_json:
        print_documents(pulled.messages)
        return
    for message in pulled.messages:
        print_message(message)


def _find(client: Client, group: str, offset: int, server: str) -> DeadLetter:
    """The dead letter at that offset. Raises CommandError."""
    after = offset - 1 if offset else None
    for letter in client.dead_letters(group, after=after, max_letters=1):
        if letter.offset == offset:
            return letter
    raise CommandError(
        f"group {group!r} has no dead letter at offset {offset}",
        command=command_at(server, "dlq list", name=group),
        code="UNKNOWN_DEAD_LETTER",
    )


@dlq.command()
@click.argument("group", type=text)
@click.argument("offsets", type=OFFSET, nargs=-1, metavar="[OFFSET]...")
@click.option("--limit", type=COUNT, help="Messages to put back; by default all.")
@server_options
def redrive(
    group: str, offsets: tuple[int, ...], limit: int | None, server: str, as_json: bool
) -> None:
    """Put dead letters of GROUP back into their original topics.

    Those at the OFFSETs, or all of them, the oldest first. Each is put back
    once, as a new message at the end of its queue, with its key, but another id:
    every group of the topic receives it. Messages whose topic no longer
    exists stay. The exit code is 1 if nothing was put back, or there is no dead
    letter at one of the OFFSETs.
    """
    with connect(server) as client:
        done = client.redrive(group, offsets, max_messages=limit)
    if as_json:
        print_json(document_of(done, "redriven left"))
    elif done.redriven:
        say(f"put back {counted(done.redriven, 'message')}")
    stayed = f"{counted(done.left, 'message')} stayed: their topics no longer exist"
    if done.left and done.redriven and not as_json:
        say(stayed)
    missing = len(set(offsets)) - done.redriven - done.left
    if missing > 0 and done.redriven != limit:  # otherwise the rest was not looked at
        raise _none_there(group, missing, server)
    if done.left and not done.redriven:
        raise CommandError(stayed, command=command_at(server, "dlq list", name=group))
    if not done.redriven:
        raise CommandError(
            f"group {group!r} has no dead letters: nothing was put back",
            command=command_at(server, "dlq list", name=group),
            code="UNKNOWN_DEAD_LETTER",
        )


def _none_there(group: str, missing: int, server: str) -> CommandError:
    return CommandError(
        f"{counted(missing, 'offset')} skipped: group {group!r} has no dead letter there",
        command=command_at(server, "dlq list", name=group),
        code="UNKNOWN_DEAD_LETTER",
    )


@dlq.command()
@click.argument("group", type=text)
@click.argument("offsets", type=OFFSET, nargs=-1, required=True, metavar="OFFSET...")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def delete(group: str, offsets: tuple[int, ...], yes: bool, server: str, as_json: bool) -> None:
    """Delete the dead letters of GROUP at the OFFSETs."""
    if not yes:
        names = [group, *map(str, offsets)]
        without = command_at(server, "dlq delete", *names[1:], "--yes", name=group)
        ask(f"Delete {counted(len(offsets), 'dead letter')} of group {group!r}?", without)
    with connect(server) as client:
        deleted = client.delete_dead_letters(group, offsets)
    if as_json:
        print_json({"deleted": deleted})
    elif deleted:
        say(f"deleted {counted(deleted, 'dead letter')}")
    if (missing := len(set(offsets)) - deleted) > 0:
        raise _none_there(group, missing, server)
