"""Values that go in and come out. Times are ms since 1970; `max_` and `next_` are exclusive."""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Names of light queues begin with this.
LIGHT_PREFIX = "%LMQ%"


class Queue(NamedTuple):
    """One queue of a topic. A light queue's name stands for the topic, with queue 0."""

    topic: str
    queue_id: int = 0


@dataclass(frozen=True, slots=True)
class Message:
    """A message to send. The server checks its limits before anything is written.

    `ordering_key`: messages of one topic with the same key stand in the same queue, in the order
    in which they were stored, and are read in that order. The key and the topic's number of queues
    decide the queue. `queue_id`: the queue itself, instead. With neither, messages go to the queues
    in turn, and there is no order among them.

    `keys` are single words that can be queried for; they say nothing about order. Each of
    `light_queues` is a full name, `%LMQ%` included; the message then stands in each of them as
    well.
    """

    topic: str
    body: bytes
    queue_id: int | None = None
    tag: str = ""
    keys: tuple[str, ...] = ()
    light_queues: tuple[str, ...] = ()
    properties: Mapping[str, str] | None = None
    flag: int = 0
    born_time_ms: int | None = None  # None: the server's own time
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
    """Where an acknowledged message stands.

    Numbers are -1 and the id is empty when it was sent again, and has expired meanwhile.
    """

    queue_id: int
    queue_offset: int
    physical_offset: int  # byte position in the server's commit log
    message_id: str
    store_time_ms: int
    light_queue_offsets: tuple[int, ...] = ()  # in the order of Message.light_queues
    #: It was stored by an earlier attempt: by this producer, whose first answer was lost, or by
    #: another process that used the same `producer_id` and number.
    repeated: bool = False


class Position(int):
    """An offset that knows which generation of its queue it belongs to.

    All offsets that the client returns are such ints. Sent back, one is refused with RecreatedError
    when its topic or light queue was deleted and made again since. A plain int, as a number that a
    program stored itself or computed (`offset + 1`), is not checked: it is taken for an offset of
    the queue that has the name now, and reading from it may skip messages of a new queue. Pickle
    keeps what a Position knows; JSON and arithmetic do not.
    """

    given_at: int  # opaque: the server's

    def __new__(cls, offset: int, given_at: int) -> Position:
        made = super().__new__(cls, offset)
        made.given_at = given_at
        return made

    def __getnewargs__(self) -> tuple[int, int]:  # type: ignore[override] # of pickle
        return int(self), self.given_at


def position(offset: int, given_at: int | None) -> int:
    """The offset, with what the server said when it gave it."""
    return offset if given_at is None else Position(offset, given_at)


def given_at(offset: int) -> int | None:
    """What a Position knows; None of a plain int."""
    return getattr(offset, "given_at", None)


class Bounds(NamedTuple):
    """Offsets of a queue: the first message that is kept, and the end (exclusive)."""

    min_offset: int
    max_offset: int


class Retention(NamedTuple):
    """What each queue of a topic keeps; 0: as much as the server's log does."""

    time_ms: int = 0  # messages stored so long ago at most
    bytes: int = 0  # the last ones whose records have so many bytes together, one at least
    messages: int = 0  # the last ones, so many
    latest: bool = False  # of each key the latest one, once the server has looked for it


class Topic(NamedTuple):
    """A topic as the server has it."""

    name: str
    queue_count: int
    created_time_ms: int
    retention: Retention = Retention()


class QueueState(NamedTuple):
    """Where a queue begins and ends. `log_min_offset` is the first message that is still in the
    log: those from there to `min_offset` are hidden, since the topic does not keep them;
    `superseded_messages` more are, since a later one has their key."""

    queue_id: int
    min_offset: int
    max_offset: int  # exclusive
    log_min_offset: int
    superseded_messages: int = 0


class GroupOffset(NamedTuple):
    """What a reader group committed in one queue. `offset` is None when it never did."""

    topic: str
    queue_id: int
    offset: int | None
    min_offset: int
    max_offset: int
    lag: int  # messages between the committed offset (or min) and max


class Start(enum.Enum):
    """Where a consumer begins in a queue for which no offset is given.

    COMMITTED is the reader group's offset, or the earliest where it has none. Its text may stand
    for a Start everywhere: `start="earliest"`.
    """

    EARLIEST = "earliest"
    LATEST = "latest"
    COMMITTED = "committed"


class Boundary(enum.Enum):
    """Which of several messages a search by time returns."""

    LOWER = "lower"  # the first one stored at or after the time
    UPPER = "upper"  # the last one stored at or before the time
