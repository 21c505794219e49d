"""Every error of the client, as a small tree.

What the server refused keeps the server's own words: the status code, the reason, and the values
that its ErrorInfo carries. What to do about it follows from the class:

| class                  | meaning                                                            |
|------------------------|--------------------------------------------------------------------|
| InvalidArgumentError   | the request breaks a limit; `metadata["field"]` names it           |
| NotFoundError          | no such topic, queue or message                                    |
| AlreadyExistsError     | a topic of that name with other settings                           |
| OffsetOutOfRangeError  | the offset is outside min..max; both are attributes                |
| ResourceExhaustedError | the disk is full: puts are refused, reads go on                    |
| NotPossibleError       | cannot succeed before something else is done                       |
| NumberReusedError      | a NotPossibleError: other messages have that number; none stored   |
| NumberPassedError      | a NotPossibleError: the number is used, its batch is gone; as above |
| UnavailableError       | no server, or one that starts or ends; it was tried until the time |
| DeadlineError          | the caller's own time is up                                        |
| DataLossError          | what is on disk, or came over the wire, does not verify; it names  |
|                        | the queue, and where to read on                                    |
| ServerError            | a defect of the server                                             |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import grpc
from google.rpc import error_details_pb2, status_pb2

from kvcq_client.values import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from kvcq_client.pb.v1 import kvcq_pb2 as pb

_DETAILS = "grpc-status-details-bin"


class KvcqError(Exception):
    """Anything that this package raises, but for wrong types and values of arguments.

    `code` is a gRPC status name, `reason` the server's word for it ("" when no server said it).
    """

    code = "UNKNOWN"

    def __init__(
        self, message: str, reason: str = "", metadata: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.reason = reason
        self.metadata = dict(metadata or {})

    def __str__(self) -> str:
        return f"{self.message} ({self.reason})" if self.reason else self.message


class InvalidArgumentError(KvcqError):
    """The request breaks a limit of the server."""

    code = "INVALID_ARGUMENT"

    @property
    def field(self) -> str:
        """Which part of the request, such as `messages[3].topic`; "" when not told."""
        return self.metadata.get("field", "")


class NotFoundError(KvcqError):
    """No such topic, queue, or message."""

    code = "NOT_FOUND"


class AlreadyExistsError(KvcqError):
    """A topic of that name exists with other settings."""

    code = "ALREADY_EXISTS"


class OffsetOutOfRangeError(KvcqError):
    """The offset is not from min to max, or those messages have expired."""

    code = "OUT_OF_RANGE"

    @property
    def min_offset(self) -> int:
        return int(self.metadata.get("minOffset", "0"))

    @property
    def max_offset(self) -> int:
        return int(self.metadata.get("maxOffset", "0"))


class ResourceExhaustedError(KvcqError):
    """The server's disk is full, it is at its limits, or a message is too large."""

    code = "RESOURCE_EXHAUSTED"


class NotPossibleError(KvcqError):
    """The same call cannot succeed before something else is done."""

    code = "FAILED_PRECONDITION"


class NumberReusedError(NotPossibleError):
    """The producer has used that number for other messages; nothing was stored.

    Send again what was sent first under the number, or take another producer id.
    """


class NumberPassedError(NotPossibleError):
    """The producer is beyond that number, and its batch has expired, or was cut in another way.

    Nothing was stored now; it may have been before. Leave it out, or take another producer id.
    """


class UnavailableError(KvcqError):
    """No server answers, or it takes no calls now."""

    code = "UNAVAILABLE"


class DeadlineError(KvcqError, TimeoutError):
    """The caller's time is up. Whether the server did it is not known."""

    code = "DEADLINE_EXCEEDED"


class DataLossError(KvcqError):
    """Bytes that do not verify.

    Where `next_offset` is not None, `consumer.seek({error.queue: error.next_offset})` reads on.
    """

    code = "DATA_LOSS"

    @property
    def queue(self) -> Queue | None:
        """The queue that was read; None when it is not told."""
        topic = self.metadata.get("topic")
        return None if topic is None else Queue(topic, int(self.metadata.get("queueId", "0")))

    @property
    def next_offset(self) -> int | None:
        """Behind what is lost; None while the server may mend it, and when it is not told."""
        told = self.metadata.get("nextOffset")
        return None if told is None else int(told)


class CorruptRecordError(DataLossError):
    """A record that came over the wire does not verify."""

    def __init__(self, why: str, queue_offset: int | None = None) -> None:
        at = "" if queue_offset is None else f" at queue offset {queue_offset}"
        super().__init__(f"corrupt record{at}: {why}")


class ServerError(KvcqError):
    """A defect of the server; its log has the request id of `metadata`."""

    code = "INTERNAL"


class ClosedError(KvcqError):
    """The client, producer or consumer is closed."""

    code = "CANCELLED"


class BufferFullError(KvcqError):
    """The producer's buffer stayed full for the whole time that `send` may wait."""

    code = "RESOURCE_EXHAUSTED"


class DeliveryTimeoutError(DeadlineError):
    """A message was not acknowledged in time. It may be stored, and will not be sent again."""


_BY_CODE: dict[str, type[KvcqError]] = {
    kind.code: kind
    for kind in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        OffsetOutOfRangeError,
        ResourceExhaustedError,
        NotPossibleError,
        UnavailableError,
        DeadlineError,
        DataLossError,
        ServerError,
    )
}
_BY_REASON: dict[str, type[KvcqError]] = {
    "NUMBER_REUSED": NumberReusedError,
    "NUMBER_PASSED": NumberPassedError,
}
_NAME_BY_NUMBER: dict[int, str] = {code.value[0]: code.name for code in grpc.StatusCode}


def may_pass(error: KvcqError) -> bool:
    """Whether the same request may succeed a little later.

    Every refusal of the server has a reason. Without one it was the transport, and gRPC calls
    a connection that was lost INTERNAL, when it was lost in the middle of a write.
    """
    return (
        isinstance(error, UnavailableError)
        or (isinstance(error, ServerError) and not error.reason)
        or error.reason in ("TOO_MANY_CALLS", "MEMORY_FULL")
    )


def make_error(code: str, message: str, reason: str, metadata: Mapping[str, str]) -> KvcqError:
    """The error for a status; a code that has no class of its own is a ServerError."""
    kind = _BY_REASON.get(reason) or _BY_CODE.get(code, ServerError)
    return kind(message, reason, metadata)


def from_rpc(error: grpc.aio.AioRpcError) -> KvcqError:
    """The error that a call ended with, with the server's ErrorInfo when it sent one."""
    reason, metadata = "", dict[str, str]()
    # The stubs of grpc do not say that its metadata are pairs.
    trailing = cast("Iterable[tuple[str, str | bytes]]", error.trailing_metadata() or ())
    for name, value in trailing:
        if name == _DETAILS and isinstance(value, bytes):
            status = status_pb2.Status.FromString(value)
            for detail in status.details:
                info = error_details_pb2.ErrorInfo()
                if detail.Unpack(info):
                    reason, metadata = info.reason, dict(info.metadata)
    return make_error(error.code().name, error.details() or error.code().name, reason, metadata)


def from_batch_error(error: pb.BatchError) -> KvcqError:
    """The error that stands in a response of a stream."""
    code = _NAME_BY_NUMBER.get(error.code, "UNKNOWN")
    return make_error(code, error.message, error.reason, dict(error.metadata))
