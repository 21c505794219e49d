"""Looks through the files of one consume queue: sizes, places, units, and what they point at."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from migration.formats import (
    BLANK_SIZE,
    END_MARK_SIZE,
    UNIT_SIZE,
    UnitArray,
    parse_file_name,
    unpack_units,
    valid_units,
)
from migration.plan.legacy_findings import UNCOVERED, Fault, Finding, Remedy

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from migration.formats import BoolArray, IntArray
    from store.consume_queue import DispatchRequest

_CHUNK_UNITS = 65_536
_NO_UNIT = "no unit, but units behind it"


class QueueCheck:
    """One queue. `run` once; `last_live` is filled by it."""

    def __init__(
        self,
        directory: Path,
        topic: str,
        queue_id: int,
        *,
        file_bytes: int,
        log_start: int,
        log_end: int,
        record_at: Callable[[int], DispatchRequest | None] | None,
        damaged_from: int | None = None,
    ) -> None:
        """`damaged_from`: where the log is known to be damaged. A record that cannot be read
        from there on is no fault of the queue."""
        self._directory = directory
        self._topic = topic
        self._queue_id = queue_id
        self._file_bytes = file_bytes
        self._log_start = log_start
        self._log_end = log_end
        self._record_at = record_at
        self._damaged_from = damaged_from
        self.last_live = -1  # physical offset of the last unit that points into the log
        self._end = 0  # queue offset after the last valid unit
        self._first_live: int | None = None
        self._highest = -1  # physical offset
        # A hole if a unit follows: file, start of the file, first offset, units.
        self._hole: tuple[Path, int, int, int] | None = None

    def run(self, log_bounds: tuple[int, int] | None) -> Iterator[Finding]:
        """All findings of the queue, in order."""
        expected: int | None = None
        for path in sorted(self._directory.iterdir()):
            start = parse_file_name(path.name)
            if start is None or not path.is_file():
                yield Finding(
                    path,
                    0,
                    Fault.FOREIGN,
                    "not named like a queue file",
                    Remedy.IGNORE,
                    self._topic,
                    self._queue_id,
                )
                continue
            yield from self._place(path, start, expected)
            yield from self._units(path, start)
            expected = max(start + self._file_bytes, expected or 0)
        if log_bounds is not None:
            yield from self._against(log_bounds)

    def _finding(
        self, path: Path, start: int, offset: int, fault: Fault, detail: str, count: int = 1
    ) -> Finding:
        return Finding(
            path,
            max(0, offset * UNIT_SIZE - start),
            fault,
            detail,
            Remedy.REBUILD_QUEUE,
            self._topic,
            self._queue_id,
            offset,
            count,
        )

    def _place(self, path: Path, start: int, expected: int | None) -> Iterator[Finding]:
        """Whether the file's size, and its place among the others, are right."""
        size = path.stat().st_size
        offset = start // UNIT_SIZE
        if size != self._file_bytes:
            fault = Fault.TRUNCATED if size < self._file_bytes else Fault.OVERSIZED
            at = min(size, self._file_bytes)
            detail = f"{size} bytes, not {self._file_bytes}"
            offset_there = (start + at) // UNIT_SIZE
            yield replace(self._finding(path, start, offset_there, fault, detail), position=at)
        if start % self._file_bytes or (expected is not None and start < expected):
            detail = f"begins at {start}, the files before it reach to {expected or 0}"
            yield self._finding(path, start, offset, Fault.OVERLAPPING, detail)
        elif expected is not None and start > expected:
            count = (start - expected) // UNIT_SIZE
            detail = f"no file from {expected} to {start}"
            yield self._finding(path, start, expected // UNIT_SIZE, Fault.MISSING, detail, count)

    def _units(self, path: Path, start: int) -> Iterator[Finding]:
        try:
            with path.open("rb") as file:
                position = 0
                while position < self._file_bytes:
                    wanted = min(_CHUNK_UNITS * UNIT_SIZE, self._file_bytes - position)
                    units = unpack_units(file.read(wanted))
                    if not len(units):
                        break
                    yield from self._chunk(path, start, (start + position) // UNIT_SIZE, units)
                    position += wanted
        except OSError as error:
            offset = start // UNIT_SIZE
            yield self._finding(path, start, offset, Fault.UNREADABLE, str(error))

    def _chunk(self, path: Path, start: int, first: int, units: UnitArray) -> Iterator[Finding]:
        valid = valid_units(units)
        yield from self._holes(path, start, first, units, valid)
        at = np.flatnonzero(valid)
        if not at.size:
            return
        offsets = units["physical_offset"][at].astype(np.int64)
        ends = offsets + units["record_size"][at]
        past = ends > self._log_end
        # One that points past the log says nothing about those behind it.
        credible = np.where(past, -1, offsets)
        peaks = np.maximum.accumulate(np.concatenate(([self._highest], credible)))
        falls = ~past & (offsets < peaks[:-1])
        for fault, bad, detail in (
            (Fault.FALLING, falls, "the unit points before the one before it"),
            (Fault.PAST_LOG, past, f"the log ends at {self._log_end}"),
        ):
            wrong = np.flatnonzero(bad)
            if wrong.size:
                offset = first + int(at[wrong[0]])
                yield self._finding(path, start, offset, fault, detail, len(wrong))
        self._end = first + int(at[-1]) + 1
        self._highest = max(0, int(peaks[-1]))
        live = np.flatnonzero((offsets >= self._log_start) & ~past & ~falls)
        if live.size:
            self.last_live = max(self.last_live, int(offsets[live[-1]]))
            if self._first_live is None:
                self._first_live = first + int(at[live[0]])
        if self._record_at is not None:
            for index in at[live].tolist():
                yield from self._record(path, start, first + index, units[index].item())

    def _holes(
        self, path: Path, start: int, first: int, units: UnitArray, valid: BoolArray
    ) -> Iterator[Finding]:
        """Places without a unit that have units behind them; what is impossible is told apart.

        Blanks before the first unit of the queue are in order, zeros there are not.
        """
        zero = (units["record_size"] == 0) & (units["physical_offset"] == 0)
        sizes = units["record_size"]
        blank = (sizes == BLANK_SIZE) | (sizes == END_MARK_SIZE)
        impossible = np.flatnonzero(~valid & ~zero & ~blank)
        if impossible.size:
            offset = first + int(impossible[0])
            detail = f"(offset, size, tag code) is {units[impossible[0]].item()}"
            count = len(impossible)
            yield self._finding(path, start, offset, Fault.IMPOSSIBLE, detail, count)
        at = np.flatnonzero(valid)
        empty = np.flatnonzero(zero | blank if self._highest >= 0 else zero)
        if not at.size:
            self._open_hole(path, start, first, empty)
            return
        self._open_hole(path, start, first, empty[empty < at[0]])
        if self._hole is not None:
            hole_path, hole_start, offset, count = self._hole
            self._hole = None
            yield self._finding(hole_path, hole_start, offset, Fault.HOLE, _NO_UNIT, count)
        behind = np.flatnonzero(zero | blank)
        inner = behind[(behind > at[0]) & (behind < at[-1])]
        if inner.size:
            offset = first + int(inner[0])
            yield self._finding(path, start, offset, Fault.HOLE, _NO_UNIT, len(inner))
        self._open_hole(path, start, first, behind[behind > at[-1]])

    def _open_hole(self, path: Path, start: int, first: int, empty: IntArray) -> None:
        """Remember places that are a hole if a unit follows, and else the end of the queue."""
        if not empty.size:
            return
        if self._hole is None:
            self._hole = (path, start, first + int(empty[0]), len(empty))
        else:
            self._hole = (*self._hole[:3], self._hole[3] + len(empty))

    def _record(
        self, path: Path, start: int, offset: int, unit: tuple[int, int, int]
    ) -> Iterator[Finding]:
        assert self._record_at is not None
        record = self._record_at(unit[0])
        if record is None:
            if self._damaged_from is not None and unit[0] >= self._damaged_from:
                return
            detail = f"nothing at physical offset {unit[0]}"
            yield self._finding(path, start, offset, Fault.NO_RECORD, detail)
            return
        places = {(name, 0, at) for name, at in record.light_queues}
        if record.in_queue:
            places.add((record.topic, record.queue_id, record.queue_offset))
        if (self._topic, self._queue_id, offset) not in places:
            where = f"queue {record.queue_id} of {record.topic!r}, offset {record.queue_offset}"
            detail = f"the record at {unit[0]} belongs to {where}{UNCOVERED}"
        elif record.record_size != unit[1]:
            detail = f"the record at {unit[0]} has {record.record_size} bytes, not {unit[1]}"
        elif record.tag_code != unit[2]:
            detail = f"the record at {unit[0]} has the tag code {record.tag_code}, not {unit[2]}"
            detail += UNCOVERED
        else:
            return
        yield self._finding(path, start, offset, Fault.WRONG_RECORD, detail)

    def _against(self, log_bounds: tuple[int, int]) -> Iterator[Finding]:
        """Whether the queue has what the log has, at both ends."""
        first, end = log_bounds
        if first >= end:
            return
        begins = self._end if self._first_live is None else self._first_live
        if self._first_live is not None and begins > first:
            detail = f"the first unit is at offset {begins}, the log's at {first}"
            yield self._of_queue(first, begins, Fault.STARTS_LATE, detail)
        if self._end < end:
            detail = f"the queue ends at offset {self._end}, the log's at {end}"
            yield self._of_queue(max(self._end, first), end, Fault.ENDS_EARLY, detail)

    def _of_queue(self, offset: int, end: int, fault: Fault, detail: str) -> Finding:
        return self._finding(
            self._directory, offset * UNIT_SIZE, offset, fault, detail, end - offset
        )
