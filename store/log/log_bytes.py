"""The bytes of a segment for walks over the log: mapped, or read from the file.

The mapping is fastest, and right for data that is in memory anyway. Tools read the file: mapped
pages count as memory of the process for as long as the kernel keeps them, and a disk error is then
an exception instead of a crash.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from store.format import BLANK_BYTES, MIN_RECORD_BYTES, Checked, check_record
from store.log.segment import Segment


class Segments(Protocol):
    """The segments of an open log, or of a directory."""

    @property
    def first_offset(self) -> int:
        """Physical offset of the log's first byte."""
        ...

    def find(self, physical_offset: int) -> Segment | None:
        """The segment whose file covers the offset; None if there is none."""
        ...


#: Called with segment, physical offset, end and size: bytes from the offset on, to the end
#: (exclusive) at most, of that size at least unless the end comes first. To be released soon.
Look = Callable[[Segment, int, int, int], memoryview]

#: Read at once. Large enough that the system calls do not count.
_WINDOW_BYTES = 8 << 20


def mapped(segment: Segment, at: int, end: int, _least: int) -> memoryview:
    """The whole segment, from the mapping."""
    return segment.view(at - segment.start_offset, end - at)


def pread(segment: Segment, at: int, end: int, least: int) -> memoryview:
    """Only the requested bytes, from the file; for single lookups."""
    return memoryview(segment.pread(at - segment.start_offset, min(least, end - at)))


class PreadWindow:
    """Reads the file in large pieces. Memory: 8 MiB, or one record if that is larger."""

    def __init__(self) -> None:
        self._segment: Segment | None = None
        self._start = 0  # physical, of _data[0]
        self._data = memoryview(b"")

    def __call__(self, segment: Segment, at: int, end: int, least: int) -> memoryview:
        held = self._start + len(self._data)
        if segment is not self._segment or at < self._start or min(at + least, end) > held:
            self._data = pread(segment, at, end, max(least, _WINDOW_BYTES))
            self._segment, self._start = segment, at
        return self._data[at - self._start : end - self._start]


def look_at(
    segment: Segment, at: int, end: int, look: Look, *, verify_crc: bool = True
) -> tuple[Checked, memoryview]:
    """Check for a record at physical offset `at`, below `end`. Returns the result and the record's
    bytes, if there is one."""
    data = look(segment, at, end, BLANK_BYTES)
    size = int.from_bytes(data[:4], "big", signed=True)
    if MIN_RECORD_BYTES <= size <= end - at and size > len(data):
        data = look(segment, at, end, size)
    return check_record(data, 0, end - at, at, verify_crc=verify_crc), data
