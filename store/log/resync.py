"""Finds where the log continues behind a damaged record.

A damaged record cannot be repaired, but later records are whole. Each has its own position and a
CRC, so the next one is found by searching for a magic code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.format import (
    AT,
    MAGIC_BLANK,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    Found,
    store_time_of,
)
from store.log.log_bytes import look_at, mapped, pread

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.log.log_bytes import Look, Segments
    from store.log.segment import Segment

_MAGICS = tuple(
    magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
)
_MAGIC_AT = AT["magic"]
_CHUNK_BYTES = 4 << 20


def find_next_record(segments: Segments, at: int, look: Look = mapped) -> int | None:
    """Physical offset where the log continues behind `at`, where there is no whole record; None if
    it ends.

    That is a whole or blank record of its segment, or a whole record of a later one. A blank record
    counts, because its writer was past `at`, so the bytes there are damage and not a torn tail.
    Segments are searched to their end, since damage may have any length.
    """
    segment = segments.find(at)
    if segment is None:
        return None
    end = segment.start_offset + segment.size
    found = next_record(segment, at, end, look)
    while found is None and (segment := segments.find(end)) is not None:
        begin, end = end, end + segment.size
        found = first_record(segment, begin, end, look)
    return found


def first_time(segments: Segments, begin: int) -> tuple[int, int] | None:
    """Physical offset and store time of the first whole record in the segments from `begin` on;
    None if there is none.

    Skips damage. Raises OSError if the disk cannot be read, and StoreClosedError if the segment is
    dropped meanwhile.
    """
    while (segment := segments.find(begin)) is not None:
        end = segment.start_offset + segment.appended
        found = first_record(segment, begin, end, pread)
        if found is not None:
            return found, store_time_of(pread(segment, found, end, MIN_RECORD_BYTES), 0)
        begin = segment.start_offset + segment.size
    return None


def first_record(segment: Segment, begin: int, end: int, look: Look = mapped) -> int | None:
    """Physical offset of the first whole record at or behind `begin`, or None."""
    at = begin
    if look_at(segment, at, end, look)[0].found is Found.RECORD:
        return at
    while (found := next_record(segment, at, end, look)) is not None:
        if look_at(segment, found, end, look)[0].found is Found.RECORD:
            return found
        at = found
    return None


def next_record(segment: Segment, at: int, end: int, look: Look = mapped) -> int | None:
    """Physical offset of the first whole or blank record behind `at`, or None.

    Nothing at or above `end` is examined. A blank record only counts if its size leads exactly to
    the segment's end.
    """
    segment_end = segment.start_offset + segment.size
    for chunk_at, chunk in _chunks(segment, at + 1, end, look):
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
    return None


def _chunks(segment: Segment, begin: int, end: int, look: Look) -> Iterator[tuple[int, bytes]]:
    """Yield the written bytes between the physical offsets in pieces, each with its offset.

    Each piece overlaps the one before by the length of a magic code, which may span both; it cannot
    span bytes that were never written, since it has no zeros.
    """
    base = segment.start_offset
    for first, last in segment.written_ranges(begin - base, end - base):
        at = base + first
        while at < base + last:
            with look(segment, at, base + last, _CHUNK_BYTES) as view:
                chunk = bytes(view[:_CHUNK_BYTES])
            yield at, chunk
            at += max(1, len(chunk) - 3)


def _candidates(chunk: bytes) -> list[int]:
    """Positions of magic codes in the chunk, ascending."""
    # Most of the log's files: made ready for later appends. This is 15 times as fast as `find`.
    if chunk == bytes(len(chunk)):
        return []
    found: list[int] = []
    for magic in _MAGICS:
        position = chunk.find(magic)
        while position >= 0:
            found.append(position)
            position = chunk.find(magic, position + 1)
    return sorted(found)
