"""Values of the state: settings of topics and groups, and what queues keep."""

from __future__ import annotations

import enum
from typing import NamedTuple


class Retention(NamedTuple):
    """What each queue of a topic keeps; 0 for as much as the log."""

    time_ms: int = 0  # messages that were stored so long ago at most
    # The latest messages whose records have this many bytes together, and one at least.
    bytes: int = 0
    messages: int = 0  # the latest messages, this many
    latest: bool = False  # the latest message of each key, as far as the job has looked


#: All that is in the log.
KEEP_ALL = Retention()


#: The first delivery and sixteen more, as RocketMQ's.
_DELIVERIES = 17


class MessageType(enum.IntEnum):
    """The type of messages that a topic is for, as in RocketMQ 5; the numbers are those in rows."""

    ANY = 0
    NORMAL = 1
    FIFO = 2
    DELAY = 3
    TRANSACTION = 4
    LITE = 5
    PRIORITY = 6


class TopicConfig(NamedTuple):
    """Settings of one topic."""

    name: str
    queue_count: int
    created_ms: int
    created_offset: int  # physical, of the record that made it: older records are not its own
    retention: Retention = KEEP_ALL
    #: The type of messages that RocketMQ's clients may send to the topic. The store itself does not
    #: check it.
    message_type: MessageType = MessageType.ANY


#: For `max_deliveries`: 17; of a group in order, none.
BY_ORDER = -1


class LiteGroup(NamedTuple):
    """Makes a shared group receive from lite topics of a parent topic; everything but the quota is
    fixed."""

    parent: str
    client_quota: int = 2000  # lite topics that a client may be subscribed to
    is_exclusive: bool = False  # a lite topic has one client: the last one to subscribe
    is_wildcard: bool = False  # its clients share all lite topics of the parent


class SharedGroup(NamedTuple):
    """Settings of a shared group, whose members share its messages."""

    max_deliveries: int | None = BY_ORDER  # then a message is a dead letter; None: never
    invisible_ms: int = 60_000  # how long a receiver has a message, when it does not say
    most_in_flight: int = 2000  # messages of one queue
    in_order: bool = False  # one message of an ordering key at a time; fixed
    # Begins with what is stored after its first receive; cannot be changed.
    from_latest: bool = False
    is_paused: bool = False  # nothing is handed over
    dead_letters_keep_ms: int = 30 * 24 * 3_600_000
    #: Before the second, third, ... delivery of what was given back without a delay; the last value
    #: holds for all later ones. None: at once.
    backoff_ms: tuple[int, ...] = ()
    lite: LiteGroup | None = None  # None: it receives from topics and light queues by name

    @property
    def settled(self) -> SharedGroup:
        """The settings with the default maximum of deliveries filled in, which depends on
        `in_order`."""
        if self.max_deliveries != BY_ORDER:
            return self
        return self._replace(max_deliveries=None if self.in_order else _DELIVERIES)

    def begins_with(self, topic: str) -> str:
        """The topic under which the start of a from-latest group is stored. A group of lite topics
        starts once, for the parent."""
        return self.lite.parent if self.lite is not None and self.lite.is_wildcard else topic

    def backoff_of(self, deliveries: int) -> int:
        """The delay in ms before the next delivery, after that many deliveries."""
        times = self.backoff_ms
        return times[min(deliveries, len(times)) - 1] if times else 0


class KeptQueue(NamedTuple):
    """The last count of a queue whose topic has a limit in bytes. `end_offset` is exclusive."""

    topic: str
    queue_id: int
    created_offset: int  # of the topic at that time
    limit_bytes: int
    first_offset: int  # where the queue begins for its readers
    end_offset: int
    kept_bytes: int  # of records in first_offset..end_offset


class LatestHead(NamedTuple):
    """Physical offset up to which a queue was scanned for the latest message of each key."""

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical: records from there on were not looked at
    hidden: int  # messages that were hidden then
