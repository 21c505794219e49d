"""Reads the files of one consume queue, and checks sizes, positions, and the order of units.

Whether the units are those of the log: see file_check.py. Read-only, and streaming.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from kvcq.inspect import Kind
from migration.formats import (
    BLANK_SIZE,
    END_MARK_SIZE,
    UNIT_SIZE,
    parse_file_name,
    units_in,
    valid_units,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.formats import BoolArray, IntArray, UnitArray
    from store.consume_queue import DispatchRequest

#: If a derived file and a record that verifies do not agree, either may be wrong. RocketMQ's
#: checksum only covers a record's body, unless enabledAppendPropCRC is set.
UNCOVERED = "; or that record is damaged: no checksum need cover its header and properties"

#: Above every physical offset.
NOWHERE = 1 << 62


class Log(Protocol):
    """The log that files are compared with, after a walk over it."""

    start_offset: int
    end_offset: int  # a unit that points beyond it is wrong
    walked_end: int  # a unit that points beyond it is compared with its record
    cut_offset: int  # the next opening cuts units beyond it, so they are not reported

    def in_question(self, offsets: IntArray) -> BoolArray:
        """Which of these physical offsets must be those of records that the walk reported."""
        ...

    def record_at(self, physical_offset: int) -> DispatchRequest | None:
        """The request derived from the record there; None if there is no whole record."""
        ...

    def is_damaged(self, physical_offset: int) -> bool:
        """Whether damage in the log explains a missing record there."""
        ...


class Tell(Protocol):
    """See kvcq.inspect.Findings.add."""

    def __call__(
        self,
        kind: Kind,
        place: str,
        expected: object,
        found: object,
        *,
        topic: str | None = None,
        queue_id: int | None = None,
        queue_offset: int | None = None,
        physical_offset: int | None = None,
        position: int | None = None,
        count: int = 1,
    ) -> None: ...


class _File(NamedTuple):
    place: str
    start: int  # bytes, of its first unit in the queue


class Hole(NamedTuple):
    """Queue offsets [begin, end) without units, followed by units. A fault if the log has a record
    for one of them."""

    place: str
    position: int  # bytes into the file
    begin: int
    end: int


class QueueCheck:
    """One queue. After `units`, [begin, end) are its queue offsets in the log, except for its
    `holes`; `begin` is None if no unit points into it."""

    def __init__(
        self,
        root: Path,
        topic: str,
        queue_id: int,
        *,
        file_bytes: int,
        log: Log,
        tell: Tell,
        sizes_are_due: bool = True,
    ) -> None:
        """`sizes_are_due`: a file that is too short is a fault; after a crash it is not."""
        self._root = root
        self._directory = root / "consumequeue" / topic / str(queue_id)
        self._topic = topic
        self._queue_id = queue_id
        self._file_bytes = file_bytes
        self._log = log
        self._tell = tell
        self._sizes_are_due = sizes_are_due
        self.unit_count = 0
        self.begin: int | None = None
        self.end = 0  # queue offset after the last valid unit
        self._highest = -1  # physical offset
        # A hole if a unit follows: file, first offset, units.
        self._hole: tuple[_File, int, int] | None = None
        self.holes: list[Hole] = []

    # --- order -----------------------------------------------------------------------------

    def units(self) -> Iterator[tuple[IntArray, UnitArray]]:
        """Report what is wrong with the files; yield the units that are in order, chunk by chunk,
        with their queue offsets."""
        expected: int | None = None
        for path in sorted(self._directory.iterdir()):
            place = str(path.relative_to(self._root))
            start = parse_file_name(path.name)
            if start is None or not path.is_file():
                self._tell(
                    Kind.FOREIGN,
                    place,
                    "",
                    "not named like a queue file",
                    topic=self._topic,
                    queue_id=self._queue_id,
                    position=0,
                )
                continue
            file = _File(place, start)
            self._look_at_place(file, path.stat().st_size, expected)
            try:
                for first, units in self._chunks(path, start):
                    at = self._chunk(file, first, units)
                    yield at + first, units[at]
            except OSError as error:
                self._found(file, start // UNIT_SIZE, Kind.UNREADABLE, "", error)
            expected = max(start + self._file_bytes, expected or 0)

    def _found(
        self,
        file: _File,
        offset: int,
        kind: Kind,
        expected: object,
        found: object,
        count: int = 1,
        position: int | None = None,
        physical_offset: int | None = None,
    ) -> None:
        self._tell(
            kind,
            file.place,
            expected,
            found,
            topic=self._topic,
            queue_id=self._queue_id,
            queue_offset=offset,
            physical_offset=physical_offset,
            position=max(0, offset * UNIT_SIZE - file.start) if position is None else position,
            count=count,
        )

    def _look_at_place(self, file: _File, size: int, expected: int | None) -> None:
        """Check the file's size, and its position among the others."""
        start = file.start
        offset = start // UNIT_SIZE
        if size > self._file_bytes or (size < self._file_bytes and self._sizes_are_due):
            kind = Kind.TRUNCATED if size < self._file_bytes else Kind.OVERSIZED
            at = min(size, self._file_bytes)
            wanted = f"{self._file_bytes} bytes"
            there = (start + at) // UNIT_SIZE
            self._found(file, there, kind, wanted, f"{size} bytes", position=at)
        if start % self._file_bytes or (expected is not None and start < expected):
            found = f"one that begins at {start}"
            wanted = f"a file behind {expected or 0}, where the files before it end"
            self._found(file, offset, Kind.OVERLAPPING, wanted, found)
        elif expected is not None and start > expected:
            count = (start - expected) // UNIT_SIZE
            wanted = f"a file from {expected} to {start}"
            self._found(file, expected // UNIT_SIZE, Kind.MISSING, wanted, "none", count)

    def _chunks(self, path: Path, start: int) -> Iterator[tuple[int, UnitArray]]:
        most = self._file_bytes // UNIT_SIZE
        for at, units in units_in(path):
            if at < most:
                yield start // UNIT_SIZE + at, units[: most - at]

    def _chunk(self, file: _File, first: int, units: UnitArray) -> IntArray:
        """Indexes of the units that are in order and point into the log."""
        valid = valid_units(units) & (units["physical_offset"] < self._log.cut_offset)
        self._holes(file, first, units, valid)
        at = np.flatnonzero(valid)
        if not at.size:
            return at
        self.unit_count += len(at)
        offsets = units["physical_offset"][at].astype(np.int64)
        past = offsets + units["record_size"][at] > self._log.end_offset
        falls, highest = falling(offsets, past, self._highest)
        self._highest = max(0, highest)
        for kind, bad, wanted in (
            (Kind.FALLING_OFFSET, falls, "a unit that points behind the one before it"),
            (
                Kind.PAST_LOG,
                past,
                f"a unit that points below the log's end, {self._log.end_offset}",
            ),
        ):
            wrong = np.flatnonzero(bad)
            if wrong.size:
                offset = first + int(at[wrong[0]])
                place = int(offsets[wrong[0]])
                self._found(file, offset, kind, wanted, f"one to {place}", len(wrong))
        self.end = first + int(at[-1]) + 1
        live = np.flatnonzero((offsets >= self._log.start_offset) & ~past & ~falls)
        if live.size and self.begin is None:
            self.begin = first + int(at[live[0]])
        return at[live]

    def _holes(self, file: _File, first: int, units: UnitArray, valid: BoolArray) -> None:
        """Find holes between units. Impossible values are reported separately."""
        sizes = units["record_size"]
        zero = (sizes == 0) & (units["physical_offset"] == 0)
        blank = (sizes == BLANK_SIZE) | (sizes == END_MARK_SIZE)
        cut = (units["physical_offset"] >= self._log.cut_offset) & ~blank
        impossible = np.flatnonzero(~valid & ~zero & ~blank & ~cut)
        if impossible.size:
            offset = first + int(impossible[0])
            found = f"(offset, size, tag code) {units[impossible[0]].item()}"
            self._found(file, offset, Kind.IMPOSSIBLE, "a unit", found, len(impossible))
        empty = zero | blank | cut
        at = np.flatnonzero(valid)
        if not at.size:
            if self._highest >= 0:
                self._open_hole(file, first, np.flatnonzero(empty))
            return
        behind = np.flatnonzero(empty)
        if self._highest >= 0:
            self._open_hole(file, first, behind[behind < at[0]])
        if self._hole is not None:
            hole_file, offset, count = self._hole
            self._hole = None
            self._add_hole(hole_file, offset, count)
        inner = behind[(behind > at[0]) & (behind < at[-1])]
        if inner.size:
            for run in np.split(inner, np.flatnonzero(np.diff(inner) > 1) + 1):
                self._add_hole(file, first + int(run[0]), len(run))
        self._open_hole(file, first, behind[behind > at[-1]])

    def _add_hole(self, file: _File, offset: int, count: int) -> None:
        position = max(0, offset * UNIT_SIZE - file.start)
        self.holes.append(Hole(file.place, position, offset, offset + count))

    def _open_hole(self, file: _File, first: int, empty: IntArray) -> None:
        """Note positions that are a hole if a unit follows, and otherwise the end of the queue."""
        if not empty.size:
            return
        if self._hole is None:
            self._hole = (file, first + int(empty[0]), len(empty))
        else:
            self._hole = (*self._hole[:2], self._hole[2] + len(empty))


def falling(offsets: IntArray, past: BoolArray, highest: int) -> tuple[BoolArray, int]:
    """Which offsets descend, and the highest so far; -1: none. Those that point `past` the log do
    not make later ones descend."""
    credible = np.where(past, -1, offsets)
    peaks = np.maximum.accumulate(np.concatenate(([highest], credible)))
    return ~past & (offsets < peaks[:-1]), int(peaks[-1])
