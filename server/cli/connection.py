"""A connection to a running server, and its errors in the words of the command line."""

from __future__ import annotations

from contextlib import contextmanager
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import (
    LIGHT_PREFIX,
    Client,
    DeadlineError,
    InvalidArgumentError,
    KvcqError,
    ResourceExhaustedError,
    UnavailableError,
)
from server.cli.output import BadRequestError, CannotConnectError, CommandError
from server.cli.values import server as server_target

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_SERVER = "127.0.0.1:8081"
#: For one call. A server that is still opening its store is waited for as long.
TIMEOUT_S = 30.0
#: How long to look for a server: one that does not answer by then is not there.
CONNECT_TIMEOUT_S = 2.0

server_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--server",
    type=server_target,
    default=DEFAULT_SERVER,
    show_default=True,
    envvar="KVCQ_SERVER",
    metavar="HOST:PORT",
    help="The server to ask; also from KVCQ_SERVER.",
)


@contextmanager
def connect(server: str) -> Iterator[Client]:
    """A client for the length of a command. Raises CommandError for what the client raises."""
    try:
        with Client(server, timeout_s=TIMEOUT_S) as client:
            try:
                # The client tries again for all of its time; a person wants to know soon.
                client.statistics(timeout_s=CONNECT_TIMEOUT_S)
            except (UnavailableError, DeadlineError) as error:
                if error.reason:
                    raise
                raise CannotConnectError(
                    f"cannot reach a server at {server}",
                    "start one with: kvcq serve   (or name another one with --server HOST:PORT)",
                ) from error
            yield client
    except KvcqError as error:
        raise command_error(error, server) from error


def command_error(error: KvcqError, server: str) -> CommandError:
    """The error in the words of the command line: its exit code, and what to do next."""
    if isinstance(error, UnavailableError):
        if error.reason:
            return CannotConnectError(str(error), "try again in a moment", code=error.reason)
        # gRPC's own words name sockets and addresses, and no remedy.
        return CannotConnectError(
            f"the connection to {server} was lost", "is it running? Look with: kvcq stats"
        )
    if isinstance(error, DeadlineError):
        text = f"{server} did not answer in time"
        return CommandError(text, "look at: kvcq stats", code="DEADLINE_EXCEEDED")
    # Without a reason it was gRPC that refused, and that is for size alone.
    too_large = isinstance(error, ResourceExhaustedError) and not error.reason
    if too_large:
        return BadRequestError(str(error), "the server's limit is its max_receive_bytes")
    kind = BadRequestError if isinstance(error, InvalidArgumentError) else CommandError
    return kind(
        str(error),
        _advice(error.reason, error.metadata),
        code=error.reason,
        field=error.metadata.get("field", ""),
    )


def _advice(reason: str, metadata: dict[str, str]) -> str:
    match reason:
        case "UNKNOWN_TOPIC":
            name = metadata["topic"]
            if name.startswith(LIGHT_PREFIX):
                return (
                    "a light queue comes into being with its first message: "
                    f"kvcq put TOPIC BODY --light-queue {quote(name)}   "
                    "(see what there is: kvcq topic list --light-queues)"
                )
            return f"see what there is: kvcq topic list   (or: kvcq topic create {quote(name)})"
        case "UNKNOWN_QUEUE":
            return f"its queues: kvcq topic describe {quote(metadata['topic'])}"
        case "OFFSET_OUT_OF_RANGE":
            return f"use an offset from {metadata['minOffset']} to {metadata['maxOffset']}"
        case "TOPIC_EXISTS":
            return f"its settings: kvcq topic describe {quote(metadata['topic'])}"
        case "DISK_FULL":
            return "free disk space, or lower store.reserved_hours; reads go on meanwhile"
        case "STORE_FAILED" | "FLUSH_FAILED":
            return "look at the server's log and the disk, then restart the server"
        case "CORRUPT_RECORD" | "DAMAGED_QUEUE" | "CORRUPT_VALUE":
            look = "stop the server, then: kvcq check DIR"
            behind = _behind(reason, metadata)
            return f"read on behind it: {behind}   (to look closer, {look})" if behind else look
        case "INTERNAL":
            return "look for the request id in the server's log"
        case _:
            return ""


def _behind(reason: str, metadata: dict[str, str]) -> str:
    """The command that reads behind a message which cannot be read; "" if its place is unknown."""
    damaged = metadata.get("offset" if reason == "DAMAGED_QUEUE" else "queueOffset")
    if damaged is None or "topic" not in metadata:
        return ""
    place = f"--queue {metadata.get('queueId', '0')} --offset {int(damaged) + 1}"
    return f"kvcq pull {quote(metadata['topic'])} {place}"
