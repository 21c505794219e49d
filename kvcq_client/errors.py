"""The errors of the client, as a tree.

    KvcqError
     +- RetryableError            the same call may succeed a little later
     |   +- UnavailableError      the server cannot be reached, starts or stops
     |   +- BusyError             the server or the user has reached a limit
     |   +- DeadlineError         the timeout has passed (also a TimeoutError)
     |   |   +- DeliveryTimeoutError   of a producer's message
     |   +- BufferFullError       the producer's buffer stayed full
     +- HandshakeError            TLS settings prevent the connection
     +- InvalidArgumentError      the request breaks a limit; `field` names it
     +- NotFoundError             no such topic, queue or message
     +- AlreadyExistsError        a topic of that name with other settings
     +- OffsetOutOfRangeError     the offset is outside of min..max; both are attributes
     |   +- RecreatedError        the topic or light queue was deleted and created again
     +- ResourceExhaustedError    the disk is full: puts fail, reads work; or a request is too
     |                            large
     +- NotPossibleError          something else has to be done first
     |   +- NumberReusedError     other messages have that number; nothing was stored
     |   +- NumberPassedError     the number's batch has expired; nothing was stored
     |   +- OffsetBehindError     the reader group is ahead; nothing was committed
     +- UnauthenticatedError      missing or wrong credentials, or a wrong clock
     +- PermissionDeniedError     the user lacks a right, which the message names
     +- DataLossError             damaged data; says where to continue
     |   +- CorruptRecordError    a damaged record was received
     +- ServerError               an internal error of the server
     +- ClosedError               the client, producer or consumer is closed
         +- ForkedError           the process was forked after a client was made

Errors of the server keep its message, status code, reason, and the values of its ErrorInfo. The
client retries on its own until the timeout of the call, so a RetryableError means that retrying did
not help within that time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.values import Queue

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Reasons with which the server may have stored the message.
_PERHAPS_DONE = ("FLUSH_DISK_TIMEOUT", "STORE_CLOSED")


class KvcqError(Exception):
    """Base of all errors of this package, except TypeError and ValueError for wrong arguments.

    `code` is the name of a gRPC status, `reason` the server's reason ("" if the client raised it).
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

    Check `may_be_done` before repeating a put: if the message is already stored, it would be stored
    twice. A producer and `put_numbered` retry without that risk.
    """

    @property
    def may_be_done(self) -> bool:
        """Whether the server may have executed the call. False if it rejected the call, or the
        call was never sent."""
        return not self.reason or self.reason in _PERHAPS_DONE


class InvalidArgumentError(KvcqError):
    """The request breaks a limit of the server."""

    code = "INVALID_ARGUMENT"

    @property
    def field(self) -> str:
        """Which part of the request, such as `messages[3].topic`; "" if unknown."""
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
    """The topic or light queue was deleted and created again after the offset was returned.

    Unread messages of the earlier one are gone; the new one starts at `min_offset`.
    """


class ResourceExhaustedError(KvcqError):
    """The server's disk is full, or a request is too large."""

    code = "RESOURCE_EXHAUSTED"


class BusyError(RetryableError):
    """The server or the user has reached a limit of calls, memory or rate."""

    code = "RESOURCE_EXHAUSTED"


class NotPossibleError(KvcqError):
    """The call cannot succeed until something else is done."""

    code = "FAILED_PRECONDITION"


class OffsetBehindError(NotPossibleError):
    """The reader group has committed a later offset in one of the queues; nothing was committed.

    Another consumer of the group is ahead, or this one started further back. `allow_back=True`
    commits anyway; `committed_offset` is the group's offset.
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

    Send the messages that were first sent under the number, or use another producer id.
    """


class NumberPassedError(NotPossibleError):
    """The producer is past that number, and its batch has expired or was cut differently.

    Nothing was stored now, but may have been before. Skip the batch, or use another producer id.
    """


class UnavailableError(RetryableError):
    """The server cannot be reached, or does not accept calls now.

    Without a reason the connection broke during the call, and it is unknown whether the server
    executed it.
    """

    code = "UNAVAILABLE"


class HandshakeError(KvcqError):
    """TLS settings prevent the connection. The message says what to change.

    Raised within seconds by a client that has never been connected; others retry until the timeout.
    """

    code = "UNAVAILABLE"


class DeadlineError(RetryableError, TimeoutError):
    """The timeout of the call has passed. It is unknown whether the server executed it."""

    code = "DEADLINE_EXCEEDED"


class UnauthenticatedError(KvcqError):
    """Missing or wrong credentials, or a clock that is off."""

    code = "UNAUTHENTICATED"


class PermissionDeniedError(KvcqError):
    """The user may not do that."""

    code = "PERMISSION_DENIED"


class DataLossError(KvcqError):
    """Damaged data.

    To continue after it, use `consumer.seek({error.queue: error.next_offset})` or the same query
    with `next_cursor`, whichever is not None.
    """

    code = "DATA_LOSS"

    @property
    def queue(self) -> Queue | None:
        """The queue that was read; None if unknown."""
        topic = self.metadata.get("topic")
        return None if topic is None else Queue(topic, int(self.metadata.get("queueId", "0")))

    @property
    def next_offset(self) -> int | None:
        """The offset after the damage; None if unknown, or while the server may repair it."""
        given = self.metadata.get("nextOffset")
        return None if given is None else int(given)

    @property
    def next_cursor(self) -> bytes | None:
        """For a query: the cursor after the damage; None if unknown."""
        given = self.metadata.get("nextCursor")
        return None if given is None else bytes.fromhex(given)


class CorruptRecordError(DataLossError):
    """A received record does not verify."""

    def __init__(self, why: str, queue_offset: int | None = None) -> None:
        at = "" if queue_offset is None else f" at queue offset {queue_offset}"
        super().__init__(f"corrupt record{at}: {why}")


class ServerError(KvcqError):
    """An internal error of the server; its log has the request id of `metadata`."""

    code = "INTERNAL"


class ClosedError(KvcqError):
    """The client, producer or consumer is closed."""

    code = "CANCELLED"


class BufferFullError(RetryableError):
    """The producer's buffer stayed full for `max_block_s`. The message was not buffered."""

    code = "RESOURCE_EXHAUSTED"

    @property
    def may_be_done(self) -> bool:
        return False


class DeliveryTimeoutError(DeadlineError):
    """A message was not acknowledged in time. It may be stored, and is no longer retried."""
