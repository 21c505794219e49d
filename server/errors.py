"""Errors of the gRPC edge itself; their rows are in wire/status.py with the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.texts import address
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


class ServerError(StoreError):
    """Root of the errors that the server raises, not the store."""


class ServerStartingError(ServerError):
    """The store is being opened. Wait for readiness, or retry a little later."""

    def __init__(self, step: str, progress: float) -> None:
        super().__init__(f"the store is being opened: {step}, {progress:.0%} done")
        self.step = step
        self.progress_percent = round(progress * 100, 1)


class ServerDrainingError(ServerError):
    """The server is shutting down: it finishes what it accepted, and accepts no more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down; reconnect later, or use another server")


class TooManyCallsError(ServerError):
    """All places for calls of that kind are taken. Nothing was read; retry a little later."""

    def __init__(self, kind: str, whose: str, limit: int) -> None:
        super().__init__(f"limit reached: {limit} {kind} {whose} are under way; try again later")
        self.kind = kind
        self.limit = limit


class RequestLateError(ServerError):
    """A call began but its request did not arrive in time. Nothing was done; it may be retried."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the request did not arrive within {waited_s:.0f} s; send it again")


class MemoryFullError(ServerError):
    """The memory for clients is full. Retry a little later."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the server is low on memory: {reason}; try again in a moment")


class JobRunningError(ServerError):
    """A job of that kind is already running; there can be one at a time. Nothing was started."""

    def __init__(self, kind: str, job_id: str) -> None:
        super().__init__(
            f"job {job_id} of kind {kind!r} is running, and only one job of a kind may run at a "
            "time"
        )
        self.kind = kind
        self.job_id = job_id


class UnknownServiceError(ServerError):
    """A health check for a service that is not served."""

    def __init__(self, service: str) -> None:
        super().__init__(f"unknown service {service!r}")
        self.service = service


class UndecodableRequestError(InvalidArgumentError):
    """The bytes of a request are not a message of its type."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__("request", f"is not a valid {kind}: {reason}")


class ClientStatusError(ServerError):
    """Rejects a RocketMQ client's call with a code of its protocol for which we have no error
    class. Nothing was done."""

    def __init__(self, status: int, reason: str) -> None:
        """`status`: a value of Code, see proto/rocketmq."""
        super().__init__(reason)
        self.status = status


class UnknownSettingError(InvalidArgumentError):
    """No setting has that name."""

    def __init__(self, name: str, nearest: str | None) -> None:
        super().__init__(name, "is unknown")
        hint = "" if nearest is None else f"; did you mean {nearest}?"
        self.args = (f"unknown setting {name}{hint}",)


class SettingsRefusedError(ServerError):
    """The reloaded settings are wrong, or could not be read. The old ones stay."""

    def __init__(self, error: Exception, next_command: str = "kvcq config") -> None:
        """`next_command`: the command that shows whether they are valid, on the server's
        machine."""
        super().__init__(f"settings rejected, the old ones remain in effect: {error}")
        self.field = error.field if isinstance(error, InvalidArgumentError) else ""
        self.next_command = next_command


class OutOfSequenceError(ServerError):
    """A producer's batch does not follow the previous one, and was not stored before either."""

    def __init__(self, producer_id: str, sequence: int, expected_sequence: int) -> None:
        super().__init__(
            f"producer {producer_id!r} sent sequence {sequence}, expected {expected_sequence}"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected_sequence = expected_sequence


class NumberReusedError(ServerError):
    """The producer has a different batch with that number in the log; nothing was stored."""

    def __init__(self, producer_id: str, sequence: int, held: str) -> None:
        super().__init__(
            f"producer.sequence: producer {producer_id!r} has already used {sequence} for "
            f"another batch ({held}); nothing was stored. Resend the original batch under "
            "this number, or use another producer_id"
        )
        self.field = "producer.sequence"
        self.producer_id = producer_id
        self.sequence = sequence


class NumbersUnknownError(ServerError):
    """The producer's next number cannot be determined."""

    def __init__(self, producer_id: str) -> None:
        super().__init__(
            f"the next number of producer {producer_id!r} is unknown while a migration reads "
            "queue files. Pass first_sequence=…, or leave out producer_id"
        )
        self.producer_id = producer_id


class NumberPassedError(ServerError):
    """The producer is past that number, and the log has no batch that begins with it."""

    def __init__(self, producer_id: str, sequence: int, expected_sequence: int) -> None:
        super().__init__(
            f"producer.sequence: producer {producer_id!r} is at {expected_sequence}, and the "
            f"log has no batch of it that starts at {sequence}: the batch has expired, or "
            "was split differently. Nothing was stored. If the batch was stored before, "
            f"continue with {expected_sequence}; if it must be stored now, use another "
            "producer_id"
        )
        self.field = "producer.sequence"
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected_sequence = expected_sequence


class ServerBindError(ServerError):
    """The address cannot be bound: another process uses it, or it is not an address of this
    machine."""

    def __init__(self, host: str, port: int, reason: OSError) -> None:
        super().__init__(f"cannot listen on {address(host, port)}: {reason.strerror or reason}")
        self.host = host
        self.port = port
        self.reason = reason


class FrontError(ServerError):
    """A front process ended before it was listening."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"front {number} {reason} before it was listening")


class ServedElsewhereError(ServerError):
    """Administration is served at another address."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"administration is only served on {address(host, port)}")
        self.host = host
        self.port = port


class HttpBindError(ServerBindError):
    """Like ServerBindError, for an HTTP address: `name` is the prefix of its settings."""

    def __init__(self, name: str, host: str, port: int, reason: OSError) -> None:
        super().__init__(host, port, reason)
        self.name = name


# --- who asks ------------------------------------------------------------------------------


class AccessError(ServerError):
    """The caller is not authenticated or not authorized. Nothing was done; every case is
    audited."""


class UnauthenticatedError(AccessError):
    """The call is not signed, or not by a user of this store, or its signature is too old."""


class ForbiddenError(AccessError):
    """The user has no right to this."""

    def __init__(
        self,
        user: str,
        what: str,
        remedy: str | None,
        *,
        topic: str | None = None,
        group: str | None = None,
    ) -> None:
        """`remedy`: the command that grants it; None if only administrators may do it.

        `topic` or `group`: the name that the caller gave without having a right to it, so that a
        client knows which messages of a batch were the reason.
        """
        allowed = (
            "Only administrators may (`kvcq user add NAME --admin` creates one)"
            if remedy is None
            else f"An administrator can allow it: {remedy}"
        )
        super().__init__(f"user {user!r} may not {what}. {allowed}")
        self.user = user
        self.what = what
        self.topic = topic
        self.group = group


class TooManyGroupsError(ServerError):
    """Receives have created as many groups as they may for now. Retry a little later."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"receives may make {limit} groups a second: use the name of a group that exists, or "
            "create groups before they are used"
        )
        self.limit = limit


class UserLimitError(AccessError):
    """The user has reached one of its limits. Retry a little later."""

    def __init__(self, user: str, limit: str, value: int) -> None:
        super().__init__(
            f"user {user!r} has reached its limit of {value} {limit.replace('_', ' ')}"
        )
        self.user = user
        self.limit = limit


class AccessOffError(ServerError):
    """The server was started without users, so they cannot be managed."""

    def __init__(self) -> None:
        super().__init__(
            "this server does not check users, so users cannot be managed over the network: "
            "start it with --access. Create the first administrator on the stopped store: "
            "kvcq user add NAME --admin --data DIRECTORY"
        )


class UnknownUserError(ServerError):
    """No user has that name."""

    def __init__(self, user: str) -> None:
        super().__init__(f"unknown user {user!r}")
        self.user = user


class UserExistsError(ServerError):
    """A user with that name already exists."""

    def __init__(self, user: str) -> None:
        super().__init__(
            f"user {user!r} already exists; `kvcq user rotate {user}` gives it a new secret"
        )
        self.user = user


class LastAdminError(ServerError):
    """The last administrator cannot be removed, since no one could create another."""

    def __init__(self, user: str) -> None:
        super().__init__(
            f"user {user!r} is the only administrator: create another one first with `kvcq "
            "user add NAME --admin`"
        )
        self.user = user


class KeyFileError(ServerError):
    """The key file for secrets cannot be used. Nothing was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"key file {path} {reason}")
        self.path = path
