"""kvcq consume: print messages of a topic as they arrive, optionally for a group."""

from __future__ import annotations

import shlex
from time import monotonic, sleep
from typing import TYPE_CHECKING

import click

from kvcq_client import (
    LIGHT_PREFIX,
    DataLossError,
    NotFoundError,
    OffsetOutOfRangeError,
    Queue,
    Start,
    UnavailableError,
)
from server.cli.online.connection import (
    client_log_shown,
    command_error,
    connect,
    on_server,
    server_options,
    this_command,
)
from server.cli.online.consume_shared import consume_shared
from server.cli.online.messages import (
    REBUILD_LOOK_S,
    REBUILD_LOOKS,
    body_of,
    print_bodies,
    print_documents,
    skip_damaged_option,
    tag_option,
    where_option,
)
from server.cli.terminal import (
    COUNT,
    TIME,
    TIMES,
    body_text,
    console,
    escape,
    one_line,
    say,
    text,
    time_text,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq_client import Client, Consumer, StoredMessage

#: Interval of commits of a reader group, seconds; it also commits at the end.
_COMMIT_S = 1.0
#: Longest wait for messages before a commit is due, seconds.
_WAIT_S = 1.0


@click.command()
@click.argument("topic", type=text)
@click.option(
    "--group",
    "shared_group",
    metavar="GROUP",
    type=text,
    default="",
    help="Share the messages with the other members of GROUP: receive messages, and acknowledge "
    "each after it was printed. GROUP is created if it does not exist.",
)
@click.option(
    "--reader-group",
    "group",
    metavar="GROUP",
    type=text,
    default="",
    help="Start at the committed offsets of GROUP, and commit its progress. Every consumer of a "
    "reader group reads every message.",
)
@click.option(
    "--follow", "-f", is_flag=True, help="At the end, wait for new messages until Ctrl-C."
)
@click.option(
    "--from",
    "where",
    metavar="WHERE",
    help=f"earliest, latest, or a time. {TIMES}  [default: the committed offsets, or earliest]",
)
@tag_option
@where_option
@click.option("--limit", type=COUNT, help="Stop after N messages.")
@skip_damaged_option
@click.option("--raw", is_flag=True, help="Print only the bodies, one per line.")
@server_options
def consume(
    topic: str,
    shared_group: str,
    group: str,
    follow: bool,
    where: str | None,
    tag_filter: str,
    sql_filter: str,
    limit: int | None,
    skip_damaged: bool,
    raw: bool,
    server: str,
    as_json: bool,
) -> None:
    """Read all queues of TOPIC, or a light queue (%LMQ%…), message by message.

    Stops at the end of the queues, unless --follow is given. With --reader-group, the next run
    continues after the last message printed; after a crash, messages of the last second may be
    printed again. With --group it stops when there is nothing to receive; a message that was
    received and not printed goes to another member.
    """
    if raw and as_json:
        raise click.UsageError("--raw and --json exclude each other")
    show = print_documents if as_json else print_bodies if raw else _print_lines
    if shared_group:
        if group or where is not None or skip_damaged:
            option = "--reader-group" if group else "--skip-damaged" if skip_damaged else "--from"
            raise click.UsageError(f"--group and {option} exclude each other")
        with client_log_shown(), connect(server) as client:
            sharing = consume_shared(
                *(client, shared_group, topic, show),
                limit=limit,
                follow=follow,
                tag_filter=tag_filter,
                sql_filter=sql_filter,
            )
        if not sharing and not as_json and not raw:
            say("no messages")
        return
    count = 0
    with (
        client_log_shown(),
        connect(server) as client,
        client.consumer(
            reader_group=group,
            tag_filter=tag_filter,
            sql_filter=sql_filter,
            skip_damaged=skip_damaged,
        ) as consumer,
    ):
        consumer.follow(_begin(client, topic, group, where))
        commits = _Commits(consumer, is_patient=follow, goes_back=where is not None)
        try:
            for batch in _batches(consumer, limit, follow=follow):
                try:
                    show(batch)
                except BaseException:  # messages that were not printed do not count as read
                    if consumer.queue is not None:
                        consumer.seek({consumer.queue: batch[0].queue_offset})
                    raise
                count += len(batch)
                if group:
                    commits.look()
        except DataLossError as error:
            told = command_error(error, server)
            if error.next_offset is not None:
                told.command = this_command(server, "--skip-damaged")
            raise told from error
        except OffsetOutOfRangeError as error:
            told = command_error(error, server)
            if group:
                told.hint = (
                    "retention removed messages that the group had not read; the command moves "
                    "the group to the oldest message left"
                )
                queue = error.metadata.get("queueId", "0")
                step = ["group", "reset", group, topic, "--queue", queue, "--to", "earliest"]
                told.command = on_server(shlex.join(["kvcq", *step]), server)
            raise told from error
        finally:
            if group:
                commits.last()
    if not count and not as_json and not raw:
        say("no messages")


class _Commits:
    """Commits the offsets of printed messages, every second."""

    def __init__(self, consumer: Consumer, *, is_patient: bool, goes_back: bool) -> None:
        """`is_patient`: an unreachable server is retried later. `goes_back`: the first commit may
        be below the group's committed offset, because the user said where to begin."""
        self._consumer = consumer
        self._is_patient = is_patient
        self._goes_back = goes_back
        self._committed: dict[Queue, int] = {}
        self._committed_s = monotonic()

    def look(self) -> None:
        """Commit if a commit is due."""
        if monotonic() - self._committed_s < _COMMIT_S:
            return
        try:
            self.last()
        except UnavailableError:
            if not self._is_patient:
                raise
        self._committed_s = monotonic()

    def last(self) -> None:
        """Commit at the end, due or not."""
        positions = self._consumer.positions()
        if positions != self._committed:
            self._consumer.commit(positions, allow_back=self._goes_back)
            self._goes_back = False
            self._committed = positions


def _batches(
    consumer: Consumer, limit: int | None, *, follow: bool
) -> Iterator[list[StoredMessage]]:
    """Yield messages until the end, or forever with `follow`; at most `limit`. Yields [] after a
    second without messages."""
    left = limit
    ends = consumer.batches_to_end() if not follow else iter(lambda: consumer.batch(_WAIT_S), None)
    for batch in ends:
        if left is None:
            yield batch
            continue
        yield batch[:left]
        if len(batch) >= left:
            if len(batch) > left:  # messages that were not printed do not count as read
                queue = consumer.queue
                assert queue is not None
                consumer.seek({queue: batch[left].queue_offset})
            return
        left -= len(batch)


def _begin(client: Client, topic: str, group: str, where: str | None) -> dict[Queue, int]:
    """The offset to begin at, in each queue."""
    if topic.startswith(LIGHT_PREFIX):
        queues = [Queue(topic)]
    else:
        queues = [Queue(topic, each) for each in range(client.describe_topic(topic).queue_count)]
    committed = {}
    if group and where is None:
        try:
            found = client.group_offsets(group, queues)
        except NotFoundError:  # a light queue without messages
            found = []
        committed = {
            Queue(one.topic, one.queue_id): one.offset for one in found if one.offset is not None
        }
    if where is None or where in (Start.EARLIEST.value, Start.LATEST.value):
        begun = {}
        for queue in queues:
            try:
                low, high = client.offsets([queue])[queue]
            except NotFoundError:
                low, high = 0, 0
            offset = high if where == Start.LATEST.value else low
            begun[queue] = committed.get(queue, offset)
        return begun
    try:
        time_ms = TIME.convert(where, None, None)
    except click.BadParameter as error:
        raise click.BadParameter(
            f"{error.message}, earliest or latest", param_hint="--from"
        ) from error
    return {queue: _at_time(client, queue, time_ms) for queue in queues}


def _at_time(client: Client, queue: Queue, time_ms: int) -> int:
    """Offset of the first message stored at that time or later. Waits for a queue that is being
    rebuilt."""
    for left in reversed(range(REBUILD_LOOKS)):
        try:
            return client.search_time(*queue, time_ms)
        except DataLossError as error:
            if error.reason != "DAMAGED_QUEUE" or not left:
                raise
        sleep(REBUILD_LOOK_S)
    raise AssertionError("the last look returns or raises")


def _print_lines(messages: list[StoredMessage]) -> None:
    for message in messages:
        marks = one_line(" ".join(one for one in (message.tag, *message.keys) if one))
        place = f"{message.queue.queue_id}:{message.queue_offset}"
        line = f"{time_text(message.store_time_ms)}  {place:<10}  {marks:<12}  "
        console.print(escape(line + body_text(body_of(message))), highlight=False, soft_wrap=True)
