"""What the gRPC edge raises by itself; rows for these stand in wire/status.py with the store's."""

from __future__ import annotations

from typing import TYPE_CHECKING

from server.texts import address
from store.errors import InvalidArgumentError, StoreError

if TYPE_CHECKING:
    from pathlib import Path


class ServerError(StoreError):
    """Root of the errors that the server, not the store, decides on."""


class ServerStartingError(ServerError):
    """The store is being opened. Wait for readiness, or ask again a little later."""

    def __init__(self, step: str, progress: float) -> None:
        super().__init__(f"the store is being opened: {step}, {progress:.0%} done")
        self.step = step
        self.progress_percent = round(progress * 100, 1)


class ServerDrainingError(ServerError):
    """The server ends: it finishes what it took, and takes no more."""

    def __init__(self) -> None:
        super().__init__("the server is shutting down; reconnect later, or use another server")


class TooManyCallsError(ServerError):
    """All places for calls of that kind are taken. Nothing was read; try again a little later."""

    def __init__(self, kind: str, whose: str, limit: int) -> None:
        super().__init__(f"limit reached: {limit} {kind} {whose} are under way; try again later")
        self.kind = kind
        self.limit = limit


class RequestLateError(ServerError):
    """A call was begun and its request did not come. Nothing was done; it may be sent again."""

    def __init__(self, waited_s: float) -> None:
        super().__init__(f"the request did not arrive within {waited_s:.0f} s; send it again")


class MemoryFullError(ServerError):
    """The server holds as much for its clients as it may. Try again a little later."""

    def __init__(self, reason: str) -> None:
        super().__init__(f"the server is low on memory: {reason}; try again in a moment")


class JobRunningError(ServerError):
    """A job of that kind runs; there is one at a time. Nothing was begun."""

    def __init__(self, kind: str, job_id: str) -> None:
        super().__init__(
            f"job {job_id} of kind {kind!r} is running, and only one job of a kind may run at a "
            "time"
        )
        self.kind = kind
        self.job_id = job_id


class UnknownServiceError(ServerError):
    """Somebody asked for the health of a service that is not served."""

    def __init__(self, service: str) -> None:
        super().__init__(f"unknown service {service!r}")
        self.service = service


class UndecodableRequestError(InvalidArgumentError):
    """The bytes of a request are no message of its type."""

    def __init__(self, kind: str, reason: str) -> None:
        super().__init__("request", f"is not a valid {kind}: {reason}")


class ClientStatusError(ServerError):
    """A client of RocketMQ is refused with a code of its protocol, for which there is no error of
    ours. Nothing was done."""

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
    """The settings were read again and are wrong, or could not be read. The old ones stay."""

    def __init__(self, error: Exception, next_command: str = "kvcq config") -> None:
        """`next_command`: what shows whether they are right, on the server's machine."""
        super().__init__(f"settings rejected, the old ones remain in effect: {error}")
        self.field = error.field if isinstance(error, InvalidArgumentError) else ""
        self.next_command = next_command


class OutOfSequenceError(ServerError):
    """A producer's batch does not follow the one before, and was not stored before either."""

    def __init__(self, producer_id: str, sequence: int, expected_sequence: int) -> None:
        super().__init__(
            f"producer {producer_id!r} sent sequence {sequence}, expected {expected_sequence}"
        )
        self.producer_id = producer_id
        self.sequence = sequence
        self.expected_sequence = expected_sequence


class NumberReusedError(ServerError):
    """Under that number the producer has another batch in the log; nothing was stored."""

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
    """Where the producer stands cannot be told."""

    def __init__(self, producer_id: str) -> None:
        super().__init__(
            f"the next number of producer {producer_id!r} is unknown while a migration reads "
            "queue files. Pass first_sequence=…, or leave out producer_id"
        )
        self.producer_id = producer_id


class NumberPassedError(ServerError):
    """The producer is beyond that number, and the log has no batch that begins with it."""

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
    """The address cannot be listened on: another process has it, or it is not this machine's."""

    def __init__(self, host: str, port: int, reason: OSError) -> None:
        super().__init__(f"cannot listen on {address(host, port)}: {reason.strerror or reason}")
        self.host = host
        self.port = port
        self.reason = reason


class FrontError(ServerError):
    """A process that was to speak gRPC with clients ended before it was listening."""

    def __init__(self, number: int, reason: str) -> None:
        super().__init__(f"front {number} {reason} before it was listening")


class ServedElsewhereError(ServerError):
    """Administration has an address of its own, and this is another one."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"administration is only served on {address(host, port)}")
        self.host = host
        self.port = port


class HttpBindError(ServerBindError):
    """The same for the address of a page: `name` is how its settings begin."""

    def __init__(self, name: str, host: str, port: int, reason: OSError) -> None:
        super().__init__(host, port, reason)
        self.name = name


# --- who asks ------------------------------------------------------------------------------


class AccessError(ServerError):
    """A call is refused for who asks. Nothing was done; each one is audited."""


class UnauthenticatedError(AccessError):
    """The call is not signed, or not by a user of this store, or too long ago."""


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
        """`remedy` is the command that allows it; None: only administrators may.

        `topic` or `group`: the name that the caller gave and has no right to, so that a client can
        tell which messages of a batch were the reason.
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
    """Receives have made as many groups as they may for now. Try again a little later."""

    def __init__(self, limit: int) -> None:
        super().__init__(
            f"receives may make {limit} groups a second: use the name of a group that exists, or "
            "create groups before they are used"
        )
        self.limit = limit


class UserLimitError(AccessError):
    """The user is at one of its limits. Try again a little later."""

    def __init__(self, user: str, limit: str, value: int) -> None:
        super().__init__(
            f"user {user!r} has reached its limit of {value} {limit.replace('_', ' ')}"
        )
        self.user = user
        self.limit = limit


class AccessOffError(ServerError):
    """Users are managed where they are asked for, and nowhere else."""

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
    """A user has that name already."""

    def __init__(self, user: str) -> None:
        super().__init__(
            f"user {user!r} already exists; `kvcq user rotate {user}` gives it a new secret"
        )
        self.user = user


class LastAdminError(ServerError):
    """Without an administrator nobody could make another one."""

    def __init__(self, user: str) -> None:
        super().__init__(
            f"user {user!r} is the only administrator: create another one first with `kvcq "
            "user add NAME --admin`"
        )
        self.user = user


class KeyFileError(ServerError):
    """The file with the key of the secrets cannot be used. Nothing was changed."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"key file {path} {reason}")
        self.path = path
