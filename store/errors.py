"""What the store raises, as one tree; `server/wire/status.py` has a row for each leaf."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


class StoreError(Exception):
    """Root of everything the store raises on purpose."""


# --- what the caller did -------------------------------------------------------------------


class InvalidArgumentError(StoreError):
    """An argument exceeds a limit or is invalid. Nothing was written."""

    def __init__(self, field: str, reason: str) -> None:
        super().__init__(f"{field}: {reason}")
        self.field = field
        self.reason = reason


class UnknownTopicError(StoreError):
    """No topic of that name. Create it first, or turn on automatic creation."""

    def __init__(self, topic: str, kind: str = "topic") -> None:
        super().__init__(f"no {kind} {topic!r}")
        self.topic = topic


class TopicExistsError(StoreError):
    """A topic of that name exists already, with other settings."""

    def __init__(self, topic: str, queue_count: int, other: str = "") -> None:
        """`other`: which setting differs, if it is not the number of queues."""
        what = (
            f"exists with {other}; update changes it, create does not"
            if other
            else f"already has {queue_count} queues; the number cannot be changed"
        )
        super().__init__(f"topic {topic!r} {what}")
        self.topic = topic
        self.queue_count = queue_count


class UnknownQueueError(StoreError):
    """The topic has no queue with that number, or would have none if the message created it."""

    def __init__(
        self, topic: str, queue_id: int, queue_count: int, *, is_new: bool = False
    ) -> None:
        """`is_new`: the message would have created the topic."""
        has = "does not exist, and would be created with" if is_new else "has"
        super().__init__(f"topic {topic!r} {has} queues 0 to {queue_count - 1}, not {queue_id}")
        self.topic = topic
        self.queue_id = queue_id
        self.queue_count = queue_count
        self.is_new = is_new or None


class OffsetOutOfRangeError(StoreError):
    """A read outside min..max of its queue; has both, so the caller knows where to continue."""

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(
            f"offset {queue_offset} of {topic!r} queue {queue_id} is outside "
            f"{min_offset} to {max_offset}"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.min_offset = min_offset
        self.max_offset = max_offset


class OffsetBehindError(StoreError):
    """The group has already committed a later offset, and the commit did not allow going back."""

    def __init__(
        self, group: str, topic: str, queue_id: int, offset: int, committed_offset: int
    ) -> None:
        super().__init__(
            f"group {group!r} has committed {committed_offset} in queue {queue_id} of {topic!r}; "
            f"{offset} is behind that. Another reader of the group is ahead, or this one went "
            "back. Nothing was committed"
        )
        self.group = group
        self.topic = topic
        self.queue_id = queue_id
        self.offset = offset
        self.committed_offset = committed_offset


class RecreatedQueueError(OffsetOutOfRangeError):
    """The queue was deleted and created again after the offset was given, so the offset is not
    valid for it."""

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, min_offset: int, max_offset: int
    ) -> None:
        super().__init__(topic, queue_id, queue_offset, min_offset, max_offset)
        self.args = (
            f"{topic!r} was deleted and made again since offset {queue_offset} of queue {queue_id} "
            f"was read: messages of the new queue begin at {min_offset}",
        )


class UnknownGroupError(StoreError):
    """No group of that name exists. Create it first."""

    def __init__(self, group: str) -> None:
        super().__init__(f"no group {group!r}")
        self.group = group


class GroupKindError(StoreError):
    """The call is for another kind of group. Nothing was changed."""

    def __init__(self, group: str, *, is_shared: bool) -> None:
        super().__init__(
            f"group {group!r} is shared: its members receive and acknowledge, and commit no offsets"
            if is_shared
            else f"group {group!r} is a reader group: it pulls and commits, and receives nothing"
        )
        self.group = group
        self.kind = "shared" if is_shared else "reader"


class LiteGroupError(StoreError):
    """A lite-topic call on a group without lite topics, or another call on a group with lite
    topics."""

    def __init__(self, group: str, parent: str | None) -> None:
        """`parent`: the parent of the group's lite topics; None if it has none."""
        super().__init__(
            f"group {group!r} is not bound to lite topics: make another one, with a parent topic"
            if parent is None
            else f"group {group!r} receives from lite topics of {parent!r} only: use lite_receiver"
        )
        self.group = group
        self.parent = parent


class UnknownLiteClientError(StoreError):
    """The server knows no subscriptions of this client. Synchronise them, then receive again."""

    def __init__(self, group: str, client_id: str) -> None:
        super().__init__(f"no subscriptions of client {client_id!r} of group {group!r}")
        self.group = group
        self.client_id = client_id


class LiteQuotaError(StoreError):
    """The subscription would exceed the lite topics allowed for the client or for the server.
    Nothing was changed."""

    def __init__(self, scope: str, count: int, limit: int) -> None:
        """`scope`: whose limit it is, the client's or the server's."""
        super().__init__(
            f"{count} lite topics are more than the {limit} that a {scope} may be subscribed to"
        )
        self.scope = scope
        self.limit = limit


class GroupExistsError(StoreError):
    """A group of that name exists already, of another kind or with other settings."""

    def __init__(self, group: str) -> None:
        super().__init__(f"group {group!r} exists with another kind or with other settings")
        self.group = group


class UnknownTransactionError(StoreError):
    """No transaction with that id is open or was decided within the last ten minutes."""

    def __init__(self, transaction_id: str) -> None:
        super().__init__(
            f"no transaction {transaction_id!r}: it never was, or it was decided more than ten "
            "minutes ago. `kvcq tran list` has those that are open"
        )
        self.transaction_id = transaction_id


class TransactionEndedError(StoreError):
    """The transaction was already decided the other way. Nothing was changed."""

    def __init__(self, transaction_id: str, outcome: str, what: str) -> None:
        """`outcome`: one word for programs. `what`: a description of the outcome, for people."""
        super().__init__(f"transaction {transaction_id!r} {what}: it cannot be decided otherwise")
        self.transaction_id = transaction_id
        self.outcome = outcome


class UnreadableTransactionError(StoreError):
    """The message of an open transaction cannot be read. The transaction stays open; nothing was
    changed."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"the message of this transaction cannot be read, so it was not delivered: {reason}. "
            "It stays open; roll it back, or see `kvcq check`"
        )


class TooManyTransactionsError(StoreError):
    """The number of open transactions has reached its limit. Nothing was stored."""

    def __init__(self, count: int, group: str, setting: str) -> None:
        """`group`: "" for the limit of the whole store."""
        who = f"group {group!r}" if group else "this store"
        super().__init__(
            f"{who} has {count} open transactions, as many as `{setting}` allows: commit or roll "
            "back some, `kvcq tran list` has them, or raise it"
        )
        self.setting = setting


class MessageNotFoundError(StoreError):
    """No message with that id exists: it was never stored, has expired, or its topic was
    deleted."""

    def __init__(self, message_id: str, reason: str) -> None:
        super().__init__(f"no message {message_id!r}: {reason}")
        self.message_id = message_id


# --- what the store cannot do now ----------------------------------------------------------


class StoreClosedError(StoreError):
    """The store, or the part named, is closed or closing."""


class StoreBusyError(StoreError):
    """Derived data lags too far behind the log, or RocksDB stalls. Retry a little later."""


class SegmentNotReadyError(StoreBusyError):
    """The log's next segment is still being created. Nothing was written; retry in a moment."""

    def __init__(self, start_offset: int) -> None:
        super().__init__(f"segment {start_offset} of the log is still being made")
        self.start_offset = start_offset


class AppendWouldWaitError(StoreBusyError):
    """An append that must not block would block on another append or on many lookups. Nothing was
    appended."""


class OutOfDescriptorsError(StoreBusyError):
    """The process or the system has no free file descriptor. Retry after others are closed."""


class DiskFullError(StoreError):
    """No disk space for this write, or disk usage is above the level at which puts are rejected."""


#: Lacks of space or descriptors. A rejected write succeeds once there are some again.
LACKS = (DiskFullError, OutOfDescriptorsError)


class StoreFailedError(StoreError):
    """A durability step failed permanently; the store rejects writes until it is reopened."""


class FlushError(StoreFailedError):
    """fsync failed. Nothing above the flushed offset is known to be durable."""


class FlushTimeoutError(StoreError):
    """Appended, but not flushed before the deadline. It becomes durable later, or is lost if the
    machine fails."""

    def __init__(self, end_offset: int, timeout_s: float) -> None:
        super().__init__(f"not flushed up to physical offset {end_offset} within {timeout_s:g} s")
        self.end_offset = end_offset


# --- what is wrong on disk -----------------------------------------------------------------


class CorruptRecordError(StoreError):
    """A record below the durable end does not verify. This is damage, not a torn tail, which
    recovery cuts."""

    def __init__(self, physical_offset: int, reason: str) -> None:
        super().__init__(f"{reason} at physical offset {physical_offset}")
        self.physical_offset = physical_offset
        self.reason = reason


class DamagedLogError(CorruptRecordError):
    """The log has damage that opening, or a rebuild of the queues, would have to skip."""

    def __init__(
        self,
        physical_offset: int,
        goes_on_at: int,
        reason: str,
        *,
        can_be_left_out: bool,
        places: int = 1,
    ) -> None:
        """`can_be_left_out`: whether the queues can be built without the damaged part."""
        super().__init__(physical_offset, reason)
        where = "" if places == 1 else f"in {places} places, first "
        self.args = (
            f"the log is damaged {where}at physical offset {physical_offset} ({reason}) and goes "
            f"on at {goes_on_at}; nothing was changed",
        )
        self.goes_on_at = goes_on_at
        self.can_be_left_out = can_be_left_out


class CorruptMessageError(CorruptRecordError):
    """A CorruptRecordError at a message of a queue; `next_offset` is the offset after it."""

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, physical_offset: int, reason: str
    ) -> None:
        super().__init__(physical_offset, reason)
        self.args = (
            f"damaged message: offset {queue_offset} of queue {queue_id} of {topic!r}, {reason} at "
            f"physical offset {physical_offset}",
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.next_offset = queue_offset + 1


class CorruptHitError(CorruptRecordError):
    """A CorruptRecordError at a hit of the key index; a query with `next_cursor` continues after
    it."""

    def __init__(
        self, topic: str, key: str, physical_offset: int, reason: str, next_cursor: bytes
    ) -> None:
        super().__init__(physical_offset, reason)
        self.args = (
            f"damaged message: one of {topic!r} with the key {key!r}, {reason} at physical offset "
            f"{physical_offset}",
        )
        self.next_cursor = next_cursor


class DamagedQueueError(StoreError):
    """A unit between min and max is missing or does not fit its record. Rebuild the queue from the
    log.

    `behind`: the next offset known to have a unit. It becomes `next_offset`, where reading can
    continue, after a rebuild from the log has not helped.
    """

    def __init__(
        self, topic: str, queue_id: int, queue_offset: int, reason: str, behind: int | None = None
    ) -> None:
        super().__init__(
            f"queue {queue_id} of {topic!r} is damaged at offset {queue_offset}: {reason}"
        )
        self.topic = topic
        self.queue_id = queue_id
        self.queue_offset = queue_offset
        self.behind = queue_offset + 1 if behind is None else behind
        self.next_offset: int | None = None


class StoreDirError(StoreError):
    """The store directory cannot be opened as it is."""

    def __init__(self, path: Path, reason: str) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.reason = reason


class StoreLockedError(StoreDirError):
    """Another process has the store directory open."""


class StoreFormatError(StoreDirError):
    """The directory is not a store, is damaged, or was written by a newer version."""
