"""Every error of the client, as a small tree.

What the server refused keeps the server's own words: the status code, the reason, and the values
that its ErrorInfo carries. What to do about it follows from the class:

| class                  | meaning                                                            |
|------------------------|--------------------------------------------------------------------|
| InvalidArgumentError   | the request breaks a limit; `metadata["field"]` names it           |
| NotFoundError          | no such topic, queue or message                                    |
| AlreadyExistsError     | a topic of that name with other settings                           |
| OffsetOutOfRangeError  | the offset is outside min..max; both are attributes                |
| RecreatedError         | an OffsetOutOfRangeError: the topic or light queue was deleted and |
|                        | made again since, and the offset is none of the new one            |
| ResourceExhaustedError | the disk is full: puts are refused, reads go on                    |
| NotPossibleError       | cannot succeed before something else is done                       |
| NumberReusedError      | a NotPossibleError: other messages have that number; none stored   |
| NumberPassedError      | a NotPossibleError: the number is used, its batch is gone; as above |
| OffsetBehindError      | a NotPossibleError: the group is ahead of the offset; not committed |
| UnavailableError       | no server, or one that starts or ends; it was tried until the time |
| HandshakeError         | an UnavailableError: a server is there, and TLS is in the way; the |
|                        | text says what to change. Not tried again                          |
| DeadlineError          | the caller's own time is up                                        |
| UnauthenticatedError   | the server takes signed calls alone, and this one is not, or not   |
|                        | by a user it knows, or too long ago                                |
| PermissionDeniedError  | the user has no right to that; the text says which is missing      |
| DataLossError          | what is on disk, or came over the wire, does not verify; it names  |
|                        | the queue, and where to read on                                    |
| ServerError            | a defect of the server                                             |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.values import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping


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


class RecreatedError(OffsetOutOfRangeError):
    """The topic, or light queue, was deleted and made again since the offset was given.

    What was not read of the earlier one is gone; the new one has messages from `min_offset` on.
    """


class ResourceExhaustedError(KvcqError):
    """The server's disk is full, it is at its limits, or a message is too large."""

    code = "RESOURCE_EXHAUSTED"


class NotPossibleError(KvcqError):
    """The same call cannot succeed before something else is done."""

    code = "FAILED_PRECONDITION"


class OffsetBehindError(NotPossibleError):
    """The group has committed a later offset in one of the queues; nothing was committed.

    Another reader of the group is ahead, or this one went back. `allow_back=True` takes the group
    back; `committed_offset` says from where.
    """

    @property
    def queue(self) -> Queue:
        """The first of the queues."""
        return Queue(self.metadata.get("topic", ""), int(self.metadata.get("queueId", "0")))

    @property
    def committed_offset(self) -> int:
        return int(self.metadata.get("committedOffset", "0"))


class NumberReusedError(NotPossibleError):
    """The producer has used that number for other messages; nothing was stored.

    Send again what was sent first under the number, or take another producer id.
    """


class NumberPassedError(NotPossibleError):
    """The producer is beyond that number, and its batch has expired, or was cut in another way.

    Nothing was stored now; it may have been before. Leave it out, or take another producer id.
    """


class UnavailableError(KvcqError):
    """No server answers, or it takes no calls now.

    With the reason NOT_SENT nothing was done. Without a reason the connection broke while the call
    was under way: whether the server did it is not known, and a message that is put once more may
    be there twice. A producer numbers its batches, and sends them again by itself.
    """

    code = "UNAVAILABLE"


class HandshakeError(UnavailableError):
    """A server is there, and does not agree with the client about TLS.

    Of a client that has not reached it before, within a few seconds; others try until the time.
    """


class DeadlineError(KvcqError, TimeoutError):
    """The caller's time is up. Whether the server did it is not known."""

    code = "DEADLINE_EXCEEDED"


class UnauthenticatedError(KvcqError):
    """No credentials, wrong ones, or a clock that is off."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(KvcqError):
    """The user may not do that."""

    code = "PERMISSION_DENIED"


class DataLossError(KvcqError):
    """Bytes that do not verify.

    Where `next_offset` is not None, `consumer.seek({error.queue: error.next_offset})` reads on;
    where `next_cursor` is not None, the same query with that cursor does.
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

    @property
    def next_cursor(self) -> bytes | None:
        """Of a query: goes on behind what is lost; None when it is not told."""
        told = self.metadata.get("nextCursor")
        return None if told is None else bytes.fromhex(told)


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
