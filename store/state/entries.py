"""Entries: the changes of topics, groups and offsets in records of the state topic.

Their encoding is in packing.py. An entry is about earlier records of the log; what it creates
counts from its record's own physical offset on.
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

#: Where these records stand: queue 0 of this topic.
STATE_TOPIC = "rmq_sys_kvcq_state"
#: Where messages wait for their time: queue 0 of this topic. RocketMQ's name.
TIMER_TOPIC = "rmq_sys_wheel_timer"
#: An entry makes no more topics than this.
MOST_MADE = 1000


class CorruptStateError(StoreError):
    """The body of a state record that we did not write, or that a newer version wrote."""


class TopicsMade(NamedTuple):
    """Topics are created, without messages: earlier records of their names do not belong to
    them."""

    topics: Sequence[str]  # all different, MOST_MADE of them at most
    queue_count: int
    created_ms: int  # ms since 1970
    retention: Retention


class TopicKeeps(NamedTuple):
    """From now on the topic keeps this much."""

    topic: str
    retention: Retention


class TopicTakes(NamedTuple):
    """From now on the topic is for messages of this type."""

    topic: str
    message_type: MessageType


class TopicEnded(NamedTuple):
    """A topic or light queue is deleted, with its messages and all groups' offsets on it."""

    topic: str


class GroupMade(NamedTuple):
    """A group exists with these settings; it keeps its committed offsets."""

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

    Many rows are split into several entries: the bits say which messages are hidden at once.
    """

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical, exclusive
    hidden: int  # messages
    first_number: int  # rows of lower numbers are removed
    bits: Mapping[int, bytes]  # rows by number: a bit for each of 8192 queue offsets


class Held(enum.IntEnum):
    """How messages came into a lease."""

    HANDED_OVER = 1
    EXTENDED = 2  # or made shorter: by the receiver, whose handles stay good
    GIVEN_BACK = 3  # nobody holds them, and they wait until the lease ends


class Ended(enum.IntEnum):
    """How a group finished messages."""

    ACKNOWLEDGED = 1
    DEAD = 2  # the append that has this record has them for its topic of dead letters
    GONE = 3  # the topic did not keep them any longer
    DAMAGED = 4  # they cannot be read, and their receiver asked to skip such


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
    """The group skips everything below `next_offset` that was never delivered."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    next_offset: int


class LetterEnd(enum.IntEnum):
    """How a dead letter left its place."""

    REDRIVEN = 1  # the append that has this record has it for the topic it came from
    DELETED = 2
    EXPIRED = 3  # it was kept as long as its group says
    GIVEN_UP = 4  # its segment went, and it could not be kept: no space was left, or it is damaged
    MOVED = 5  # the append that has this record has it at another place


class LetterEnded(NamedTuple):
    """A dead letter is no longer at this place in queue 0 of its topic."""

    topic: str  # of dead letters
    letter: int  # queue offset at which it was first
    place: int  # ... at which it was now
    moved_to: int  # ... at which it is from now on; NOWHERE: the letter is done
    first_offset: int  # of the queue: nothing is kept of places below
    how: LetterEnd


#: Where a letter, or whatever waited, is that is done.
NOWHERE = -1


class Reset(NamedTuple):
    """The group continues with the message at `next_offset`, and has none in flight."""

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
    keys: Sequence[int]  # the message group of each, a signed hash


class TimerSet(NamedTuple):
    """The append of this record includes a delayed message for the topic."""

    topic: str  # exists; of another topic of this name it never is a message
    due_ms: int  # ms since 1970
    place: int  # queue offset of the message in queue 0 of TIMER_TOPIC; from now on its name
    nonce: int  # that of its handle


class TimerEnd(enum.IntEnum):
    """What became of a delayed message, or of its place."""

    FIRED = 1  # the append that has this record has it for its topic
    RECALLED = 2
    GONE = 3  # its topic was deleted meanwhile
    LOST = 4  # its record cannot be read, or not be put
    MOVED = 5  # the append that has this record has it at another place


class TimerEnded(NamedTuple):
    """A delayed message no longer waits, or is at another place."""

    due_ms: int
    timer: int  # its name: the place at which it was first
    moved_to: int  # the place at which it is from now on; NOWHERE: it waits no longer
    how: TimerEnd


class LiteTopicsOf(NamedTuple):
    """The topic is a parent of lite topics, each of which expires after this idle time."""

    topic: str
    expiry_ms: int  # 0: they never do


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
    | HalfBegun
    | HalfEnded
    | HalfChecked
    | HalfMoved
    | HalvesForgotten
    | LiteTopicsOf
)
