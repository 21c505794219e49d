"""Where does the log go on behind a damaged record?

A record cannot be repaired, but those behind it are whole: each says where it lies, and proves
itself with its CRC, so the next one can be found by looking for a magic code.
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


def goes_on_behind(segments: Segments, at: int, look: Look = mapped) -> int | None:
    """Physical offset where the log goes on behind `at`, where no whole record is; None: it ends.

    At a whole or blank record of its segment, or a whole record of a later one. A blank record
    counts: its writer was past `at`, so what is there is damage, and no torn tail. Segments are
    searched to their end, since damage may be of any length.
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
    """Physical offset and store time of the first whole record of the segments from the one that
    begins there on; None without one.

    Damage is passed over. Raises OSError for a disk that cannot be read, and StoreClosedError when
    the segment is dropped meanwhile.
    """
    while (segment := segments.find(begin)) is not None:
        end = segment.start_offset + segment.appended
        found = first_record(segment, begin, end, pread)
        if found is not None:
            return found, store_time_of(pread(segment, found, end, MIN_RECORD_BYTES), 0)
        begin = segment.start_offset + segment.size
    return None


def first_record(segment: Segment, begin: int, end: int, look: Look = mapped) -> int | None:
    """Physical offset of the first whole record that begins at `begin` or behind it, or None."""
    at = begin
    if look_at(segment, at, end, look)[0].found is Found.RECORD:
        return at
    while (found := next_record(segment, at, end, look)) is not None:
        if look_at(segment, found, end, look)[0].found is Found.RECORD:
            return found
        at = found
    return None


def next_record(segment: Segment, at: int, end: int, look: Look = mapped) -> int | None:
    """Physical offset of the first whole or blank record behind the one at `at`, or None.

    Nothing at or above `end` is looked at. A blank record counts only if its size leads exactly to
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
    """What was ever written between the physical offsets, each piece with its own.

    Each begins within the one before by the length of a magic code, which may lie across both; none
    lies across what was never written, since it has no zeros.
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
    """Positions of magic codes in the chunk, rising."""
    found: list[int] = []
    for magic in _MAGICS:
        position = chunk.find(magic)
        while position >= 0:
            found.append(position)
            position = chunk.find(magic, position + 1)
    return sorted(found)
