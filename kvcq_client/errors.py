"""Every error of the client, as a tree.

    KvcqError
     +- RetryableError            the same call may succeed a little later
     |   +- UnavailableError      no server answers, or it starts or ends
     |   +- BusyError             the server, or the user, is at its limits
     |   +- DeadlineError         the caller's own time is up (also a TimeoutError)
     |   |   +- DeliveryTimeoutError   of a producer's message
     |   +- BufferFullError       the producer's buffer stayed full
     +- HandshakeError            a server is there, and TLS is in the way
     +- InvalidArgumentError      the request breaks a limit; `field` names it
     +- NotFoundError             no such topic, queue or message
     +- AlreadyExistsError        a topic of that name with other settings
     +- OffsetOutOfRangeError     the offset is outside of min..max; both are attributes
     |   +- RecreatedError        the topic or light queue was deleted and made again since
     +- ResourceExhaustedError    the disk is full: puts are refused, reads go on; or a request
     |                            is too large
     +- NotPossibleError          cannot succeed before something else is done
     |   +- NumberReusedError     other messages have that number; none stored
     |   +- NumberPassedError     the number is used, its batch is gone; none stored
     |   +- OffsetBehindError     the reader group is ahead; not committed
     +- UnauthenticatedError      no credentials, wrong ones, or a clock that is off
     +- PermissionDeniedError     the user has no right to that; the text says which is missing
     +- DataLossError             bytes that do not verify; says where to read on
     |   +- CorruptRecordError    a record that came over the wire
     +- ServerError               a defect of the server
     +- ClosedError               the client, producer or consumer is closed
         +- ForkedError           the process was forked after a client was made

What the server refused keeps the server's own words: the status code, the reason, and the values
that its ErrorInfo carries. The client itself retries until the time of the call is up, so a
RetryableError says that it has tried.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.values import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Reasons of a server that may have stored the message all the same.
_PERHAPS_DONE = ("FLUSH_DISK_TIMEOUT", "STORE_CLOSED")


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


class RetryableError(KvcqError):
    """The same call may succeed a little later.

    Before a put is sent again look at `may_be_done`: the message may be stored already, and then
    stands there twice. A producer, and `put_numbered`, send again without that risk.
    """

    @property
    def may_be_done(self) -> bool:
        """Whether the server may have done it all the same. False: it has refused the call, or
        the call was never sent."""
        return not self.reason or self.reason in _PERHAPS_DONE


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
    """The server's disk is full, or a request is too large."""

    code = "RESOURCE_EXHAUSTED"


class BusyError(RetryableError):
    """The server, or the user, is at its limits of calls, memory or rate."""

    code = "RESOURCE_EXHAUSTED"


class NotPossibleError(KvcqError):
    """The same call cannot succeed before something else is done."""

    code = "FAILED_PRECONDITION"


class OffsetBehindError(NotPossibleError):
    """The reader group has committed a later offset in one of the queues; nothing was committed.

    Another consumer of the group is ahead, or this one went back. `allow_back=True` takes the group
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


class UnavailableError(RetryableError):
    """No server answers, or it takes no calls now.

    Without a reason the connection broke while the call was under way, and whether the server did
    it is not known.
    """

    code = "UNAVAILABLE"


class HandshakeError(KvcqError):
    """A server is there, and TLS keeps the client from it. The text says what to change.

    Of a client that has not reached it before, within a few seconds; others try until the time.
    """

    code = "UNAVAILABLE"


class DeadlineError(RetryableError, TimeoutError):
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


class BufferFullError(RetryableError):
    """The producer's buffer stayed full for the whole time that `send` may wait. The message was
    not taken."""

    code = "RESOURCE_EXHAUSTED"

    @property
    def may_be_done(self) -> bool:
        return False


class DeliveryTimeoutError(DeadlineError):
    """A message was not acknowledged in time. It may be stored, and will not be sent again."""
