"""kvcq lite …: manage parents of lite topics, and their lite topics."""

from __future__ import annotations

import click

from server.cli.online.connection import command_at, connect, server_options
from server.cli.terminal import COUNT, SPAN, Sections, ask, counted, print_json, say, text


@click.group(cls=Sections)
def lite() -> None:
    """Manage lite topics: millions of sessions below a parent topic.

    A message for one is put with `kvcq put PARENT --lite NAME`.
    """


@lite.command()
@click.argument("parent", type=text)
@click.option(
    "--expire",
    "expiry_ms",
    type=SPAN,
    default=0,
    help="Delete lite topics that are idle for this long, such as 7d.",
)
@click.option("--queues", type=COUNT, help="Queues of a new topic.")
@server_options
def create(parent: str, expiry_ms: int, queues: int | None, server: str, as_json: bool) -> None:
    """Create the topic PARENT for lite topics, or change when idle ones are deleted.

    Without --expire they are kept.
    """
    with connect(server) as client:
        client.create_lite_parent(parent, expiry_s=expiry_ms / 1000, queue_count=queues or 0)
    if as_json:
        print_json({"topic": parent, "expiryMs": expiry_ms})
    else:
        ends = f"deleted after {expiry_ms / 1000:g} s without a message" if expiry_ms else "kept"
        say(f"topic {parent} has lite topics; idle ones are {ends}")


@lite.command("list")
@click.argument("parent", type=text)
@click.option("--prefix", type=text, default="", help="Only names that begin so.")
@click.option("--limit", type=COUNT, default=1000, show_default=True, help="Names to print.")
@server_options
def list_lite(parent: str, prefix: str, limit: int, server: str, as_json: bool) -> None:
    """List lite topics of PARENT that have messages, shorter names first."""
    found: list[str] = []
    is_more = False
    with connect(server) as client:
        for name in client.list_lite_topics(parent, prefix):
            if len(found) == limit:
                is_more = True
                break
            found.append(name)
    if as_json:
        print_json(found)
    elif found:
        for name in found:
            click.echo(name)
    else:
        say(f"no lite topics of {parent}")
    if is_more:
        say("there are more; show them with a larger --limit")


@lite.command()
@click.argument("parent", type=text)
@click.argument("names", type=text, nargs=-1, required=True)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_options
def delete(parent: str, names: tuple[str, ...], yes: bool, server: str, as_json: bool) -> None:
    """Delete the lite topics NAMES of PARENT, with the positions and deliveries of all groups."""
    if not yes:
        without = command_at(server, "lite delete", parent, *names, "--yes")
        ask(f"Delete {counted(len(names), 'lite topic')} of {parent!r}?", without)
    with connect(server) as client:
        deleted = client.delete_lite_topics(parent, names)
    if as_json:
        print_json({"deleted": deleted})
    else:
        say(f"deleted {counted(deleted, 'lite topic')}")
