"""Entries: what a record of the state topic says happened to topics, groups and offsets.

Their bytes: packing.py. An entry speaks of what lies before it in the log; what it makes counts
from its record's own physical offset on.
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
    """The body of a state record that no program of ours wrote, or a newer one did."""


class TopicsMade(NamedTuple):
    """Topics begin, with no messages: whatever lies before in the log is not their own."""

    topics: Sequence[str]  # all different, MOST_MADE of them at most
    queue_count: int
    created_ms: int  # ms since 1970
    retention: Retention


class TopicKeeps(NamedTuple):
    """A topic keeps as much as this from now on."""

    topic: str
    retention: Retention


class TopicTakes(NamedTuple):
    """A topic is for messages of this type from now on."""

    topic: str
    message_type: MessageType


class TopicEnded(NamedTuple):
    """A topic or light queue is deleted: its messages, and all offsets of groups on it."""

    topic: str


class GroupMade(NamedTuple):
    """A group exists, with these settings; it keeps what it has committed."""

    group: str
    settings: bytes


class GroupEnded(NamedTuple):
    """A group is deleted, with all that it has committed."""

    group: str


class Committed(NamedTuple):
    """The group has read the queue up to `offset`, exclusive."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    offset: int


class LatestLooked(NamedTuple):
    """How far a queue was kept to the latest message of each key, and which messages are hidden.

    Many rows are divided over several of them: bits say which messages are hidden at once.
    """

    topic: str  # or a light queue
    queue_id: int
    looked_offset: int  # physical, exclusive
    hidden: int  # messages
    first_number: int  # rows of lower numbers are removed
    bits: Mapping[int, bytes]  # rows by number: a bit for each of 8192 queue offsets


class Held(enum.IntEnum):
    """How messages came to be in a lease."""

    HANDED_OVER = 1
    EXTENDED = 2  # or made shorter: by the receiver, whose handles stay good
    GIVEN_BACK = 3  # nobody holds them, and they wait until the lease ends


class Ended(enum.IntEnum):
    """How a group was done with messages."""

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
    """The group is done with the messages first + n of bit n."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    first: int
    mask: int
    how: Ended


class Passed(NamedTuple):
    """The group wants nothing below `next_offset` that was not handed over before."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    next_offset: int


class LetterEnd(enum.IntEnum):
    """How a dead letter left its place."""

    REDRIVEN = 1  # the append that has this record has it for the topic it came from
    DELETED = 2
    EXPIRED = 3  # it was kept as long as its group says
    GIVEN_UP = 4  # no space was left to keep it when its segment went
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
    """The group goes on with the message at `next_offset`, and has none in flight."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    next_offset: int


class Begun(NamedTuple):
    """The group, which begins with the latest, receives from the topic for the first time."""

    group: str
    topic: str  # or a light queue


class Seen(NamedTuple):
    """The messages first + n of bit n were looked at for a group in order, and are not done."""

    group: str
    topic: str  # or a light queue
    queue_id: int
    first: int
    mask: int
    keys: Sequence[int]  # the message group of each, a signed hash


class TimerSet(NamedTuple):
    """The append that has this record has a message that is delivered at a time, for the topic."""

    topic: str  # exists; of another topic of this name it never is a message
    due_ms: int  # ms since 1970
    place: int  # queue offset of the message in queue 0 of TIMER_TOPIC; from now on its name
    nonce: int  # that of its handle


class TimerEnd(enum.IntEnum):
    """What became of a message that waited for its time, or of its place."""

    FIRED = 1  # the append that has this record has it for its topic
    RECALLED = 2
    GONE = 3  # its topic was deleted meanwhile
    LOST = 4  # its record cannot be read, or not be put
    MOVED = 5  # the append that has this record has it at another place


class TimerEnded(NamedTuple):
    """A message that waited for its time does so no longer, or is at another place."""

    due_ms: int
    timer: int  # its name: the place at which it was first
    moved_to: int  # the place at which it is from now on; NOWHERE: it waits no longer
    how: TimerEnd


class LiteTopicsOf(NamedTuple):
    """The topic is a parent of lite topics, each of which ends after it was idle for that long."""

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
