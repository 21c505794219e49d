"""kvcq topic …: create, delete, describe, list."""

from __future__ import annotations

from itertools import islice

import click

from kvcq_client import LIGHT_PREFIX, NotFoundError, Queue, Topic
from server.cli.online.connection import command_at, connect, server_option
from server.cli.terminal import (
    COUNT,
    CommandError,
    Sections,
    ask,
    document_of,
    json_option,
    notes,
    print_json,
    print_table,
    text,
    time_text,
)

PAGE = 1000


@click.group(cls=Sections)
def topic() -> None:
    """Topics and light queues of a running server."""


@topic.command()
@click.argument("names", type=text, nargs=-1, required=True)
@click.option("--queues", type=COUNT, help="Queues of each, up to 65,536; otherwise the default.")
@server_option
@json_option
def create(names: tuple[str, ...], queues: int | None, server: str, as_json: bool) -> None:
    """Create topics NAMES. Creating one again with the same settings changes nothing."""
    with connect(server) as client:
        made = client.create_topics(dict.fromkeys(names, queues))
    _show(made, as_json=as_json)


@topic.command()
@click.argument("name", type=text)
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@json_option
def delete(name: str, yes: bool, server: str, as_json: bool) -> None:
    """Delete topic NAME, or a light queue, with everything in it."""
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
    if as_json:
        print_json({"deleted": name})
    else:
        notes.print(f"deleted {name}")


@topic.command()
@click.argument("name", type=text)
@server_option
@json_option
def describe(name: str, server: str, as_json: bool) -> None:
    """Show topic NAME, or a light queue, and the offsets of its queues."""
    with connect(server) as client:
        # A light queue has one queue, and no row of a topic.
        is_light = name.startswith(LIGHT_PREFIX)
        found = Topic(name, 1, 0) if is_light else client.describe_topic(name)
        offsets = client.offsets(Queue(name, queue_id) for queue_id in range(found.queue_count))
    if as_json:
        document = _document(found)
        document["queues"] = [
            {"queueId": queue.queue_id, "minOffset": low, "maxOffset": high}
            for queue, (low, high) in offsets.items()
        ]
        print_json(document)
        return
    print_table(
        f"{found.name}: created {time_text(found.created_time_ms)}",
        ("queue", "min offset", "max offset", "messages"),
        [(queue.queue_id, low, high, high - low) for queue, (low, high) in offsets.items()],
    )


@topic.command("list")
@click.option("--prefix", type=text, default="", help="Names that begin with this.")
@click.option("--light-queues", is_flag=True, help="Light queues instead of topics.")
@click.option("--limit", type=COUNT, default=PAGE, show_default=True, help="Names at most.")
@server_option
@json_option
def list_topics(prefix: str, light_queues: bool, limit: int, server: str, as_json: bool) -> None:
    """List topics by name."""
    with connect(server) as client:
        every = client.topics(prefix, light_queues=light_queues)
        found = list(islice(every, limit + 1))
    if light_queues and len(found) <= limit:
        found.sort()  # they come by the length of their names
    _show(found[:limit], as_json=as_json)
    if len(found) > limit:
        notes.print("there are more; show them with a larger --limit, or --prefix")


def _show(topics: list[Topic], *, as_json: bool) -> None:
    if as_json:
        print_json([_document(one) for one in topics])
    elif topics:
        print_table(
            "",
            ("topic", "queues", "created"),
            [(one.name, one.queue_count, time_text(one.created_time_ms)) for one in topics],
        )
    else:
        notes.print("no topics")


def _document(one: Topic) -> dict[str, object]:
    return document_of(one, "name queue_count created_time_ms")
