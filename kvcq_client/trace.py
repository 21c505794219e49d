"""What became of a message: what `trace` returns. Times are ms since 1970."""

from __future__ import annotations

import enum
from typing import Annotated, NamedTuple

from kvcq_client.wire import Wire


class MessageState(enum.Enum):
    """The current state of a message for readers of its topic."""

    READABLE = "readable"
    NOT_KEPT = "not kept"  # still in the log, but its topic no longer keeps it
    SUPERSEDED = "superseded"  # a later message has its key
    PENDING = "pending"  # waits for its time
    OPEN = "open"  # waits for its transaction to be decided
    GIVEN_UP = "given up"  # like OPEN; its producers are no longer asked
    ENDED = "ended"  # it no longer waits; `Trace.end` says why


class TraceGroupState(enum.Enum):
    """The current state of a message in a group."""

    NOT_RECEIVED = "not received"
    BEFORE_START = "before start"  # the group began after it
    IN_FLIGHT = "in flight"
    AGAIN = "again"  # it is redelivered after `until_ms`
    IN_ORDER = "in order"  # it waits for messages with its ordering key
    DONE = "done"  # see its events
    READ = "read"  # a reader group has committed an offset after it
    UNREAD = "unread"  # ... and has not


class TraceEventKind(enum.Enum):
    """What happened to a message."""

    # For a group.
    DELIVERED = "delivered"
    HELD_ON = "held on"  # its receiver changed the end of the lease
    GIVEN_BACK = "given back"
    ACKNOWLEDGED = "acknowledged"
    DEAD = "dead letter"  # delivered as often as the group allows; `message_id` is the dead letter
    GONE = "gone"  # its topic no longer kept it when it was due for redelivery
    DAMAGED = "damaged"  # it cannot be read, and the group skipped it
    #: The group continues after it: a filter excluded it, or the topic did not keep it.
    PASSED = "passed over"
    READ = "read"  # a reader group committed `position`, which is after it
    READ_AGAIN = "set back"  # ... and one at or before it, later
    RESET = "reset behind"  # the group was moved to `position`, which is after it
    RESET_BACK = "reset before"  # ... or to it, or before it
    GROUP_DELETED = "group deleted"
    QUEUE_DELETED = "queue deleted"  # a light queue that it stood in
    # While it waited for its time, and for a decision.
    TIMER_SET = "put with a time"
    FIRED = "put at its time"  # as the message `message_id`
    RECALLED = "recalled"
    TIMER_TOPIC_GONE = "its topic was deleted"
    TIMER_LOST = "its record cannot be read"
    BEGUN = "transaction begun"
    CHECKED = "producer asked"  # for the time `delivery`
    GAVE_UP = "given up"
    COMMITTED = "committed"  # as the message `message_id`
    ROLLED_BACK = "rolled back"
    TOPIC_GONE = "topic gone"
    RECORD_GONE = "record gone"
    HANDED_BACK = "handed back"  # to a RocketMQ broker, as `message_id`
    # As a dead letter.
    BURIED = "made a dead letter"  # as the message `message_id`
    #: Put back from the dead letters of `group`, as `message_id`. Of the message that was put back:
    #: it was that dead letter, and there is no group.
    REDRIVEN = "redriven"
    DELETED = "deleted"
    EXPIRED = "expired"
    LETTER_GIVEN_UP = "given up for want of space"
    MOVED = "kept in a new place"  # as the message `message_id`


class TraceEvent(NamedTuple):
    """One thing that happened to a message, by a record of the log."""

    what: Annotated[TraceEventKind, Wire("kind")]
    time_ms: int
    physical_offset: int  # of the event's record
    group: str  # "": of no group
    topic: str  # or light queue
    queue_id: int
    queue_offset: int
    delivery: int  # the how manieth; 0: of none
    until_ms: int | None  # the receiver has it until then, or it waits
    position: int | None  # the position that the group was moved to
    message_id: str  # id of the message after or before this event
    user: str  # of the receiver; "" if unknown, as after a restart of the server
    address: str


class TracedGroup(NamedTuple):
    """The state of a message in one group, in one queue or light queue."""

    group: str
    topic: str
    queue_id: int
    queue_offset: int
    state: TraceGroupState
    deliveries: int | None  # so far; None if unknown, as before the search reaches the log's end
    until_ms: int | None
    user: str  # who has the message; see TraceEvent
    address: str


class TracePlace(NamedTuple):
    """A queue that has the message."""

    topic: str  # or light queue
    queue_id: int
    offset: int


class Trace(NamedTuple):
    """The story of a message, as far as the log has it."""

    message_id: str
    physical_offset: int
    store_time_ms: int
    topic: str  # its destination while it waits
    places: tuple[TracePlace, ...]  # none while it waits
    state: MessageState
    due_ms: int | None  # of a delayed message, waiting or delivered
    producer_group: str  # of a transaction that waits for a decision
    groups: tuple[TracedGroup, ...]  # groups of its queues; at most 1,000
    events: tuple[TraceEvent, ...]  # in the order of the log
    next_page_token: str  # not empty: the search ended before the log did
    searched_until_ms: int | None  # the last record that was looked at is of then
    log_start_offset: int  # events recorded before this physical offset are no longer known
    log_start_ms: int | None
    groups_limited: bool  # groups that the caller may not see are left out

    @property
    def redriven_as(self) -> list[str]:
        """Ids of the messages that it became when it was put back from the dead letters."""
        return [
            each.message_id
            for each in self.events
            if each.what is TraceEventKind.REDRIVEN
            and each.message_id
            and (each.group or self.topic.startswith("%DLQ%"))
        ]

    @property
    def end(self) -> TraceEvent | None:
        """The event that ended its wait for its time or for a decision. None if it waits, never
        waited, or the search has not come to the event."""
        if self.state is not MessageState.ENDED:
            return None
        return next((each for each in reversed(self.events) if each.what in _ENDS), None)

    def events_of(self, one: TracedGroup) -> list[TraceEvent]:
        """The events of a message in one group and queue."""
        key = one.group, one.topic, one.queue_id
        return [each for each in self.events if (each.group, each.topic, each.queue_id) == key]

    def outcome(self, one: TracedGroup) -> str:
        """The state of the message in the group, in words."""
        events = self.events_of(one)
        if one.state is TraceGroupState.DONE and events:
            return _KINDS[events[-1].what]
        return _STATES.get(one.state) or str(one.state.value)


_ENDS = frozenset(
    {
        TraceEventKind.FIRED,
        TraceEventKind.RECALLED,
        TraceEventKind.TIMER_TOPIC_GONE,
        TraceEventKind.TIMER_LOST,
        TraceEventKind.COMMITTED,
        TraceEventKind.ROLLED_BACK,
        TraceEventKind.TOPIC_GONE,
        TraceEventKind.RECORD_GONE,
        TraceEventKind.HANDED_BACK,
    }
)
_KINDS = {each: str(each.value) for each in TraceEventKind}
_STATES = {
    TraceGroupState.NOT_RECEIVED: "not received yet",
    TraceGroupState.BEFORE_START: "before the group began",
    TraceGroupState.AGAIN: "to be delivered again",
    TraceGroupState.IN_ORDER: "waits behind others with its ordering key",
    TraceGroupState.UNREAD: "not read yet",
}
