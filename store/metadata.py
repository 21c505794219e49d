"""Values of the state: what a topic is, and what its queues keep."""

from __future__ import annotations

from typing import NamedTuple


class Retention(NamedTuple):
    """What each queue of a topic keeps; 0: as much as the log does."""

    time_ms: int = 0  # messages that were stored so long ago at most
    bytes: int = 0  # the last ones whose records have so many bytes together, and one at least
    messages: int = 0  # the last ones, so many
    latest: bool = False  # of each key, the latest one, as far as it was looked through


#: All that is in the log.
KEEP_ALL = Retention()


class TopicConfig(NamedTuple):
    """Settings of one topic."""

    name: str
    queue_count: int
    created_ms: int
    created_offset: int  # physical, of the record that made it: older records are not its own
    retention: Retention = KEEP_ALL


class SharedGroup(NamedTuple):
    """Settings of a group whose members share its messages; other groups read by offsets."""

    max_deliveries: int = 17  # then a message is a dead letter; 0: never
    invisible_ms: int = 60_000  # how long a receiver has a message, when it does not say
    most_in_flight: int = 2000  # messages of one queue


class KeptQueue(NamedTuple):
    """What was counted of a queue whose topic keeps so many bytes. `end_offset` is exclusive."""

    topic: str
    queue_id: int
    created_offset: int  # of the topic then
    limit_bytes: int
    first_offset: int  # of the queue: where it begins for its readers
    end_offset: int
    kept_bytes: int  # of records in first_offset..end_offset


class LatestHead(NamedTuple):
    """How far along the log a queue was kept to the latest message of each key."""

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical: records from there on were not looked at
    hidden: int  # messages that were hidden then
