"""Entries: the changes of topics, groups and offsets in records of the state topic.

Their encoding is in packing.py. An entry concerns earlier records of the log. What it creates
exists from the physical offset of its own record on.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from store.errors import StoreError
from store.state.half_entries import HalfBegun, HalfChecked, HalfEnded, HalfMoved, HalvesForgotten

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.metadata import MessageType, Retention
    from store.state.windows import Lease

#: The records with entries are in queue 0 of this topic.
STATE_TOPIC = "rmq_sys_kvcq_state"
#: Delayed messages wait in queue 0 of this topic. RocketMQ's name.
TIMER_TOPIC = "rmq_sys_wheel_timer"
#: Most topics that one entry creates.
MOST_MADE = 1000


class CorruptStateError(StoreError):
    """A state record's body is invalid, or was written by a newer version."""


class TopicsMade(NamedTuple):
    """Topics are created, without messages: earlier records with these names do not belong to
    them."""

    topics: Sequence[str]  # distinct, at most MOST_MADE
    queue_count: int
    created_ms: int  # ms since 1970
    retention: Retention


class TopicKeeps(NamedTuple):
    """Sets the topic's retention."""

    topic: str
    retention: Retention


class TopicTakes(NamedTuple):
    """Sets the type of message that the topic accepts."""

    topic: str
    message_type: MessageType


class TopicEnded(NamedTuple):
    """A topic or light queue is deleted, with its messages and all groups' offsets on it."""

    topic: str


class GroupMade(NamedTuple):
    """Creates a group or replaces its settings; its committed offsets stay."""

    group: str
    settings: bytes


class GroupEnded(NamedTuple):
    """A group is deleted with all its committed offsets."""

    group: str


class Committed(NamedTuple):
    """The group has read the queue up to `offset`, exclusive."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    offset: int


class LatestLooked(NamedTuple):
    """How far a queue was scanned for the latest message of each key, and which messages are
    hidden.

    The bits take effect together. Many rows are split into several entries.
    """

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical, exclusive
    hidden: int  # number of hidden messages
    first_number: int  # rows with lower numbers are removed
    bits: Mapping[int, bytes]  # by row number: a bit for each of 8192 queue offsets


class Held(enum.IntEnum):
    """How messages came into a lease."""

    HANDED_OVER = 1
    EXTENDED = 2  # or shortened, by the receiver; its handles stay valid
    GIVEN_BACK = 3  # the messages wait until the lease ends


class Ended(enum.IntEnum):
    """How a group finished messages."""

    ACKNOWLEDGED = 1
    DEAD = 2  # their dead letter is in the same append
    GONE = 3  # the topic no longer kept them
    DAMAGED = 4  # unreadable, and their receiver asked to skip them


class Leased(NamedTuple):
    """Messages of a queue are in this lease of the group, and in no other."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    lease: Lease
    how: Held


class Finished(NamedTuple):
    """The group has finished the messages first + n for each bit n."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    first: int
    mask: int
    how: Ended


class Passed(NamedTuple):
    """The group skips all undelivered messages below `next_offset`."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    next_offset: int


class LetterEnd(enum.IntEnum):
    """How a dead letter left its place."""

    REDRIVEN = 1  # the same append puts it to its original topic
    DELETED = 2
    EXPIRED = 3  # kept as long as the group's settings say
    GIVEN_UP = 4  # lost with its segment: no space, or damaged
    MOVED = 5  # the same append has it at its new place


class LetterEnded(NamedTuple):
    """A dead letter is no longer at this place in queue 0 of its topic."""

    topic: str  # of dead letters
    letter: int  # its first queue offset, which names it
    place: int  # its queue offset until now
    moved_to: int  # its new queue offset; NOWHERE: the letter has ended
    first_offset: int  # min offset of the queue; rows about places below are removed
    how: LetterEnd


#: In place of an offset: the dead letter or held message has ended.
NOWHERE = -1


class Reset(NamedTuple):
    """The group continues at `next_offset`; its messages in flight in the queue are ended."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    next_offset: int


class Begun(NamedTuple):
    """A from-latest group receives from the topic for the first time."""

    group: str
    topic: str  # or a light queue


class Seen(NamedTuple):
    """The messages first + n for each bit n were scanned for a group in order, and are not done."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    first: int
    mask: int
    keys: Sequence[int]  # message group of each, a signed hash


class TimerSet(NamedTuple):
    """The append of this record includes a delayed message for the topic."""

    topic: str  # exists; if deleted, the message ends, even if the topic is created again
    due_ms: int  # ms since 1970
    place: int  # queue offset of the message in queue 0 of TIMER_TOPIC; names the timer
    nonce: int  # of its handle


class TimerEnd(enum.IntEnum):
    """What became of a delayed message, or of its place."""

    FIRED = 1  # the same append puts it to its topic
    RECALLED = 2
    GONE = 3  # its topic was deleted
    LOST = 4  # its record is unreadable, or the message was rejected
    MOVED = 5  # the same append has it at its new place


class TimerEnded(NamedTuple):
    """A delayed message no longer waits, or is at another place."""

    due_ms: int
    timer: int  # its first place, which names it
    moved_to: int  # its new place; NOWHERE: it no longer waits
    how: TimerEnd


class TimersEnded(NamedTuple):
    """Delayed messages no longer wait: packed as a TimerEnded for each, and read back as those."""

    keys: Sequence[bytes]  # of their rows, see timer_key
    how: TimerEnd


class LiteTopicsOf(NamedTuple):
    """The topic is a parent of lite topics. Each lite topic expires after this idle time."""

    topic: str
    expiry_ms: int  # 0: never


Entry = (
    TopicsMade
    | TopicKeeps
    | TopicTakes
    | TopicEnded
    | GroupMade
    | GroupEnded
    | Committed
    | LatestLooked
    | Leased
    | Finished
    | Passed
    | LetterEnded
    | Reset
    | Begun
    | Seen
    | TimerSet
    | TimerEnded
    | TimersEnded
    | HalfBegun
    | HalfEnded
    | HalfChecked
    | HalfMoved
    | HalvesForgotten
    | LiteTopicsOf
)
