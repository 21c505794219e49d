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
    GIVEN_UP = enum.auto()  # like OPEN; its producers are no longer asked
    ENDED = enum.auto()  # it no longer waits: see the last event


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
    # The group continues after it: a filter excluded it, or the topic did not keep it.
    PASSED = enum.auto()
    READ = enum.auto()  # a reader group committed an offset after it
    READ_AGAIN = enum.auto()  # ... and at or before it, later
    RESET = enum.auto()  # the group was moved to after it
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
    HANDED_BACK = enum.auto()  # to a RocketMQ broker, which will deliver it
    # As a dead letter.
    BURIED = enum.auto()
    REDRIVEN = enum.auto()
    DELETED = enum.auto()
    EXPIRED = enum.auto()
    LETTER_GIVEN_UP = enum.auto()
    # Appended again, because its segment was dropped.
    MOVED = enum.auto()


#: The events that the decoder of the state calls by the same names.
OF_GROUPS = {each: What[each.name] for each in Happened}


class Reader(enum.Enum):
    """The message's current state for a group."""

    NOT_RECEIVED = enum.auto()
    BEFORE_START = enum.auto()  # the group began after it
    IN_FLIGHT = enum.auto()
    AGAIN = enum.auto()  # it is redelivered after `until_ms`
    IN_ORDER = enum.auto()  # it waits for those before it
    DONE = enum.auto()  # events say how
    READ = enum.auto()  # a reader group has committed an offset after it
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
    physical_offset: int  # of the event's record
    group: str = ""  # the consumers' group, or the producers' group that decides
    place: Place | None = None  # of the message; None while it waits and is in no queue
    delivery: int = 0  # the how manieth, or how often producers were asked; 0: neither
    until_ms: int = 0  # end of a lease, or when it is due or checked next; 0 for other events
    position: int = -1  # the position that the group was moved to
    nonce: int = 0  # of a lease; callers look up whose it is
    message_id: str = ""  # id of the message after or before this event


class Standing(NamedTuple):
    """The message's current state for one group, from the rows."""

    group: str
    place: Place
    reader: Reader
    deliveries: int | None = 0  # so far; None if the search has not found how many
    until_ms: int = 0
    nonce: int = 0


class Subject(NamedTuple):
    """The message that is traced."""

    message_id: str
    physical_offset: int
    stored_ms: int  # ms since 1970
    topic: str  # its destination while it waits
    places: tuple[Place, ...]  # none while it waits
    now: Now
    due_ms: int = 0  # of a delayed message, waiting or delivered
    group: str = ""  # the producers' group of a transaction


class Found(NamedTuple):
    """A message that was found, and how entries refer to it."""

    subject: Subject
    begin: int  # physical: nothing was said of it before
    timer: tuple[int, int] | None = None  # due time and name
    half: int | None = None
    letter: tuple[str, int] | None = None  # topic and name
    origin: tuple[Event, ...] = ()  # events of the message it was before


class Story(NamedTuple):
    """The part of a trace that one call found."""

    subject: Subject
    standings: list[Standing]
    events: list[Event]  # in the order of their records
    cursor: bytes | None  # for the next part; None if the story is complete
    told_until_ms: int  # store time up to which the log was read; 0 if nothing was read
    log_start: int  # physical; the content of records below is no longer known
    log_start_ms: int | None
