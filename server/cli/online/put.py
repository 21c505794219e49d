"""kvcq put: one message, or a message for each line of standard input.

Lines are sent in blocks that are stored whole or not at all, one after another. A block ends where
no other line is there yet, so what `tail -f` prints is sent at once. The command ends at
the first line that is rejected: every line before it is stored, and no line after it. The error
names the line, so the rest can be sent by another run.
"""

from __future__ import annotations

import re
import select
import sys
import uuid
from dataclasses import replace
from shlex import quote
from typing import TYPE_CHECKING, cast

import click

from kvcq_client import (
    DeadlineError,
    KvcqError,
    Message,
    NotFoundError,
    NotPossibleError,
    UnavailableError,
    lite_queue,
)
from server.cli.online.connection import command_at, command_error, connect, server_options
from server.cli.online.timers import deliver_at, put_delayed
from server.cli.terminal import (
    QUEUE,
    SPAN,
    TIME,
    BadRequestError,
    CommandError,
    InterruptedCommandError,
    argument_bytes,
    counted,
    notes,
    print_json,
    print_table,
    say,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from io import BufferedReader

    from kvcq_client import Client, Placed

#: Most lines, and bytes of them, that are stored together.
BLOCK_LINES = 5_000
BLOCK_BYTES = 8 << 20
#: Most bytes that are read at a time: what a pipe holds.
_READ_BYTES = 1 << 16
#: Every server accepts requests of this size.
SMALLEST_LIMIT_BYTES = 1 << 16
#: Bytes of a request in addition to the texts of its message: field numbers, lengths, the
#: producer's name.
FRAME_BYTES = 256

_LINE_INDEX = re.compile(r"messages\[(\d+)\]")


@click.command()
@click.argument("topic", type=text)
@click.argument("body", required=False)
@click.option("--queue", type=QUEUE, help="Queue of the topic; by default queues take turns.")
@click.option(
    "--ordering-key",
    type=text,
    default="",
    help="Messages with the same key go to the same queue, in order.",
)
@click.option("--tag", type=text, default="", help="Tag to filter by.")
@click.option("--key", "keys", type=text, multiple=True, help="Key to query for; may be repeated.")
@click.option(
    "--light-queue",
    "light_queues",
    type=text,
    multiple=True,
    help="Light queue, %LMQ%…; may be repeated.",
)
@click.option(
    "--lite", type=text, default="", help="Lite topic of TOPIC, such as the id of a session."
)
@click.option(
    "--property",
    "properties",
    type=text,
    multiple=True,
    metavar="NAME=VALUE",
    help="Property of the message; may be repeated.",
)
@click.option(
    "--delay", "delay_ms", type=SPAN, help="Deliver it after this time, such as 90s or 36h."
)
@click.option("--at", "at_ms", type=TIME, help="Deliver it at this time, UTC: 2026-01-31T12:00.")
@click.option("--lines", is_flag=True, help="Read standard input, one message per line.")
@server_options
def put(
    topic: str,
    body: str | None,
    queue: int | None,
    ordering_key: str,
    tag: str,
    keys: tuple[str, ...],
    light_queues: tuple[str, ...],
    lite: str,
    properties: tuple[str, ...],
    delay_ms: int | None,
    at_ms: int | None,
    lines: bool,
    server: str,
    as_json: bool,
) -> None:
    """Put a message into TOPIC: BODY (which may be ""), or standard input without BODY.

    A new topic is created if the server allows it. With --delay or --at no reader sees the message
    before its time; kvcq timers lists and recalls it. With --lines, the command ends at the first
    line that is rejected: all lines before it are stored, none after it. After Ctrl-C it says how
    many lines are stored.
    """
    if lines and body is not None:
        raise click.UsageError("BODY and --lines exclude each other")
    when = deliver_at(delay_ms, at_ms)
    if lines and when is not None:
        raise click.UsageError("--lines and --delay or --at exclude each other")
    if ordering_key and queue is not None:
        raise click.UsageError("--queue and --ordering-key exclude each other")
    if lite:
        try:
            light_queues = (*light_queues, lite_queue(topic, lite))
        except ValueError as error:
            why = str(error).partition(": ")[2]
            raise BadRequestError(f"--lite: {why}", field="lite") from error
    template = Message(
        topic,
        b"",
        queue,
        tag,
        keys,
        tuple(dict.fromkeys(light_queues)),
        dict(map(_name_and_value, properties)) or None,
        ordering_key=ordering_key,
    )
    content = b"" if lines else _content(body)
    with connect(server) as client:
        if lite:
            _check_takes_lite(client, topic, server)
        if lines:
            _put_lines(client, server, template, as_json=as_json)
            return
        message = replace(template, body=content)
        size = _request_bytes(message)
        limit = _limit_bytes(client) if size > SMALLEST_LIMIT_BYTES else size
        if size > limit:
            raise BadRequestError(_too_large(message, limit))
        if when is not None:
            put_delayed(client, message, when, as_json=as_json)
            return
        placed = client.put(message)
    if as_json:
        print_json(_document(message, placed))
        return
    place = (topic, placed.queue_id, placed.queue_offset, placed.message_id)
    light = [(name, 0, offset, placed.message_id) for name, offset in _light(message, placed)]
    print_table("", ("topic", "queue", "offset", "message id"), [place, *light])


def _check_takes_lite(client: Client, topic: str, server: str) -> None:
    """Raises BadRequestError if the topic was not created for lite topics: no group would receive
    the message."""
    try:
        if client.describe_topic(topic).lite is not None:
            return
        what = "is not made for lite topics"
    except NotFoundError:
        what = "does not exist"
    raise BadRequestError(
        f"--lite: topic {topic!r} {what}, so no consumer would receive the message; nothing was "
        "stored",
        command=command_at(server, "lite create", name=topic),
        field="lite",
    )


def _content(body: str | None) -> bytes:
    """The body of the message. Raises CommandError if standard input is empty, which is usually a
    mistake."""
    if body is not None:
        return argument_bytes(body)
    if sys.stdin.isatty():
        say("reading the body from the terminal; end it with Ctrl-D on an empty line")
    content = sys.stdin.buffer.read()
    if not content:
        raise CommandError(
            "standard input is empty, so no message was put",
            'to put a message without a body, give "" as BODY',
            code="EMPTY_INPUT",
        )
    return content


def _document(message: Message, placed: Placed) -> dict[str, object]:
    return {
        "topic": message.topic,
        "queueId": placed.queue_id,
        "queueOffset": placed.queue_offset,
        "physicalOffset": placed.physical_offset,
        "messageId": placed.message_id,
        "storeTimeMs": placed.store_time_ms,
        "lightQueues": dict(_light(message, placed)),
    }


def _light(message: Message, placed: Placed) -> list[tuple[str, int]]:
    return list(zip(message.light_queues, placed.light_queue_offsets, strict=True))


# --- lines -----------------------------------------------------------------------------------


class _Stopped(Exception):
    """Only the first `stored` lines of a block were stored."""

    def __init__(self, stored: int, *, at_line: bool, error: CommandError) -> None:
        super().__init__(str(error))
        self.stored = stored
        self.at_line = at_line  # whether the next line caused the error
        self.error = error


def _put_lines(client: Client, server: str, template: Message, *, as_json: bool) -> None:
    limit = _limit_bytes(client)
    overhead = _request_bytes(template)
    sender = uuid.uuid4().hex
    stored = 0
    sending = 0
    stopped: _Stopped | None = None
    with notes.waiting("putting…") as status:
        try:
            lines = _lines(cast("BufferedReader", sys.stdin.buffer))
            for block in _blocks(lines, min(BLOCK_BYTES, limit // 2), overhead):
                messages = [replace(template, body=line) for line in block]
                sending = len(block)
                _put_block(client, server, messages, sender, stored, limit)
                stored += sending
                sending = 0
                status.update(f"put {stored:,} messages")
        except _Stopped as outcome:
            stored += outcome.stored
            stopped = outcome
        except KeyboardInterrupt:
            why = InterruptedCommandError(f"interrupted{_perhaps(sending)}")
            stopped = _Stopped(0, at_line=False, error=why)
    if as_json:
        print_json({"topic": template.topic, "messages": stored})
    else:
        say(f"put {stored:,} messages into {template.topic}")
    if stopped is not None:
        error, line = stopped.error, stored + 1
        where = "line" if stopped.at_line else "from line"
        go_on = f"tail -n +{line} FILE | kvcq put {quote(template.topic)} --lines"
        hint = f"continue, with the same options: {go_on}"
        if not isinstance(error, InterruptedCommandError):
            hint = f"{error.hint or 'correct it'}; then {hint}"
        raise error.saying(f"{where} {line}: {error.message}", hint=hint) from error


def _perhaps(sent: int) -> str:
    """Of lines that were sent, without an answer."""
    return f"; some of the next {counted(sent, 'line')} may have been stored" if sent else ""


def _lines(source: BufferedReader) -> Iterator[bytes | None]:
    """Yield the lines without their ends; None where no other line is there yet."""
    begun: list[bytes] = []  # pieces of the next line
    while piece := source.read1(_READ_BYTES):
        first, *others = piece.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun).rstrip(b"\r")
            begun = [other]
        if not _has_more(source):
            yield None
    if any(begun):
        yield b"".join(begun).rstrip(b"\r")


def _has_more(source: BufferedReader) -> bool:
    """Whether a read would not wait."""
    try:
        return bool(select.select([source], [], [], 0)[0])
    except (OSError, ValueError):  # it is not a file of the system, so it never waits
        return True


def _blocks(
    lines: Iterable[bytes | None], block_bytes: int, overhead: int
) -> Iterator[list[bytes]]:
    block: list[bytes] = []
    size = 0
    for line in lines:
        line_bytes = overhead + (0 if line is None else len(line))
        if block and (line is None or len(block) == BLOCK_LINES or size + line_bytes > block_bytes):
            yield block
            block, size = [], 0
        if line is not None:
            block.append(line)
            size += line_bytes
    if block:
        yield block


def _put_block(
    client: Client, server: str, messages: list[Message], sender: str, sequence: int, limit: int
) -> None:
    """Store the block. If a line is rejected, store the lines before it, and raise _Stopped."""
    for index, message in enumerate(messages):
        if _request_bytes(message) > limit:
            if index:
                _put_block(client, server, messages[:index], sender, sequence, limit)
            why = BadRequestError(_too_large(message, limit))
            raise _Stopped(index, at_line=True, error=why)
    try:
        client.put_numbered(messages, producer_id=sender, sequence=sequence)
    except KvcqError as error:
        why_not = command_error(error, server)
        field = error.metadata.get("field", "")
        found = _LINE_INDEX.match(field)
        if found is None:
            if isinstance(error, UnavailableError | DeadlineError) and not error.reason:
                why_not = why_not.saying(why_not.message + _perhaps(len(messages)))
            raise _Stopped(0, at_line=False, error=why_not) from error
        index = int(found[1])
        # Without the index: it is that in the block, not the number of the line.
        prefix = f"{found[0]}."
        reason = why_not.message.replace(prefix, "")
        why_not = why_not.saying(reason, field=field.replace(prefix, ""))
        if index:
            _put_block(client, server, messages[:index], sender, sequence, limit)
        raise _Stopped(index, at_line=True, error=why_not) from error


# --- sizes and texts -------------------------------------------------------------------------


#: Above the limit of every server.
_NOT_TOLD = 2**31


def _limit_bytes(client: Client) -> int:
    """The server's limit for a request. Unknown, and so unlimited, while the server starts, or if
    administration has another port; then the server rejects requests that are too large."""
    try:
        return int(client.statistics().get("server.max_receive_bytes", _NOT_TOLD))
    except NotPossibleError as error:
        if error.reason != "SERVED_ELSEWHERE":
            raise
        return _NOT_TOLD


def _request_bytes(message: Message) -> int:
    """An upper bound of the size of a request with this message only."""
    properties = (message.properties or {}).items()
    texts = [
        *(message.topic, message.tag, message.ordering_key),
        *(*message.keys, *message.light_queues),
        *(text for pair in properties for text in pair),
    ]
    return len(message.body) + sum(len(text.encode()) + 8 for text in texts) + FRAME_BYTES


def _too_large(message: Message, limit: int) -> str:
    size = len(message.body)
    return f"a body of {size:,} bytes is too large: the server accepts requests of {limit:,} bytes"


def _name_and_value(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator or not name or not value:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--property")
    return name, value
