"""kvcq topic …: create, delete, describe, list."""

from __future__ import annotations

import click

from proto.v1 import kvcq_pb2 as pb
from server.cli.connection import TIMEOUT_S, connect, server_option
from server.cli.output import json_option, notes, print_json, print_table, time_text

PAGE = 1000


@click.group()
def topic() -> None:
    """Topics and light queues of a running server."""


@topic.command()
@click.argument("names", nargs=-1, required=True)
@click.option("--queues", type=click.IntRange(1), help="Queues of each; else the default.")
@server_option
@json_option
def create(names: tuple[str, ...], queues: int | None, server: str, as_json: bool) -> None:  # noqa: FBT001
    """Create topics NAMES. Creating one again with the same settings changes nothing."""
    wanted = [pb.CreateTopicRequest(name=name, queue_count=queues or 0) for name in names]
    with connect(server) as connection:
        made = connection.topics.CreateTopics(
            pb.CreateTopicsRequest(topics=wanted), timeout=TIMEOUT_S
        )
    _show(list(made.topics), as_json=as_json)


@topic.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@server_option
@json_option
def delete(name: str, yes: bool, server: str, as_json: bool) -> None:  # noqa: FBT001
    """Delete topic NAME, or a light queue, with everything in it."""
    if not yes:
        click.confirm(f"Delete {name!r} and all its messages?", abort=True, err=True)
    with connect(server) as connection:
        connection.topics.DeleteTopic(pb.DeleteTopicRequest(name=name), timeout=TIMEOUT_S)
    if as_json:
        print_json({"deleted": name})
    else:
        notes.print(f"deleted {name}")


@topic.command()
@click.argument("name")
@server_option
@json_option
def describe(name: str, server: str, as_json: bool) -> None:  # noqa: FBT001
    """Show topic NAME and the offsets of its queues."""
    with connect(server) as connection:
        answer = connection.topics.DescribeTopic(
            pb.DescribeTopicRequest(name=name), timeout=TIMEOUT_S
        )
    found = answer.topic
    if as_json:
        document = _document(found)
        document["queues"] = [
            {"queueId": one.queue_id, "minOffset": one.min_offset, "maxOffset": one.max_offset}
            for one in answer.queues
        ]
        print_json(document)
        return
    print_table(
        f"{found.name}: created {time_text(found.created_time_ms)}",
        ("queue", "min offset", "max offset", "messages"),
        [
            (one.queue_id, one.min_offset, one.max_offset, one.max_offset - one.min_offset)
            for one in answer.queues
        ],
    )


@topic.command("list")
@click.option("--prefix", default="", help="Names that begin with this.")
@click.option("--light-queues", is_flag=True, help="Light queues instead of topics.")
@click.option("--limit", type=click.IntRange(1), default=PAGE, show_default=True)
@server_option
@json_option
def list_topics(
    prefix: str,
    light_queues: bool,  # noqa: FBT001 - click passes options by name
    limit: int,
    server: str,
    as_json: bool,  # noqa: FBT001
) -> None:
    """List topics by name."""
    found: list[pb.Topic] = []
    token, more = "", True
    with connect(server) as connection:
        while more and len(found) < limit:
            page = connection.topics.ListTopics(
                pb.ListTopicsRequest(
                    prefix=prefix,
                    page_size=min(PAGE, limit - len(found)),
                    page_token=token,
                    light_queues=light_queues,
                ),
                timeout=TIMEOUT_S,
            )
            found.extend(page.topics)
            token = page.next_page_token
            more = bool(token)
    _show(found, as_json=as_json)
    if more:
        notes.print("there are more; show them with a larger --limit, or --prefix")


def _show(topics: list[pb.Topic], *, as_json: bool) -> None:
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


def _document(one: pb.Topic) -> dict[str, object]:
    return {
        "name": one.name,
        "queueCount": one.queue_count,
        "createdTimeMs": one.created_time_ms,
    }
