"""Events of single messages of shared groups, from entries. Used by traces, and by Spark's table of
deliveries."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from store.state.entries import Ended, Finished, Held, Leased

if TYPE_CHECKING:
    from collections.abc import Sequence


class Happened(enum.StrEnum):
    """What happened to a message in one group. The values are shown to users."""

    DELIVERED = "delivered"
    HELD_ON = "held on"
    GIVEN_BACK = "given back"
    ACKNOWLEDGED = "acknowledged"
    DEAD = "dead"
    GONE = "gone"
    DAMAGED = "damaged"


#: After these events the group is done with the message.
ENDS = (Happened.ACKNOWLEDGED, Happened.DEAD, Happened.GONE, Happened.DAMAGED)
_HELD = {
    Held.HANDED_OVER: Happened.DELIVERED,
    Held.EXTENDED: Happened.HELD_ON,
    Held.GIVEN_BACK: Happened.GIVEN_BACK,
}
_ENDED = {
    Ended.ACKNOWLEDGED: Happened.ACKNOWLEDGED,
    Ended.DEAD: Happened.DEAD,
    Ended.GONE: Happened.GONE,
    Ended.DAMAGED: Happened.DAMAGED,
}


class Happening(NamedTuple):
    """One event for all messages of an entry."""

    what: Happened
    first: int  # queue offset
    mask: int  # bit n: the message at first + n
    delivery: int | None  # number of this delivery, from 1; None once the group is done
    until_ms: int | None  # end of the lease, ms since 1970; None once the group is done

    def has(self, offset: int) -> bool:
        return offset >= self.first and bool(self.mask >> (offset - self.first) & 1)

    def offsets(self) -> Sequence[int]:
        """Queue offsets, ascending."""
        bits = range(self.mask.bit_length())
        return [self.first + bit for bit in bits if self.mask >> bit & 1]


def happening(entry: Leased | Finished) -> Happening:
    if isinstance(entry, Leased):
        lease = entry.lease
        return Happening(
            _HELD[entry.how], lease.first, lease.mask, lease.deliveries, lease.until_ms
        )
    return Happening(_ENDED[entry.how], entry.first, entry.mask, None, None)
