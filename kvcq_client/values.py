"""Values of calls. Times are ms since 1970; `max_` and `next_` offsets are exclusive."""

from __future__ import annotations

import enum
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Names of light queues begin with this.
LIGHT_PREFIX = "%LMQ%"


_LITE_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]{1,64}")


def lite_queue(parent: str, lite_topic: str) -> str:
    """The light queue that a lite topic of the parent is, for `light_queues` of its messages.

    Raises ValueError for a name that no lite topic can have: a light queue of that name would take
    the message, and no one would receive it.
    """
    if not _LITE_TOPIC.fullmatch(lite_topic):
        raise ValueError(f"lite_topic: {lite_topic!r} is not 1 to 64 of %|a-zA-Z0-9_-")
    return f"{LIGHT_PREFIX}${parent}${lite_topic}"


def lite_topic_of(light_queue: str) -> str:
    """The lite topic that a light queue is; "" if it is none."""
    parts = light_queue.split("$")
    return parts[2] if len(parts) == 3 and parts[0] == LIGHT_PREFIX else ""


class Queue(NamedTuple):
    """One queue of a topic, or a light queue: its name, and queue 0."""

    topic: str
    queue_id: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. The server checks its limits before anything is written.

    `ordering_key`: messages of a topic with the same key are stored in the same queue, and read in
    the order in which they were stored. The key and the topic's number of queues determine the
    queue. `queue_id` names the queue instead. With neither, messages are distributed over the
    queues in turn, without an order among them.

    `keys` are single words to query for; they do not affect order. Each of `light_queues` is a full
    name with `%LMQ%`; the message is also put into each of them.
    """

    topic: str
    body: bytes
    queue_id: int | None = None
    tag: str = ""
    keys: tuple[str, ...] = ()
    light_queues: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    born_time_ms: int | None = None  # None for the server's time
    ordering_key: str = ""  # up to 255 printable characters


class MessageFields(TypedDict, total=False):
    """The fields of Message that `put` and `send` take by name, with its defaults."""

    queue_id: int | None
    tag: str
    keys: Sequence[str]
    light_queues: Sequence[str]
    properties: Mapping[str, str] | None
    flag: int
    born_time_ms: int | None
    ordering_key: str


class Placed(NamedTuple):
    """Where an acknowledged message is stored.

    Numbers are -1 and the id is "" if the message was repeated after it had expired.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int  # byte position in the server's commit log
    message_id: str
    store_time_ms: int
    light_queue_offsets: tuple[int, ...] = ()  # in the order of Message.light_queues
    #: Whether it was already stored: by this producer, if the first response was lost, or by
    #: another process with the same `producer_id` and number.
    repeated: bool = False


class Position(int):
    """An offset that knows which generation of its queue it belongs to.

    All offsets that the client returns are such ints. If one is sent back after its topic or light
    queue was deleted and created again, the call raises RecreatedError. A plain int, such as a
    number that a program stored or computed (`offset + 1`), is not checked: it counts as an offset
    of the current queue of that name, and reading from it may skip messages of a new queue. Pickle
    keeps the generation; JSON and arithmetic do not: `Position(offset, given_at)` gives it back.
    """

    given_at: int  # opaque: the server's

    def __new__(cls, offset: int, given_at: int) -> Position:
        made = super().__new__(cls, offset)
        made.given_at = given_at
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override] # of pickle
        return int(self), self.given_at


def position(offset: int, given_at: int | None) -> int:
    """The offset as a Position, if the server gave `given_at`."""
    return offset if given_at is None else Position(offset, given_at)


def given_at(offset: int) -> int | None:
    """`given_at` of a Position; None for a plain int."""
    return getattr(offset, "given_at", None)


class Bounds(NamedTuple):
    """Offsets of a queue: its first message, and its end (exclusive)."""

    min_offset: int
    max_offset: int


class Retention(NamedTuple):
    """What each queue of a topic keeps; 0 for as much as the server's log."""

    time_ms: int = 0  # messages up to this age
    bytes: int = 0  # the latest messages up to this total size, at least one
    messages: int = 0  # this many of the latest messages
    latest: bool = False  # only the latest message of each key, after a keep_latest job


class MessageType(enum.Enum):
    """The type of messages that RocketMQ's clients may send to a topic. Not checked for kvcq's own
    clients."""

    ANY = "any"
    NORMAL = "normal"
    FIFO = "fifo"  # with a message group
    DELAY = "delay"
    TRANSACTION = "transaction"
    LITE = "lite"
    PRIORITY = "priority"


class LiteParent(NamedTuple):
    """The state of a parent of lite topics; see create_lite_parent."""

    expiry_ms: int  # how long a lite topic may be idle before it is deleted; 0: forever
    lite_topics: int  # number of lite topics with messages; at most 10,000 are counted
    has_more: bool  # counting stopped at a limit
    clients: int  # number of clients of all its groups


class Topic(NamedTuple):
    """A topic."""

    name: str
    queue_count: int
    created_time_ms: int
    retention: Retention = Retention()
    message_type: MessageType | None = None  # None: of a server that does not say
    lite: LiteParent | None = None  # only from `describe`, for a parent of lite topics


class QueueState(NamedTuple):
    """Where a queue starts and ends. `log_min_offset` is the first message that is still in the
    log; messages from there to `min_offset` are hidden by the topic's retention.
    `superseded_messages` more are hidden by later messages with their keys."""

    queue_id: int
    min_offset: int
    max_offset: int  # exclusive
    log_min_offset: int
    superseded_messages: int = 0


class GroupOffset(NamedTuple):
    """The offset of a reader group in a queue; `offset` is None if it never committed one."""

    topic: str
    queue_id: int
    offset: int | None
    min_offset: int
    max_offset: int
    lag: int  # messages between the committed offset (or min) and max


class Start(enum.Enum):
    """Where a consumer starts in a queue for which no offset is given.

    COMMITTED is the reader group's offset, or the earliest if it has none. A Start may always be
    given as text: `start="earliest"`.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class Boundary(enum.Enum):
    """Which message a search by time returns."""

    LOWER = "lower"  # the first message stored at or after the time
    UPPER = "upper"  # the last message stored at or before the time
