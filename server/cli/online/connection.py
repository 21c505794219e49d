"""Connects to a running server, and turns its errors into errors of the command line."""

from __future__ import annotations

import logging
import os
import re
import shlex
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from kvcq_client import (
    LIGHT_PREFIX,
    Client,
    DeadlineError,
    HandshakeError,
    InvalidArgumentError,
    KvcqError,
    ResourceExhaustedError,
    UnavailableError,
    keep_freed_memory,
)
from server.cli.online.security import credentials_of, given_options, security_options, tls_of
from server.cli.terminal import (
    BadRequestError,
    CannotConnectError,
    CommandError,
    json_option,
    say,
    server_address,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

DEFAULT_SERVER = "127.0.0.1:8081"
COMMANDLINE = ParameterSource.COMMANDLINE
#: Field of a request to the parameter that sets it, if their names differ.
_PARAMETERS = {
    "queue_id": "queue",
    "queue_count": "queues",
    "retention_time_ms": "keep",
    "retention_bytes": "keep_bytes",
    "retention_messages": "keep_messages",
    "name": "names",
    "begin_time_ms": "since",
    "end_time_ms": "until",
    "time_ms": "to",
    "offset": "to",
    "wait_ms": "wait_s",
    "max_messages": "limit",
    "deliver_at": "delay_ms at_ms",
    "delays_ms": "backoff_ms",
    "expiry_s": "expiry_ms",
    "transaction_id": "transactions message_id",
    "handle": "message_id",
    "topic": "delayed",
    "page_token": "after",
}
#: The index or key in `topics[0].name`, `properties['KEYS']`.
_SUBSCRIPT = re.compile(r"\[.*?\]")
_KEY = re.compile(r"\['(.*)'\]$")
#: Timeout of a call, seconds. Includes waiting for a server that is still opening its store.
TIMEOUT_S = 30.0
#: Timeout of the connection, seconds. After that the server counts as unreachable.
CONNECT_TIMEOUT_S = 2.0


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds --server and the options of security.py, which `connect` uses, and --json."""
    named = click.option(
        "--server",
        type=server_address,
        default=DEFAULT_SERVER,
        show_default=True,
        envvar="KVCQ_SERVER",
        metavar="HOST:PORT",
        help="Address of the server; also from KVCQ_SERVER.",
    )
    return named(security_options(json_option(command)))


@contextmanager
def connect(server: str, timeout_s: float = TIMEOUT_S) -> Iterator[Client]:
    """A client for one command. Turns the client's errors into CommandError."""
    keep_freed_memory()
    try:
        with Client(
            server, timeout_s=timeout_s, tls=tls_of(), credentials=credentials_of()
        ) as client:
            try:
                # A call would be retried until its timeout; report an unreachable server soon.
                client.ping(timeout_s=CONNECT_TIMEOUT_S)
            except (UnavailableError, DeadlineError) as error:
                if error.reason:
                    raise
                # gRPC's message for a host name that cannot be resolved.
                why = ": its name cannot be resolved" if "errors resolving" in error.message else ""
                raise CannotConnectError(
                    f"cannot reach a server at {server}{why}",
                    "is it running? Use --server HOST:PORT for another address",
                    command=_serve_command(server),
                ) from error
            yield client
    except KvcqError as error:
        raise command_error(error, server) from error


def _serve_command(server: str) -> str | None:
    """The command that starts a server at this address; None if it is on another machine."""
    host, _, port = server.rpartition(":")
    if host not in ("127.0.0.1", "localhost"):
        return None
    return "kvcq serve" if server == DEFAULT_SERVER else f"kvcq serve --port {port}"


@contextmanager
def client_log_shown() -> Iterator[None]:
    """Write the client's log lines to standard error."""
    logger = logging.getLogger("kvcq_client")
    handler, level = _NotesHandler(), logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _NotesHandler(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        say(record.getMessage())


def command_at(server: str, command: str, *options: str, name: str = "") -> str:
    """The text of a command for the same server. `name`: its argument; "": none."""
    words = ["kvcq", *command.split()]
    if name.startswith("-"):  # behind `--`, or it would be parsed as an option
        return f"{on_server(shlex.join([*words, *options]), server)} -- {shlex.quote(name)}"
    return on_server(shlex.join([*words, *([name] if name else []), *options]), server)


def this_command(server: str, *options: str) -> str:
    """The command that is running, as it was typed, plus these options."""
    context = click.get_current_context()
    path = context.command_path.partition(" ")[2]
    given: list[str] = []
    names: list[str] = []
    for parameter in context.command.params:
        name = parameter.name or ""
        if name not in context.params or name == "server":
            continue
        if context.get_parameter_source(name) is not COMMANDLINE:
            continue
        value = context.params[name]
        if isinstance(parameter, click.Argument):
            names.append(str(value))
        elif parameter.opts and isinstance(value, bool):
            given.append(parameter.opts[0])
        else:
            given += [parameter.opts[0], str(value)]
    assert len(names) == 1, "of a command with one argument"
    return command_at(server, path, *given, *options, name=names[0])


def on_server(command: str, server: str) -> str:
    """The command, with --server unless the server is the default."""
    implied = os.environ.get("KVCQ_SERVER") or DEFAULT_SERVER
    named = command if server == implied else f"{command} --server {shlex.quote(server)}"
    return named + given_options()


def command_error(error: KvcqError, server: str) -> CommandError:
    """The error for the command line, with its exit code and the next step."""
    look = command_at(server, "stats")
    if isinstance(error, HandshakeError):
        return CannotConnectError(error.message)
    if isinstance(error, UnavailableError):
        if error.reason:
            return CannotConnectError(
                str(error), "try again in a moment", command=look, code=error.reason
            )
        # gRPC's own text has sockets and addresses, and no remedy.
        lost = f"lost the connection to {server}"
        return CannotConnectError(lost, "is it running?", command=look)
    if isinstance(error, DeadlineError):
        text = f"{server} did not answer in time"
        return CommandError(
            text,
            "it may be busy; try again, or look at its load",
            command=look,
            code="DEADLINE_EXCEEDED",
        )
    # Without a reason it is from gRPC itself, which only rejects requests for their size.
    too_large = isinstance(error, ResourceExhaustedError) and not error.reason
    if too_large:
        return BadRequestError(
            str(error), "the limit is the server's setting server.max_receive_bytes"
        )
    kind = BadRequestError if isinstance(error, InvalidArgumentError) else CommandError
    command, hint = _advice(error.reason, error.metadata, server)
    text = str(error)
    if isinstance(error, InvalidArgumentError) and (given := option_of(error.field)):
        text = text.replace(f"{error.field}: ", f"{given}: ", 1)
    return kind(
        text,
        hint,
        command=command,
        code=error.reason,
        field=error.metadata.get("field", ""),
    )


def option_of(field: str) -> str:
    """The option or argument that set this field of the request; "" if none did."""
    context = click.get_current_context(silent=True)
    if context is None:
        return ""
    path = _SUBSCRIPT.sub("", field).split(".")
    fields = "_".join(path[-2:]), path[-1]
    names = {path[-1], *(name for each in fields for name in _PARAMETERS.get(each, "").split())}
    for parameter in context.command.params:
        given = context.get_parameter_source(parameter.name or "")
        called = parameter.human_readable_name
        if given is COMMANDLINE and (parameter.name in names or called.lower() in names):
            is_argument = isinstance(parameter, click.Argument)
            option = called.strip("[].") if is_argument else parameter.opts[0]
            key = _KEY.search(field)  # such as a property's name
            return option if key is None else f"{option} {key[1]}"
    return ""


def _advice(reason: str, metadata: dict[str, str], server: str) -> tuple[str, str]:
    """The next step: a command and a sentence; each may be empty."""
    topic = metadata.get("topic", "")
    match reason:
        case "UNKNOWN_TOPIC" if topic.startswith(LIGHT_PREFIX):
            hint = "the first message that names a light queue creates it: kvcq put --light-queue"
            return command_at(server, "topic list", "--light-queues"), hint
        case "UNKNOWN_TOPIC":
            kind = "lite" if _is_of_group("lite") else "topic"
            create = command_at(server, f"{kind} create", name=topic)
            return command_at(server, "topic list"), f"`{create}` creates it"
        case "TOPIC_EXISTS":
            hint = (
                "use the topic as it is, choose another name, or delete it and its messages first"
            )
            return command_at(server, "topic describe", name=topic), hint
        case "UNKNOWN_QUEUE" if metadata.get("isNew"):
            count = str(int(metadata.get("queueId", "0")) + 1)
            create = command_at(server, "topic create", "--queues", count, name=topic)
            return create, "or leave --queue out: queues take turns then"
        case "UNKNOWN_QUEUE" | "OFFSET_OUT_OF_RANGE" | "QUEUE_RECREATED":
            return command_at(server, "topic describe", name=topic), ""
        case "OFFSET_BEHIND":
            return _look_at_group(
                metadata, server
            ), "to move the group back on purpose, use `kvcq group reset`"
        case "UNKNOWN_GROUP":
            return command_at(server, "group list"), ""
        case "GROUP_KIND":
            return _look_at_group(metadata, server), ""
        case "LITE_GROUP" if parent := metadata.get("parent"):
            read = command_at(server, "consume", name=f"{LIGHT_PREFIX}${parent}$NAME")
            hint = f"without the group, `{read}` prints the messages of its lite topic NAME"
            return command_at(server, "lite list", name=parent), hint
        case "GROUP_EXISTS":
            hint = "`kvcq group update` changes what a shared group may change"
            return _look_at_group(metadata, server), hint
        case "JOB_RUNNING":
            job_id = metadata.get("jobId", "")
            watch = command_at(server, "job watch" if job_id else "job list", name=job_id)
            return watch, "wait until that job has ended, or cancel it first"
        case "TRANSACTION_ENDED":
            ended = metadata.get("transactionId", "")
            look = ("trace", "--transaction") if ended else ("tran list",)
            return command_at(server, *look, name=ended), ""
        case "INVALID_ARGUMENT" if metadata.get("field") == "message_id":
            hint = (
                "ids are found by key, and the id that a RocketMQ client shows is a key; "
                "`kvcq trace` also takes handles and ids of transactions"
            )
            return command_at(server, "query TOPIC KEY", "--json"), hint
        case "INVALID_ARGUMENT" if metadata.get("field") == "transaction_id":
            return command_at(server, "tran list"), ""
        case "INVALID_ARGUMENT" if _SUBSCRIPT.sub("", metadata.get("field", "")) == "handles":
            return command_at(server, "timers list"), ""
        case "UNKNOWN_USER":
            return command_at(server, "user list"), ""
        case "UNKNOWN_JOB":
            return command_at(server, "job list"), ""
        case "ILLEGAL_STEP":
            command = metadata.get("nextCommand", "")
            return on_server(command, server) if command else "", metadata.get("hint", "")
        case "SETTINGS_REFUSED":
            again = command_at(server, "config reload")
            hint = f"run that on the server's machine; once it reports no error: {again}"
            return metadata.get("nextCommand", ""), hint
        case "SERVED_ELSEWHERE":
            return "", f"add --server {metadata.get('host', '')}:{metadata.get('port', '')}"
        case "DISK_FULL":
            return "", "free disk space, or lower store.reserved_hours; reads still work"
        case "STORE_FAILED" | "FLUSH_FAILED":
            return "", "check the server's log and the disk, then restart the server"
        case "ENGINE_DAMAGED":
            hint = "restart the server: it sets kvcq/ aside, and rebuilds it from the log"
            return "", hint
        case "CORRUPT_RECORD" | "DAMAGED_QUEUE" | "CORRUPT_VALUE":
            return _behind_damage(reason, metadata, server)
        case _:
            return "", ""


def _is_of_group(group: str) -> bool:
    """Whether the running command is one of `kvcq <group>`."""
    context = click.get_current_context(silent=True)
    return context is not None and f" {group} " in f"{context.command_path} "


def _look_at_group(metadata: dict[str, str], server: str) -> str:
    group = metadata.get("group", "")
    return command_at(server, "group describe" if group else "group list", name=group)


def _behind_damage(reason: str, metadata: dict[str, str], server: str) -> tuple[str, str]:
    """The next step for an unreadable message: the command that reads behind it, or "", and a
    sentence."""
    look = "for details, stop the server and run `kvcq check DIRECTORY` on its store"
    if "nextOffset" in metadata and "topic" in metadata:
        place = ["--queue", metadata.get("queueId", "0"), "--offset", metadata["nextOffset"]]
        command = command_at(server, "pull", *place, name=metadata["topic"])
        return command, f"the command continues after the damage; {look}"
    if "nextCursor" in metadata:
        return "", f"add --skip-damaged to find the messages after it; {look}"
    mended = "the server is rebuilding the queue from its log: try again in a moment"
    return "", f"{mended}; {look}" if reason == "DAMAGED_QUEUE" else look
