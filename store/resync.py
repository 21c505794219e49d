"""Where does the log go on behind a damaged record?

A record cannot be repaired, but those behind it are whole: each says where it lies, and proves
itself with its CRC, so the next one can be found by looking for a magic code.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.record import MAGIC_BLANK, MAGIC_V1, MAGIC_V2, Found, check_record

if TYPE_CHECKING:
    from store.commit_log import CommitLog
    from store.segment_set import SegmentSet

_MAGICS = tuple(
    magic.to_bytes(4, "big", signed=True) for magic in (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
)
_CHUNK_BYTES = 4 << 20


def goes_on_behind(segments: SegmentSet, at: int) -> int | None:
    """Physical offset where the log goes on behind `at`, where no whole record is; None: it ends.

    At a whole or blank record of its segment, or the first record of a later one. A blank record
    counts: who wrote it was past `at`, so what is there is damage, and no torn tail. The segment is
    looked through to its end, since damage may be of any length.
    """
    for segment in segments:
        base, end = segment.start_offset, segment.start_offset + segment.size
        if end <= at:
            continue
        view = segment.view(0, segment.size)
        try:
            if base <= at:
                found = next_record(view, base, at, end)
                if found is not None:
                    return found
            elif check_record(view, 0, segment.size, base).found is Found.RECORD:
                return base
        finally:
            view.release()
    return None


def behind_damage(log: CommitLog, at: int) -> int:
    """Where an open log goes on behind the damaged record at `at`: the next record, or segment."""
    end = min(log.segment_end(at), log.appended_offset)
    view = log.view(at, end)
    try:
        found = next_record(view, at, at, end)
    finally:
        view.release()
    return end if found is None else found


def next_record(data: memoryview, base: int, at: int, end: int) -> int | None:
    """Physical offset of the first whole or blank record behind the one at `at`, or None.

    `data[0]` lies at `base`; nothing at or above `end` is looked at. A blank record counts only
    if its size leads exactly to the end of `data`, the segment's end.
    """
    position = at + 1 - base
    stop = end - base
    while position < stop:
        chunk = bytes(data[position : min(position + _CHUNK_BYTES, stop)])
        for found in _candidates(chunk):
            start = position + found - 4
            if start <= at - base:
                continue
            checked = check_record(data, start, stop, base + start)
            if checked.found is Found.RECORD:
                return base + start
            if checked.found is Found.BLANK and start + _size_at(data, start) == len(data):
                return base + start
        # A magic code may lie across two chunks.
        position += max(1, len(chunk) - 3)
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


def _size_at(data: memoryview, start: int) -> int:
    return int.from_bytes(data[start : start + 4], "big", signed=True)
