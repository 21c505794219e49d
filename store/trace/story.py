"""The values of a trace."""

from __future__ import annotations

import enum
from typing import NamedTuple

from store.state import Happened


class Now(enum.Enum):
    """The message's current state for readers of its topic."""

    READABLE = enum.auto()
    NOT_KEPT = enum.auto()  # the topic keeps it no longer
    SUPERSEDED = enum.auto()  # a later message has its key
    PENDING = enum.auto()  # it waits for its time
    OPEN = enum.auto()  # it waits for its transaction to be decided
    GIVEN_UP = enum.auto()  # the same, and its producers are not asked any more
    ENDED = enum.auto()  # it waited: the last event says what came of it


class What(enum.Enum):
    """What happened to a message."""

    # For a group.
    DELIVERED = enum.auto()
    HELD_ON = enum.auto()
    GIVEN_BACK = enum.auto()
    ACKNOWLEDGED = enum.auto()
    DEAD = enum.auto()
    GONE = enum.auto()
    DAMAGED = enum.auto()
    PASSED = enum.auto()  # the group went on behind it: its filter, or it was not kept
    READ = enum.auto()  # a group by offsets committed behind it
    READ_AGAIN = enum.auto()  # ... and at or before it, later
    RESET = enum.auto()  # the group goes on behind it
    RESET_BACK = enum.auto()  # ... with it, or before it
    GROUP_DELETED = enum.auto()
    QUEUE_DELETED = enum.auto()  # a light queue that it stood in
    # While it waited for its time.
    TIMER_SET = enum.auto()
    FIRED = enum.auto()
    RECALLED = enum.auto()
    TIMER_TOPIC_GONE = enum.auto()
    TIMER_LOST = enum.auto()
    # While it waited for a decision.
    BEGUN = enum.auto()
    CHECKED = enum.auto()
    GAVE_UP = enum.auto()
    COMMITTED = enum.auto()
    ROLLED_BACK = enum.auto()
    TOPIC_GONE = enum.auto()
    RECORD_GONE = enum.auto()
    HANDED_BACK = enum.auto()  # to a RocketMQ broker, which goes on with it
    # As a dead letter.
    BURIED = enum.auto()
    REDRIVEN = enum.auto()
    DELETED = enum.auto()
    EXPIRED = enum.auto()
    LETTER_GIVEN_UP = enum.auto()
    # It was appended again, since its segment went.
    MOVED = enum.auto()


#: What the decoder of the state calls the same.
OF_GROUPS = {each: What[each.name] for each in Happened}


class Reader(enum.Enum):
    """The message's current state for a group."""

    NOT_RECEIVED = enum.auto()
    BEFORE_START = enum.auto()  # the group began behind it
    IN_FLIGHT = enum.auto()
    AGAIN = enum.auto()  # it is to be delivered again, once `until_ms` is over
    IN_ORDER = enum.auto()  # it waits for those before it
    DONE = enum.auto()  # events say how
    READ = enum.auto()  # a group by offsets has committed behind it
    UNREAD = enum.auto()  # ... and has not


class Place(NamedTuple):
    """A place of a message."""

    topic: str  # or a light queue
    queue_id: int
    offset: int


class Event(NamedTuple):
    """One event, from a record of the log."""

    what: What
    time_ms: int  # when the record was stored, ms since 1970
    physical_offset: int  # of the record
    group: str = ""  # of readers, or of the producers that decide
    place: Place | None = None  # of the message; None: what waits stands in no queue
    delivery: int = 0  # the how manieth, or how often producers were asked; 0: neither
    until_ms: int = 0  # of a lease; when it is due, or is asked about again; 0: none of these
    position: int = -1  # where the group went on
    nonce: int = 0  # of a lease: who has it is for others to say
    message_id: str = ""  # of what it became, or of what it was


class Standing(NamedTuple):
    """The message's current state for one group, from the rows."""

    group: str
    place: Place
    reader: Reader
    deliveries: int = 0  # so far, of one in flight
    until_ms: int = 0
    nonce: int = 0


class Subject(NamedTuple):
    """The message that is traced."""

    message_id: str
    physical_offset: int
    stored_ms: int  # ms since 1970
    topic: str  # that it is for, where it waits
    places: tuple[Place, ...]  # none while it waits
    now: Now
    due_ms: int = 0  # of one that waits, or waited, for its time
    group: str = ""  # of producers, of one that waits for them


class Found(NamedTuple):
    """A message that was found, and how entries refer to it."""

    subject: Subject
    begin: int  # physical: nothing was said of it before
    timer: tuple[int, int] | None = None  # due time and name
    half: int | None = None
    letter: tuple[str, int] | None = None  # topic and name
    origin: tuple[Event, ...] = ()  # what was said of it before


class Story(NamedTuple):
    """The part of a trace that one call found."""

    subject: Subject
    standings: list[Standing]
    events: list[Event]  # by their records' places in the log
    cursor: bytes | None  # to go on with; None: it is all told
    told_until_ms: int  # what was looked at last was stored then; 0: nothing was
    log_start: int  # physical: what records below said is not known any more
    log_start_ms: int | None
