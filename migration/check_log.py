"""Walks the segments of a stopped store: every record whole, in its place, times rising."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from migration.check_findings import Kind
from store.record import BLANK_BYTES, Found, check_record, store_time_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from migration.check_findings import Findings
    from store.segment import Segment
    from store.segment_set import SegmentSet

_MAGIC = re.compile(rb"\xda\xa3\x20[\xa7\xab]|\xcb\xd4\x31\x94")
_MAGIC_AT = 4
_CHUNK_BYTES = 1 << 20
_PROGRESS_BYTES = 16 << 20


class LogWalk:
    """One pass over the log; afterwards `end_offset` is where it ends.

    Memory: the places of damage, as many as are listed.
    """

    def __init__(
        self,
        segments: SegmentSet,
        durable_end: int,
        findings: Findings,
        progress: Callable[[float], None],
    ) -> None:
        """`durable_end`: below it the log was fsynced, so what is no record there is damage."""
        self._segments = segments
        self._durable_end = durable_end
        self._findings = findings
        self._progress = progress
        self.start_offset = segments.first_offset
        self.end_offset = segments.first_offset
        self.record_count = 0
        self.damaged: list[tuple[int, int]] = []  # start and end, physical
        self._last_time_ms = -1

    def run(self) -> None:
        """Walk from the first segment to the end of the log."""
        at = self.start_offset
        total = max(1, len(self._segments) * self._segments.segment_bytes)
        for segment in self._segments:
            end = segment.start_offset + segment.size
            if at < segment.start_offset:  # the log ended in an earlier segment
                break
            at = self._walk_segment(segment)
            self._progress((min(at, end) - self.start_offset) / total)
            if at < end:
                break
        self.end_offset = at
        if at < self._durable_end:
            self._findings.add(
                Kind.SHORT_LOG,
                "commitlog",
                f"records up to {self._durable_end}, which the checkpoint file calls durable",
                f"none from {at} on",
                physical_offset=at,
            )
        self._look_behind(at)

    def _walk_segment(self, segment: Segment) -> int:
        """Check the records of one segment; returns its end, or the end of the log in it."""
        base, size = segment.start_offset, segment.size
        reported = base
        with segment.view(0, size) as view:
            at = base
            while at < base + size:
                if base + size - at < BLANK_BYTES:
                    return self._resume(view, segment, at, "no blank record closes the segment")
                checked = check_record(view, at - base, size, at)
                if checked.found is Found.BLANK:
                    return base + size
                if checked.found is Found.NOTHING:
                    resumed = self._resume(view, segment, at, checked.reason)
                    if resumed == at:
                        return at
                    at = resumed
                    continue
                self._look_at_time(store_time_of(view, at - base), at)
                self.record_count += 1
                at += checked.size
                if at - reported >= _PROGRESS_BYTES:
                    reported = at
                    self._progress((at - self.start_offset) / max(1, len(self._segments) * size))
        return base + size

    def _resume(self, view: memoryview, segment: Segment, at: int, reason: str) -> int:
        """Where the log goes on behind what is no record; `at` itself when that is its end."""
        base = segment.start_offset
        goes_on = self._next_record(view, segment, at + 1)
        if goes_on is None:
            if at >= self._durable_end:
                return at
            goes_on = base + segment.size  # all the rest of this segment is gone
        if at >= self._durable_end:
            # Behind a torn record there may be whole ones: none of them was acknowledged as
            # durable, and recovery cuts there. It is the end of the log.
            return at
        self.damaged.append((at, goes_on))
        self._findings.add(
            Kind.DAMAGED_RECORD,
            f"commitlog/{segment.path.name}",
            "a record",
            f"{reason}; the log goes on at {goes_on}",
            physical_offset=at,
        )
        return goes_on

    @staticmethod
    def _next_record(view: memoryview, segment: Segment, start: int) -> int | None:
        """The first whole record, or blank, at or above `start` in the segment."""
        base = segment.start_offset
        for found in _MAGIC.finditer(view, start - base + _MAGIC_AT):
            position = found.start() - _MAGIC_AT
            checked = check_record(view, position, segment.size, base + position)
            if checked.found is Found.RECORD:
                return base + position
            if checked.found is Found.BLANK:
                remaining = int.from_bytes(view[position : position + 4], "big")
                if remaining == segment.size - position:
                    return base + position
        return None

    def _look_at_time(self, store_time_ms: int, at: int) -> None:
        if store_time_ms < self._last_time_ms:
            # Search by time and expiry stand on rising times. A broker's log may have it so.
            self._findings.add(
                Kind.FALLING_TIME,
                "commitlog",
                f"at least {self._last_time_ms} ms",
                f"{store_time_ms} ms",
                physical_offset=at,
            )
        self._last_time_ms = max(self._last_time_ms, store_time_ms)

    def _look_behind(self, end: int) -> None:
        """Bytes behind the log's end are a torn tail, when there are any."""
        for segment in self._segments:
            position = max(0, end - segment.start_offset)
            while position < segment.size:
                size = min(_CHUNK_BYTES, segment.size - position)
                data = segment.read(position, size)
                if data.count(0) != size:
                    at = segment.start_offset + position + size - len(data.lstrip(b"\0"))
                    self._findings.add(
                        Kind.TORN_TAIL,
                        f"commitlog/{segment.path.name}",
                        f"nothing behind the log's end at {end}",
                        "bytes of appends that never became durable: the next opening cuts them",
                        physical_offset=at,
                    )
                    return
                position += size

    def is_damaged(self, physical_offset: int) -> bool:
        """Whether the offset lies in damage that was reported."""
        return any(start <= physical_offset < end for start, end in self.damaged)
