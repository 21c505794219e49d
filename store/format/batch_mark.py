"""The mark of a numbered batch in the log: its producer, its numbers, and a checksum.

A producer may number its messages, and send a batch again if it got no response. The first record
of such a batch carries the property KVCQ_BATCH. So does its first record in each later segment,
which is found after the segments before were dropped:

    <producer id>:<sequence>:<messages>:<checksum>:<next sequence>:<physical offset>

`sequence` is the number of the batch's first message, 19 digits. `messages` is their count.
`checksum` is the CRC-32 of what the producer sent, 8 hex digits, computed by the server. `next
sequence` is the lowest number that the producer had not used once the batch was in the log. The
offset is the record's own, so a mark that was copied along with a message proves nothing.

The key index has the record under the key `02 <producer id>:<sequence>`, which no message can
carry, and under no topic. So the row outlives the topics of the batch's messages, like its records.
"""

from __future__ import annotations

from typing import NamedTuple

from store.errors import CorruptRecordError
from store.format.layout import PHYSICAL_OFFSET_AT
from store.format.properties import BATCH, ITEM_END, NAME_END, decode_properties, mark_key
from store.format.record import locate

_FIELDS = 6
_ABOVE_ALL = 10**19  # numbers of a producer, and offsets


class BatchMark(NamedTuple):
    """The mark of a numbered batch."""

    producer_id: str  # without ":"
    sequence: int  # below 10**19
    message_count: int
    checksum: int
    next_sequence: int

    @property
    def key(self) -> str:
        """Its key in the key index."""
        return key_of(self.producer_id, self.sequence)

    @property
    def most_bytes(self) -> int:
        """The maximum size of `item` in bytes, whatever the log's end and the producer's numbers
        are."""
        return len(self._replace(next_sequence=_ABOVE_ALL).item(_ABOVE_ALL))

    def item(self, physical_offset: int) -> bytes:
        """The encoded property for the record at that physical offset."""
        return (
            f"{BATCH}{NAME_END}{self.producer_id}:{self.sequence:019d}:{self.message_count}:"
            f"{self.checksum:08x}:{self.next_sequence}:{physical_offset}{ITEM_END}"
        ).encode()


def key_of(producer_id: str, sequence: int) -> str:
    """The key of the batch. Keys of one producer sort by their sequence."""
    return mark_key(f"{producer_id}:{sequence:019d}")


def mark_of(record: bytes) -> BatchMark | None:
    """The mark of a whole record; None if it has none, or one that was copied from another
    record."""
    try:
        parts = locate(record, 0)
        text = str(record[parts.properties_at : parts.size], "utf-8")
    except (CorruptRecordError, UnicodeDecodeError):
        return None
    fields = decode_properties(text).get(BATCH, "").split(":")
    if len(fields) != _FIELDS:
        return None
    at = int.from_bytes(record[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8], "big", signed=True)
    try:
        sequence, count, next_sequence, offset = (int(fields[index]) for index in (1, 2, 4, 5))
        checksum = int(fields[3], 16)
    except ValueError:
        return None
    if offset != at:
        return None
    return BatchMark(fields[0], sequence, count, checksum, next_sequence)
