"""Results of receives, and of calls with handles."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outcome(enum.Enum):
    """Result for one handle. None of these is an error."""

    DONE = "done"
    NOT_IN_FLIGHT = "not in flight"  # already acknowledged, given back, or redelivered
    QUEUE_ENDED = "queue ended"  # the topic or light queue was deleted


class Delivery(NamedTuple):
    """A message that belongs to its receiver until a given time."""

    handle: str  # to acknowledge it, give it back, or extend its lease
    record: bytes  # whole, as in the log
    topic: str  # or light queue
    queue_id: int
    queue_offset: int
    deliveries: int  # this one included
    until_ms: int  # ms since 1970, by the store's time


class Received(NamedTuple):
    """The result of one receive."""

    deliveries: list[Delivery]
    next_look_ms: int | None  # when the next lease ends, ms since 1970; None: no lease
    lost: Sequence[str] = ()  # lite topics that another client of an exclusive group has taken
    nonces: Sequence[int] = ()  # nonces of the leases of `deliveries`
    outcomes: Sequence[Outcome] = ()  # one for each acknowledged handle
    end_offset: int = 0  # the outcomes are durable once the log is, up to here
