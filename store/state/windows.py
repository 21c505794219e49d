"""Windows: which messages of a queue a shared group has in flight, and where it goes on.

Everything below `next_offset` that is in no lease is done. A lease is of messages that were handed
over together, 64 queue offsets at most, so a window has few of them as long as work is received
and acknowledged in batches. Here is nothing but values: what changes them looks at no clock.

The value of a row: u8 form 1, i64 next offset, then for each lease i64 first, u64 mask, u16
deliveries, i64 nonce, i64 until ms, i64 lease ms; big-endian.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from store.state.rows import CorruptRowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Queue offsets that a lease spans at most.
SPAN = 64
#: Of a lease that nobody holds: the messages were given back.
NOBODY = 0

_FORM = 1
_HEAD = struct.Struct(">Bq")
_LEASE = struct.Struct(">qQHqqq")
_MOST_REMEMBERED = 64


class Lease(NamedTuple):
    """Messages that one receiver has until then, or that wait until then."""

    first: int  # queue offset
    mask: int  # bit n: the message at first + n
    deliveries: int  # how often these were handed over, this time included
    nonce: int  # what the handles of the receiver have; NOBODY: they were given back
    until_ms: int  # ms since 1970, by the store's time
    lease_ms: int  # how long it was when it began: time that fell since makes it no longer

    @property
    def message_count(self) -> int:
        return self.mask.bit_count()

    @property
    def end(self) -> int:
        """Behind the last of the messages."""
        return self.first + self.mask.bit_length()

    def offsets(self) -> Iterator[int]:
        """Rising."""
        mask, first = self.mask, self.first
        while mask:
            low = mask & -mask
            yield first + low.bit_length() - 1
            mask ^= low

    def part(self, first: int, mask: int) -> int:
        """Those of the messages first + n with bit n that are in this lease, as its own bits."""
        by = first - self.first
        return self.mask & (mask << by if by >= 0 else mask >> -by)

    def is_over(self, now_ms: int) -> bool:
        """Whether the messages may be handed over again."""
        return now_ms >= self.until_ms or self.until_ms - now_ms > self.lease_ms


class Window(NamedTuple):
    """Of one group on one queue."""

    next_offset: int  # what was never handed over begins here
    leases: tuple[Lease, ...]  # oldest first; no message is in two

    @property
    def in_flight(self) -> int:
        """Messages, those that wait to be handed over again included."""
        return sum(lease.mask.bit_count() for lease in self.leases)

    @property
    def done_below(self) -> int:
        """Queue offset below which everything is done."""
        return min((next(lease.offsets()) for lease in self.leases), default=self.next_offset)

    def without(self, first: int, mask: int) -> Window:
        """These messages are in no lease any more."""
        left = []
        for lease in self.leases:
            part = lease.part(first, mask)
            if part != lease.mask:
                left.append(lease._replace(mask=lease.mask & ~part) if part else lease)
        return self._replace(leases=tuple(left))

    def leased(self, lease: Lease) -> Window:
        """Its messages are in this lease, and in no other."""
        rest = self.without(lease.first, lease.mask).leases
        return Window(max(self.next_offset, lease.end), (*rest, lease))

    def passed(self, next_offset: int) -> Window:
        """What was never handed over below is done."""
        return self._replace(next_offset=max(self.next_offset, next_offset))


#: Of a queue that the group has not received from: this very object, where there is no row.
FRESH = Window(0, ())


def runs_of(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First offset and mask of each SPAN of these, which rise."""
    first, mask = -1, 0
    for offset in offsets:
        if mask and offset - first < SPAN:
            mask |= 1 << (offset - first)
            continue
        if mask:
            yield first, mask
        first, mask = offset, 1
    if mask:
        yield first, mask


def pack_window(window: Window) -> bytes:
    leases = [_LEASE.pack(*lease) for lease in window.leases]
    return b"".join([_HEAD.pack(_FORM, window.next_offset), *leases])


@lru_cache(_MOST_REMEMBERED)
def unpack_window(value: bytes | None) -> Window:
    """None: there is no row. Raises CorruptRowError."""
    if value is None:
        return FRESH
    if value[:1] != b"\x01" or (len(value) - _HEAD.size) % _LEASE.size:
        raise CorruptRowError(f"the row of a window has form {value[:1].hex()}")
    _, next_offset = _HEAD.unpack_from(value)
    leases = tuple(map(Lease._make, _LEASE.iter_unpack(memoryview(value)[_HEAD.size :])))
    return Window(next_offset, leases)
