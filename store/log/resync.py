"""Where does the log go on behind a damaged record?

A record cannot be repaired, but those behind it are whole: each says where it lies, and proves
itself with its CRC, so the next one can be found by looking for a magic code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.format import AT, MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Found
from store.log.log_bytes import look_at, mapped

if TYPE_CHECKING:
    from store.log.log_bytes import Look, Segments
    from store.log.segment import Segment

_MAGICS = tuple(
    magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
)
_MAGIC_AT = AT["magic"]
_CHUNK_BYTES = 4 << 20


def goes_on_behind(segments: Segments, at: int, look: Look = mapped) -> int | None:
    """Physical offset where the log goes on behind `at`, where no whole record is; None: it ends.

    At a whole or blank record of its segment, or the first record of a later one. A blank record
    counts: its writer was past `at`, so what is there is damage, and no torn tail. The segment is
    searched to its end, since damage may be of any length.
    """
    segment = segments.find(at)
    if segment is None:
        return None
    end = segment.start_offset + segment.size
    found = next_record(segment, at, end, look)
    while found is None and (segment := segments.find(end)) is not None:
        begin, end = end, end + segment.size
        if look_at(segment, begin, end, look)[0].found is Found.RECORD:
            found = begin
    return found


def next_record(segment: Segment, at: int, end: int, look: Look = mapped) -> int | None:
    """Physical offset of the first whole or blank record behind the one at `at`, or None.

    Nothing at or above `end` is looked at. A blank record counts only if its size leads exactly to
    the segment's end.
    """
    segment_end = segment.start_offset + segment.size
    chunk_at = at + 1
    while chunk_at < end:
        with look(segment, chunk_at, end, _CHUNK_BYTES) as view:
            chunk = bytes(view[:_CHUNK_BYTES])
        for found in _candidates(chunk):
            start = chunk_at + found - _MAGIC_AT
            if start <= at:
                continue
            checked, data = look_at(segment, start, end, look)
            if checked.found is Found.RECORD:
                return start
            if checked.found is Found.BLANK:
                remaining = int.from_bytes(data[:4], "big", signed=True)
                if remaining == segment_end - start:
                    return start
        # A magic code may lie across two chunks.
        chunk_at += max(1, len(chunk) - 3)
    return None


def _candidates(chunk: bytes) -> list[int]:
    """Positions of magic codes in the chunk, rising."""
    found: list[int] = []
    for magic in _MAGICS:
        position = chunk.find(magic)
        while position >= 0:
            found.append(position)
            position = chunk.find(magic, position + 1)
    return sorted(found)
