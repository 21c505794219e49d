"""Groups whose members share messages: settings, received messages, and where a group is.

Times are ms since 1970 by the clock of the store.
"""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from kvcq_client.format import StoredMessage


class LiteSettings(NamedTuple):
    """That a shared group receives from lite topics. All but the quota is fixed."""

    parent: str
    #: Lite topics that a receiver may be subscribed to, 1 to 100,000.
    client_quota: int = 2000
    #: Whether a lite topic has only one receiver: the last one to subscribe.
    exclusive: bool = False
    #: Whether the receivers share all lite topics of the parent, and subscribe to none.
    wildcard: bool = False


class SharedGroup(NamedTuple):
    """Settings of a shared group. The defaults are those of the server."""

    #: How often a message is delivered before it becomes a dead letter, 1 to 1000. None: no limit,
    #: which is the default of a group in order.
    max_deliveries: int | None = 17
    #: How long a receiver has a message unless it says otherwise, 1 ms to 12 hours.
    invisible_ms: int = 60_000
    #: Messages of one queue that receivers have at a time, 1 to 10,000.
    most_in_flight: int = 2000
    #: Messages with the same ordering key are delivered one after another.
    in_order: bool = False
    #: Whether the group starts with new messages, not with the oldest message of a topic.
    from_latest: bool = False
    #: Whether delivery is paused. Messages in flight may still be acknowledged.
    paused: bool = False
    #: How long dead letters are kept, 1 minute to 10 years.
    dead_letters_keep_ms: int = 30 * 24 * 3_600_000
    #: Delays before the second, third, ... delivery of a message that was given back without a
    #: delay. The last one also applies to all later deliveries. Empty: it is delivered at once.
    backoff_ms: tuple[int, ...] = ()
    #: None: the group receives from topics and light queues by name.
    lite: LiteSettings | None = None


class Received(NamedTuple):
    """A message that this receiver has until `until_ms`, unless it asks for more time."""

    message: StoredMessage
    handle: str  # names this delivery; still valid after a restart of client or server
    deliveries: int  # how often the message has been delivered, including this time
    until_ms: int


class Outcome(enum.Enum):
    """What a call did with one handle. None of them is an error."""

    DONE = "done"
    #: Too late: the message was acknowledged, given back, or delivered again since. Also returned
    #: if the response to a first attempt was lost, and the client's second attempt found it done.
    NOT_IN_FLIGHT = "not in flight"
    QUEUE_ENDED = "queue ended"  # its topic or light queue was deleted since


class ReceivedBatch(list[Received]):
    """The messages that one call received, and the `outcomes` of those that it acknowledged, in
    order."""

    def __init__(self, received: Iterable[Received], outcomes: Sequence[Outcome] = ()) -> None:
        super().__init__(received)
        self.outcomes = list(outcomes)


class SharedQueue(NamedTuple):
    """Where a shared group is in a queue. Offsets are exclusive ends."""

    topic: str
    queue_id: int
    next_offset: int  # messages from here on were never delivered
    max_offset: int
    done_below: int  # all messages before it are done
    in_flight: int  # messages that receivers have
    waiting_again: int  # messages that wait for another delivery
    oldest_time_ms: int | None  # when the oldest message that is not done was stored

    @property
    def lag(self) -> int:
        """Messages that are not done."""
        return self.max_offset - self.next_offset + self.in_flight + self.waiting_again


class GroupMember(NamedTuple):
    """A connection that receives from a shared group."""

    user: str  # "" where users are not asked for
    address: str  # host and port
    since_ms: int  # since when it makes calls, without a break of more than a minute
    last_ms: int  # when its last call began or ended
    waiting: int  # calls that wait for messages
    in_flight: int  # messages that it has


class GroupState(NamedTuple):
    """A group of either kind. A reader group has no settings, and the rest is empty."""

    settings: SharedGroup | None
    queues: list[SharedQueue]  # all of the topics that it has received from
    dead_letters: int  # not redriven, deleted or expired
    members: list[GroupMember]  # who receives from the group

    @property
    def is_shared(self) -> bool:
        """Whether its members share messages."""
        return self.settings is not None


class GroupReset(NamedTuple):
    """The result of a reset."""

    queues: list[SharedQueue]
    ended_in_flight: int  # messages that were in flight; their handles are no longer valid


class Redriven(NamedTuple):
    """The result of redriving dead letters."""

    redriven: int  # put again into the topics they came from
    left: int  # their topics no longer exist
