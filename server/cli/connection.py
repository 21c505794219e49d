"""A connection to a running server, and its errors in the words of the command line."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from kvcq_client import (
    Client,
    DeadlineError,
    InvalidArgumentError,
    KvcqError,
    UnavailableError,
)
from server.cli.output import BadRequestError, CannotConnectError, CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_SERVER = "127.0.0.1:8081"
#: For one call. A server that is still opening its store is waited for as long.
TIMEOUT_S = 30.0
#: How long to look for a server: one that does not answer by then is not there.
CONNECT_TIMEOUT_S = 2.0

server_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--server",
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
        raise _command_error(error, server) from error


def _command_error(error: KvcqError, server: str) -> CommandError:
    if isinstance(error, UnavailableError):
        return CannotConnectError(str(error), "try again in a moment")
    if isinstance(error, DeadlineError):
        return CommandError(f"{server} did not answer in time", "look at: kvcq stats")
    kind = BadRequestError if isinstance(error, InvalidArgumentError) else CommandError
    return kind(str(error), _advice(error.reason, error.metadata))


def _advice(reason: str, metadata: dict[str, str]) -> str:
    match reason:
        case "UNKNOWN_TOPIC":
            name = metadata["topic"]
            return f"see what there is: kvcq topic list   (or: kvcq topic create {name})"
        case "UNKNOWN_QUEUE":
            return f"its queues: kvcq topic describe {metadata['topic']}"
        case "OFFSET_OUT_OF_RANGE":
            return f"use an offset from {metadata['minOffset']} to {metadata['maxOffset']}"
        case "TOPIC_EXISTS":
            return f"its settings: kvcq topic describe {metadata['topic']}"
        case "DISK_FULL":
            return "free disk space, or lower store.reserved_hours; reads go on meanwhile"
        case "STORE_FAILED" | "FLUSH_FAILED":
            return "look at the server's log and the disk, then restart the server"
        case "CORRUPT_RECORD" | "DAMAGED_QUEUE" | "CORRUPT_VALUE":
            return "stop the server, then: kvcq check DIR"
        case "INTERNAL":
            return "look for the request id in the server's log"
        case _:
            return ""
