"""Reads of an open log by physical offset: from the mapping if the bytes are hot, otherwise through
the file."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING

from store.errors import (
    CorruptRecordError,
    InvalidArgumentError,
    MessageNotFoundError,
    StoreClosedError,
)
from store.format import MAGIC_V1, MAGIC_V2, MIN_RECORD_BYTES, Records, picking
from store.log.record_columns import copy_records
from store.log.record_run import is_whole, run_end, verify
from store.log.resync import first_time

if TYPE_CHECKING:
    from collections.abc import Sequence
    from mmap import mmap

    from store.log.log_bytes import Segments
    from store.log.segment_set import SegmentSet

_PLACE = picking("record_size", "magic", "physical_offset")


class ReadableLog:
    """Reads records, runs of records and raw bytes. Thread: any, for all methods. Locks: none."""

    def __init__(self, segments: SegmentSet, hot_read_bytes: int) -> None:
        # Constant after construction.
        self._segments = segments
        self._hot_read_bytes = hot_read_bytes
        # The segments define where the log ends. This is the same end, except while an append
        # copies; only an append moves it.
        self.appended_offset = segments.end_offset
        self._closed = False

    @property
    def segments(self) -> Segments:
        """For walks over the log, see log_walk.py."""
        return self._segments

    @property
    def start_offset(self) -> int:
        """Physical offset of the first byte in the log."""
        return self._segments.first_offset

    def is_hot(self, offset: int) -> bool:
        """Whether a record there is close enough to the end to be in memory normally."""
        return self.appended_offset - offset <= self._hot_read_bytes

    def read(self, offset: int, size: int) -> bytes:
        """The record of `size` bytes at `offset`, verified by CRC and position.

        Raises MessageNotFoundError if it is outside the log, also if it is dropped while it is
        read, and CorruptRecordError if the bytes are not that record.
        """
        data = self._bytes(offset, size)
        verify(data, offset, size)
        return data

    def read_run(self, places: Sequence[tuple[int, int]]) -> Records:
        """Records at these (offset, size), in order, each verified like `read`.

        Stops before an unreadable record, unless it is the first, whose error is raised.
        """
        runs: list[Records] = []
        at = 0
        while at < len(places):
            copies, are_whole = self._copy_run(places, at)
            # Records of another kind, damaged ones, or those not in this source are read one by
            # one.
            run = copies if are_whole else Records(self._read_each(copies or [b""], places, at))
            runs.append(run)
            at += len(run)
            if not run or len(run) < len(copies):
                break
        return Records.of_runs(runs)

    def _read_each(
        self, copies: Sequence[bytes], places: Sequence[tuple[int, int]], at: int
    ) -> list[bytes]:
        """The records from `places[at]` on that were copied, up to the first that is not whole."""
        records: list[bytes] = []
        for copy, (offset, size) in zip(copies, places[at:], strict=False):
            try:
                whole = is_whole(copy, offset, size)
                records.append(copy if whole else self.read(offset, size))
            except (MessageNotFoundError, CorruptRecordError):
                if not records and not at:
                    raise
                break
        return records

    def _copy_run(self, places: Sequence[tuple[int, int]], at: int) -> tuple[Records, bool]:
        """Copy bytes at `places[at:]`, as far as these ascend and are in one source. Returns them,
        and whether they are whole records."""
        source, base, stop = self._source(places, at)
        stop = min(stop, self.appended_offset)
        end = bisect_left(places, (stop,), at)
        if end > at and sum(places[end - 1]) > stop:
            end -= 1
        try:
            return copy_records(source, base, places[at:end])
        except ValueError:  # dropped and closed since
            return Records(), False

    def _source(
        self, places: Sequence[tuple[int, int]], index: int
    ) -> tuple[mmap | bytes, int, int]:
        """A buffer that holds the record at `places[index]`, with its begin and end.

        That is the mapping of its segment if it is hot. Otherwise it is one read through the file,
        which includes the records behind it while they are close: a page fault would hold the GIL
        during the disk read.
        """
        offset = places[index][0]
        segment = self._segments.find(offset)
        if segment is None:
            return b"", offset, offset
        base = segment.start_offset
        if base >= self.appended_offset - self._hot_read_bytes:
            return segment.buffer, base, base + segment.size
        end = run_end(places, index, base + segment.size)
        try:
            return segment.pread(offset - base, end - offset), offset, end
        except (StoreClosedError, InvalidArgumentError):
            return b"", offset, offset

    def read_at(self, offset: int) -> bytes:
        """The record at `offset`, whatever its size. Raises like `read`."""
        segment = self._segments.find(offset)
        room = 0 if segment is None else segment.start_offset + segment.size - offset
        # Before a size is believed, what stands there must say that it lies there.
        if room >= MIN_RECORD_BYTES:
            head = self._bytes(offset, _PLACE.size)
            size, magic, found_offset = _PLACE.unpack(head)
            if (
                found_offset == offset
                and magic in (MAGIC_V1, MAGIC_V2)
                and MIN_RECORD_BYTES <= size <= room
            ):
                return self.read(offset, size)
        raise MessageNotFoundError(str(offset), "no record begins there")

    def _bytes(self, offset: int, size: int) -> bytes:
        segment = self._segments.find(offset)
        if segment is None or offset + size > self.appended_offset:
            raise MessageNotFoundError(
                str(offset), f"outside {self.start_offset} to {self.appended_offset}"
            )
        position = offset - segment.start_offset
        try:
            if self.appended_offset - offset <= self._hot_read_bytes:
                return segment.read(position, size)
            return segment.pread(position, size)
        except StoreClosedError:
            if self._closed:
                raise
            raise MessageNotFoundError(str(offset), "dropped with its segment") from None
        except InvalidArgumentError:
            raise CorruptRecordError(offset, f"{size} bytes run past the segment") from None

    def view(self, offset: int, end: int) -> memoryview:
        """Bytes from `offset` to `end` or the segment's end, whichever comes first; release it
        soon.

        Empty if there is nothing. Raises MessageNotFoundError below the start of the log.
        """
        segment = self._segments.find(offset)
        if segment is None:
            if offset >= self._segments.end_offset or offset >= end:
                return memoryview(b"")
            raise MessageNotFoundError(str(offset), f"below {self.start_offset}")
        stop = min(end, segment.start_offset + segment.size)
        try:
            return segment.view(offset - segment.start_offset, max(0, stop - offset))
        except StoreClosedError:
            if self._closed:
                raise
            raise MessageNotFoundError(str(offset), "dropped with its segment") from None

    def segment_end(self, offset: int) -> int:
        """The end of the segment that holds `offset`, where the next one begins."""
        segment = self._segments.find(offset)
        if segment is None:
            raise MessageNotFoundError(str(offset), f"outside the log from {self.start_offset}")
        return segment.start_offset + segment.size

    def first_time_from(self, segment_start: int) -> tuple[int, int] | None:
        """Physical offset and store time of the first whole record in the segments from
        `segment_start` on; None if there is none.

        Skips damage. Raises OSError if the disk cannot be read, and StoreClosedError if the segment
        is dropped meanwhile.
        """
        return first_time(self._segments, segment_start)
