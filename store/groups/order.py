"""Groups in order: at most one message of each message group is in flight.

A message group is the messages of a queue with the same ordering key; messages without a key also
form one. It is identified by a hash. Keys with the same hash share a message group, still in order.
"""

from __future__ import annotations

from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING

from store.format import SHARDING_KEY, unpack_record

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.state import Window

#: Queue offsets that are scanned behind the first message that is not done.
SCAN_AHEAD = 1024


def hash_of(text: str) -> int:
    """A signed 64-bit hash; 0 for an empty text."""
    if not text:
        return 0
    data = blake2b(text.encode(errors="surrogatepass"), digest_size=8).digest()
    return int.from_bytes(data, "big", signed=True) or 1


def message_group(record: bytes) -> int:
    return hash_of(unpack_record(record, verify=False).properties.get(SHARDING_KEY, ""))


def ready(window: Window) -> list[int]:
    """Queue offsets, ascending, of scanned messages that were never delivered and have no undone
    message of their message group before them."""
    handed_over = {at for lease in window.leases for at in lease.offsets()}
    before: set[int] = set()
    found = []
    for offset, key in window.keys:
        if key not in before:
            before.add(key)
            if offset not in handed_over:
                found.append(offset)
    return found


def has_waiting(window: Window) -> bool:
    """Whether more messages may become available when one is done."""
    is_at_bound = window.next_offset - window.done_below >= SCAN_AHEAD
    return is_at_bound or len(window.keys) > window.in_flight


def stretches(offsets: Sequence[int]) -> Iterator[Sequence[int]]:
    """Split ascending offsets into runs without gaps."""
    first = 0
    for at, (one, other) in enumerate(pairwise(offsets), 1):
        if other != one + 1:
            yield offsets[first:at]
            first = at
    if offsets:
        yield offsets[first:]
