"""Results of receives, and of calls with handles."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence


class Outcome(enum.Enum):
    """Result for one handle. None of these is an error."""

    DONE = "done"
    NOT_IN_FLIGHT = "not in flight"  # acknowledged before, given back, or delivered again since
    QUEUE_ENDED = "queue ended"  # its topic or light queue was deleted since


class Delivery(NamedTuple):
    """A message that belongs to its receiver until a given time."""

    handle: str  # for acknowledging it, giving it back, holding on to it
    record: bytes  # whole, as in the log
    topic: str  # or the light queue it was received from
    queue_id: int
    queue_offset: int
    deliveries: int  # 1: it was never handed over before
    until_ms: int  # ms since 1970, by the store's time


class Received(NamedTuple):
    """The answer of one receive."""

    deliveries: list[Delivery]
    next_look_ms: int | None  # when, by the store's time, a lease ends; None: there is none
    lost: Sequence[str] = ()  # lite topics that another client of an exclusive group has taken
    nonces: Sequence[int] = ()  # of the leases that these are in
    outcomes: Sequence[Outcome] = ()  # of the handles that it acknowledged
    end_offset: int = 0  # these are certain once the log is durable up to it
