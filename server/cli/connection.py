"""A connection to a running server, and its errors in the words of the command line."""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import click
import grpc
from google.rpc import error_details_pb2
from grpc_status import rpc_status

from proto.v1 import kvcq_pb2_grpc
from server.cli.output import BadRequestError, CannotConnectError, CommandError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_SERVER = "127.0.0.1:8081"
#: A pull may bring one message more than its byte limit; one message has at most 1 GiB.
_MAX_RECEIVE_BYTES = (1 << 31) - 1
#: For calls that should be quick; what may wait is given more.
TIMEOUT_S = 30.0

server_option: Callable[[Callable[..., Any]], Callable[..., Any]] = click.option(
    "--server",
    default=DEFAULT_SERVER,
    show_default=True,
    envvar="KVCQ_SERVER",
    metavar="HOST:PORT",
    help="The server to ask; also from KVCQ_SERVER.",
)


@dataclass(frozen=True)
class Connection:
    """The services of one server."""

    messages: kvcq_pb2_grpc.MessageServiceStub
    topics: kvcq_pb2_grpc.TopicServiceStub
    groups: kvcq_pb2_grpc.GroupServiceStub
    admin: kvcq_pb2_grpc.AdminServiceStub


@contextmanager
def connect(server: str) -> Iterator[Connection]:
    """A connection for the length of a command. Raises CommandError for what gRPC refuses."""
    options = (
        ("grpc.max_receive_message_length", _MAX_RECEIVE_BYTES),
        ("grpc.max_send_message_length", -1),
    )
    try:
        with grpc.insecure_channel(server, options=options) as channel:
            yield Connection(
                kvcq_pb2_grpc.MessageServiceStub(channel),
                kvcq_pb2_grpc.TopicServiceStub(channel),
                kvcq_pb2_grpc.GroupServiceStub(channel),
                kvcq_pb2_grpc.AdminServiceStub(channel),
            )
    except grpc.RpcError as error:
        raise _command_error(error, server) from error


def _command_error(error: grpc.RpcError, server: str) -> CommandError:
    code, message = error.code(), error.details() or ""
    reason, metadata = _error_info(error)
    if code is grpc.StatusCode.UNAVAILABLE and not reason:
        return CannotConnectError(
            f"cannot reach a server at {server}",
            "start one with: kvcq serve   (or name another one with --server HOST:PORT)",
        )
    if code is grpc.StatusCode.UNAVAILABLE:
        return CannotConnectError(message, "try again in a moment")
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return CommandError(f"{server} did not answer in time", "look at: kvcq stats")
    kind = BadRequestError if code is grpc.StatusCode.INVALID_ARGUMENT else CommandError
    return kind(f"{message} ({reason or code.name})", _advice(reason, metadata))


def _error_info(error: grpc.RpcError) -> tuple[str, dict[str, str]]:
    # Every error of a stub's call is a call as well; the stubs' types do not say so.
    status = rpc_status.from_call(cast("grpc.Call", error))
    for detail in status.details if status is not None else ():
        info = error_details_pb2.ErrorInfo()
        if detail.Unpack(info):
            return info.reason, dict(info.metadata)
    return "", {}


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
