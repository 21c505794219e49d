"""The segments of a commit log directory: where the log ends, and how to split it into ranges.

Reads names, sizes and the first record of segments, and walks the last one; changes nothing.
"""

from __future__ import annotations

import enum
import mmap
from pathlib import Path
from typing import NamedTuple

from migration.columnar.errors import LogLayoutError, SegmentDamageError
from migration.columnar.walk import Stop, find_record, walk_to
from store.format import BLANK_BYTES, check_record, store_time_of
from store.log import data_ranges, parse_segment_name, segment_name


class Segment(NamedTuple):
    """One file of the log."""

    path: str
    start: int  # physical offset of its first byte

    @property
    def name(self) -> str:
        return segment_name(self.start)


class Start(enum.Enum):
    """How the reader of a range finds its first record."""

    EXACT = "exact"  # the range begins at a record
    SEARCH = "search"  # by a search, which the reader of the previous range verifies
    # From the segment's start, record by record, because no task reads the previous range.
    WALK = "walk"


class LogRange(NamedTuple):
    """Records of one segment that begin in begin..end, physical offsets, end exclusive."""

    segment: Segment
    begin: int
    end: int
    start: Start
    last: bool  # no later range of this segment is read


class LogLayout(NamedTuple):
    """The log in a directory: segments in order, without gaps, up to the log's end."""

    segments: tuple[Segment, ...]
    segment_bytes: int
    start: int  # physical offset of the first byte
    end: int  # exclusive


def open_segment(path: str | Path) -> mmap.mmap:
    """Map the whole file read-only. The mapping lives as long as something refers to it. A segment
    in a bucket is fetched first: see segment_fetch.py."""
    if "://" in str(path):
        # Imported here, because it imports the libraries for buckets.
        from migration.columnar.segment_fetch import fetch_segment

        return fetch_segment(str(path))
    with Path(path).open("rb") as file:
        return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def list_segments(directory: Path, segment_bytes: int | None = None) -> tuple[list[Segment], int]:
    """Segments by offset, and their common size.

    Raises LogLayoutError: no directory, foreign names, differing sizes, a gap.
    """
    if not directory.is_dir():
        raise LogLayoutError(f"{directory}: no such directory")
    found = []
    for path in sorted(directory.iterdir()):
        if path.is_dir():
            continue
        start = parse_segment_name(path.name)
        if start is None:
            raise LogLayoutError(f"{path}: the name is not the 20 digits of a segment")
        found.append((Segment(str(path), start), path.stat().st_size))
    if found and found[-1][1] == 0:
        found.pop()  # created, but not sized yet
    if not found:
        return [], segment_bytes or 0
    size = segment_bytes or found[0][1]
    for index, (segment, file_size) in enumerate(found):
        if file_size != size:
            raise LogLayoutError(f"{segment.path}: {file_size} bytes, not {size}")
        if segment.start % size:
            raise LogLayoutError(f"{segment.path}: does not begin at a multiple of {size}")
        if segment.start != found[0][0].start + index * size:
            raise LogLayoutError(f"{segment.path}: a segment before it is missing")
    return [segment for segment, _ in found], size


def read_layout(
    directory: Path,
    segment_bytes: int | None = None,
    end: int | None = None,
    known_end: int | None = None,
) -> LogLayout:
    """Segments and bounds. `end`: the log's end according to its owner, used if possible.

    Without `end`, the log ends after the last whole record of its last segment. `known_end`: an end
    that an earlier call returned; the search for the end starts there. Raises LogLayoutError.
    """
    segments, size = list_segments(directory, segment_bytes)
    if not segments:
        return LogLayout((), size, end or 0, end or 0)
    start = segments[0].start
    limit = segments[-1].start + size
    if end is not None:
        if not start <= end <= limit:
            raise LogLayoutError(f"{directory}: holds {start} to {limit}, not the end {end}")
        kept = tuple(segment for segment in segments if segment.start < end)
        return LogLayout(kept, size, start, end)
    # Prepared segments are all zeros; the log ends in the last one with data.
    while len(segments) > 1 and _is_unused(segments[-1]):
        segments.pop()
    found = _find_end(segments[-1], size, known_end)
    return LogLayout(tuple(segments), size, start, found)


def split(
    layout: LogLayout, begin: int, end: int, max_bytes: int, *, exact: bool = False
) -> list[LogRange]:
    """Ranges of at most `max_bytes` (0: whole segments) that together cover begin..end.

    `exact`: whether a record is known to begin at `begin`.
    """
    ranges = []
    for segment in layout.segments:
        low = max(begin, segment.start)
        high = min(end, segment.start + layout.segment_bytes)
        step = max_bytes or layout.segment_bytes
        start = Start.EXACT if exact or low == segment.start else Start.WALK
        while low < high:
            # Cut at multiples of the step, so that the same log always has the same cuts.
            cut = min(high, low - (low - segment.start) % step + step)
            ranges.append(LogRange(segment, low, cut, start, cut == high))
            low, start = cut, Start.SEARCH
    return ranges


def advance(layout: LogLayout, begin: int, max_bytes: int) -> int:
    """The first end of a record at or after begin + max_bytes, or the end of the log.

    `begin` must be the beginning of a record or segment.
    """
    target = begin + max_bytes
    for segment in layout.segments:
        segment_end = segment.start + layout.segment_bytes
        if segment_end <= begin:
            continue
        data = open_segment(segment.path)
        at = max(begin, segment.start) - segment.start
        limit = min(target, layout.end, segment_end) - segment.start
        if at < limit:
            at, stop = walk_to(data, segment.start, at, limit)
            if stop is not Stop.LIMIT:
                at = layout.segment_bytes  # the reader reports the damage
        if segment.start + at >= target:
            return min(segment.start + at, layout.end)
    return layout.end


def first_store_time(segment: Segment) -> int | None:
    """Store time of the segment's first record, ms since 1970; None without a record there."""
    data = memoryview(open_segment(segment.path))
    checked = check_record(data, 0, len(data), segment.start, verify_crc=False)
    return store_time_of(data, 0) if checked.size else None


def _is_unused(segment: Segment) -> bool:
    with Path(segment.path).open("rb") as file:
        return not any(file.read(BLANK_BYTES))


def _find_end(segment: Segment, size: int, known_end: int | None) -> int:
    data = open_segment(segment.path)
    at = 0
    if known_end is not None and segment.start <= known_end < segment.start + size:
        at = known_end - segment.start
    while True:
        at, stop = walk_to(data, segment.start, at, size)
        if stop is Stop.BLANK:
            return segment.start + size
        # Zeros are the log's end. Do not search them: a reader of a growing log calls this often.
        if stop is not Stop.NOTHING or (
            known_end is not None and not any(data[at : at + BLANK_BYTES])
        ):
            return segment.start + at
        with Path(segment.path).open("rb") as file:
            # Only what was written: the rest may be a gigabyte of zeros.
            written = data_ranges(file.fileno(), at + 1, size)
            records = (find_record(data, segment.start, begin, end) for begin, end in written)
            behind = next((each for each in records if each is not None), None)
        if behind is None:
            return segment.start + at
        at = behind  # the bytes in between are damaged; the reader reports them


def damage(segment: Segment, position: int, reason: str) -> SegmentDamageError:
    """The error for bytes at `position` of the segment."""
    return SegmentDamageError(segment.name, segment.start + position, reason)
