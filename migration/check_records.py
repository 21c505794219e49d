"""Reads records for the check, many at once or one by one.

Files are read, not mapped: pages of a mapping count as memory of this process as long as the kernel
likes to keep them, and a disk that fails is an error instead of the end of the process.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.record import BLANK_BYTES, MIN_RECORD_BYTES, Checked, check_record

if TYPE_CHECKING:
    from store.segment import Segment

#: Read at once. Large enough that the system calls do not count.
_WINDOW_BYTES = 8 << 20
#: At least so much is held while records are looked at one after the other.
_HELD_BYTES = 64 << 10


class Window:
    """A piece of one segment in memory. Memory: 8 MiB, or one record when that is larger."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.start = segment.start_offset  # physical, of data[0]
        self.end = self.start
        self.data = b""

    def hold(self, at: int, size: int = _HELD_BYTES) -> None:
        """At least `size` bytes from physical offset `at` on are in `data`, or all there are."""
        base = self._segment.start_offset
        rest = base + self._segment.size - at
        if at < self.start or at + min(size, rest) > self.end:
            self.data = self._segment.pread(at - base, min(rest, max(size, _WINDOW_BYTES)))
            self.start, self.end = at, at + len(self.data)

    def check(self, at: int) -> Checked:
        """What stands at `at`, looked at in every way."""
        end = self._segment.start_offset + self._segment.size
        self.hold(at, BLANK_BYTES)
        size = int.from_bytes(self.data[at - self.start : at - self.start + 4], "big", signed=True)
        if BLANK_BYTES <= size <= end - at:
            self.hold(at, size)
        return check_record(self.data, at - self.start, end - self.start, at)


def check_at(segment: Segment, at: int, *, verify_crc: bool = True) -> tuple[Checked, bytes]:
    """What stands at physical offset `at`, and its bytes; for single looks."""
    position = at - segment.start_offset
    rest = segment.size - position
    head = segment.pread(position, min(BLANK_BYTES, rest))
    size = int.from_bytes(head[:4], "big", signed=True)
    data = segment.pread(position, size) if MIN_RECORD_BYTES <= size <= rest else head
    return check_record(data, 0, rest, at, verify_crc=verify_crc), data
