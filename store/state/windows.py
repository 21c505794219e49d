"""Windows: the messages of a queue that a shared group has in flight, and its next offset.

Every message below `next_offset` that is in no lease is done. A lease has messages that were
delivered together, from a range of at most 64 queue offsets. So a window has few leases as long as
messages are received and acknowledged in batches. This module only has values; nothing uses a
clock.

A window of a group in order also has the message group of each message below the next offset that
is not done, as a hash. So no record has to be read again to see which messages wait for others.

The value of a row: u8 form 1, i64 next offset, then for each lease i64 first, u64 mask, u16
deliveries, i64 nonce, i64 until ms, i64 lease ms, i64 attempt. With message groups: u8 form 2, i64
next offset, u32 leases, these, then for each message i64 offset, i64 message group, offsets
ascending. All big-endian.
"""

from __future__ import annotations

import secrets
import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

from store.state.rows import CorruptRowError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

#: Most queue offsets that a lease spans.
SPAN = 64
#: Nonce of a lease without a receiver: the messages were given back.
NOBODY = 0

_FORM = 1
_ORDERED_FORM = 2
_HEAD = struct.Struct(">Bq")
_LEASE = struct.Struct(">qQHqqqq")
_ORDERED_HEAD = struct.Struct(">BqI")
_KEY = struct.Struct(">qq")
_MOST_REMEMBERED = 64


def new_nonce() -> int:
    """63 random bits, never NOBODY."""
    return secrets.randbits(63) or 1


class Lease(NamedTuple):
    """Messages that one receiver has until a given time, or that wait for redelivery until then."""

    first: int  # queue offset
    mask: int  # bit n: the message at first + n
    deliveries: int  # number of deliveries that count, including this one
    nonce: int  # of the receiver's handles; NOBODY: the messages were given back
    until_ms: int  # ms since 1970, by the store's time
    lease_ms: int  # full length; a clock that was set back must not extend the lease
    attempt: int = 0  # hash of the receive's attempt id; 0: none

    @property
    def message_count(self) -> int:
        return self.mask.bit_count()

    @property
    def end(self) -> int:
        """The offset after the last message."""
        return self.first + self.mask.bit_length()

    def offsets(self) -> Iterator[int]:
        """Queue offsets, ascending."""
        mask, first = self.mask, self.first
        while mask:
            low = mask & -mask
            yield first + low.bit_length() - 1
            mask ^= low

    def part(self, first: int, mask: int) -> int:
        """The messages first + n for each bit n that are in this lease, as bits of its mask."""
        by = first - self.first
        if not -SPAN < by < SPAN:  # a shift by millions would allocate as many bits
            return 0
        return self.mask & (mask << by if by >= 0 else mask >> -by)

    def is_over(self, now_ms: int) -> bool:
        """Whether the messages may be delivered again."""
        return now_ms >= self.until_ms or self.until_ms - now_ms > self.lease_ms


class Window(NamedTuple):
    """The window of one group on one queue."""

    next_offset: int  # no message from here on was delivered or scanned
    leases: tuple[Lease, ...]  # oldest first; no message is in two
    #: In a group in order: offset and message group of each message below `next_offset` that is not
    #: done, ascending by offset.
    keys: tuple[tuple[int, int], ...] = ()

    @property
    def in_flight(self) -> int:
        """Number of messages in flight, including those that wait for redelivery."""
        return sum(lease.mask.bit_count() for lease in self.leases)

    @property
    def undone(self) -> int:
        """Number of messages below the next offset that are not done."""
        return len(self.keys) or self.in_flight

    @property
    def done_below(self) -> int:
        """Queue offset below which everything is done."""
        if self.keys:
            return self.keys[0][0]
        return min((next(lease.offsets()) for lease in self.leases), default=self.next_offset)

    def without(self, first: int, mask: int) -> Window:
        """The window without these messages in any lease."""
        left = []
        for lease in self.leases:
            part = lease.part(first, mask)
            if part != lease.mask:
                left.append(lease._replace(mask=lease.mask & ~part) if part else lease)
        keys = self.keys
        if keys:
            keys = tuple(
                key for key in keys if not (0 <= (bit := key[0] - first) < SPAN and mask >> bit & 1)
            )
        return Window(self.next_offset, tuple(left), keys)

    def leased(self, lease: Lease) -> Window:
        """The window with the lease's messages in this lease, and in no other."""
        rest = self.without(lease.first, lease.mask).leases
        return Window(max(self.next_offset, lease.end), (*rest, lease), self.keys)

    def seen(self, first: int, mask: int, keys: Sequence[int]) -> Window:
        """The window with these message groups for the messages first + n for each bit n."""
        pairs = zip(Lease(first, mask, 0, 0, 0, 0).offsets(), keys, strict=True)
        merged = tuple(sorted((dict(self.keys) | dict(pairs)).items()))
        return Window(max(self.next_offset, first + mask.bit_length()), self.leases, merged)

    def passed(self, next_offset: int) -> Window:
        """The window with all undelivered messages below `next_offset` done."""
        return self._replace(next_offset=max(self.next_offset, next_offset))


#: The window of a queue without a row: the group has not received from it. Compare with `is`.
FRESH = Window(0, ())


def runs_of(offsets: Iterable[int]) -> Iterator[tuple[int, int]]:
    """First offset and mask for each SPAN of ascending offsets."""
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
    if not window.keys:
        return b"".join([_HEAD.pack(_FORM, window.next_offset), *leases])
    head = _ORDERED_HEAD.pack(_ORDERED_FORM, window.next_offset, len(leases))
    return b"".join([head, *leases, *[_KEY.pack(*key) for key in window.keys]])


@lru_cache(_MOST_REMEMBERED)
def unpack_window(value: bytes | None) -> Window:
    """Decode the window; FRESH without a row. Raises CorruptRowError."""
    if value is None:
        return FRESH
    view = memoryview(value)
    if value[:1] == b"\x02" and len(value) > _ORDERED_HEAD.size:
        _, next_offset, count = _ORDERED_HEAD.unpack_from(value)
        end = _ORDERED_HEAD.size + count * _LEASE.size
        if end < len(value) and (len(value) - end) % _KEY.size == 0:
            leases = _LEASE.iter_unpack(view[_ORDERED_HEAD.size : end])
            keys = tuple(_KEY.iter_unpack(view[end:]))
            return Window(next_offset, tuple(map(Lease._make, leases)), keys)
    elif value[:1] == b"\x01" and (len(value) - _HEAD.size) % _LEASE.size == 0:
        _, next_offset = _HEAD.unpack_from(value)
        return Window(next_offset, tuple(map(Lease._make, _LEASE.iter_unpack(view[_HEAD.size :]))))
    raise CorruptRowError(f"the row of a window has form {value[:1].hex()}, or is cut")
