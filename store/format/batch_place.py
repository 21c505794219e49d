"""A record's place among those that were appended with it, in a header field of its own record.

Messages of one append are one batch: a crash leaves all of it or nothing. Recovery must therefore
see that the last record of the log does not end its batch, and where the batch began. Each record
of a batch says so in `prepared_transaction_offset`, which only messages of a transaction use. As an
unsigned number, from the top bit down:

| bits | field    | meaning                                                              |
|-----:|----------|----------------------------------------------------------------------|
|    1 | is_place | 1: a physical offset, which RocketMQ writes here, is never negative   |
|    1 | is_last  | the batch ends with this record                                      |
|   38 | distance | bytes from the start of the batch's first record to this one         |
|   24 | ordinal  | of the message in its batch, from 0                                   |

The field is 0 in a record that is a whole batch, in messages of different callers that were
appended together, and in records of RocketMQ. A message of a transaction has its producer's value,
so it cannot be part of a batch. The place costs no additional bytes, and a broker that takes over
the store ignores it.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

from store.format.layout import PREPARED_AT, SYS_FLAG_BYTE_AT, hosts_bytes

_I64 = struct.Struct(">q")
_ORDINAL_BITS = 24
_DISTANCE_BITS = 38

#: Messages of one batch, and bytes from its begin to the begin of its last record: below these.
MAX_MESSAGES = 1 << _ORDINAL_BITS
MAX_DISTANCE = 1 << _DISTANCE_BITS

#: A place is PLACE + (distance << DISTANCE_SHIFT) + ordinal, and LAST in the last record.
PLACE = -(1 << 63)
LAST = 1 << 62
DISTANCE_SHIFT = _ORDINAL_BITS
assert 2 + _DISTANCE_BITS + _ORDINAL_BITS == 64


class BatchPlace(NamedTuple):
    """The place of a record in its batch."""

    ordinal: int  # of the message, from 0
    distance: int  # bytes
    is_last: bool


def place_of(data: bytes | memoryview, at: int) -> BatchPlace | None:
    """The place of the record at `data[at]`, which must be whole; None when it has none."""
    hosts = hosts_bytes(data[at + SYS_FLAG_BYTE_AT])
    number: int = _I64.unpack_from(data, at + PREPARED_AT + hosts)[0]
    if number >= 0:
        return None
    return BatchPlace(
        number & (MAX_MESSAGES - 1),
        number >> DISTANCE_SHIFT & (MAX_DISTANCE - 1),
        bool(number & LAST),
    )
