"""Checks the files of one consume queue: sizes, positions, and the order of units.

Whether units match their records is proved by sums: see file_check.py. Read-only, in one pass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np

from kvcq.inspect import Kind, is_at_place
from kvcq.tables import units_of_queues
from migration.formats import (
    BLANK_SIZE,
    END_MARK_SIZE,
    UNIT_SIZE,
    files_in,
    parse_file_name,
    units_in,
    valid_units,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from kvcq.inspect import RowSums
    from migration.formats import BoolArray, IntArray, UnitArray
    from store.consume_queue import DispatchRequest

    #: Queue, queue offsets, units.
    AreThere = Callable[[tuple[str, int], IntArray, UnitArray], None]

#: If a unit and a valid record differ, either may be wrong: RocketMQ's checksum only covers a
#: record's body, unless enabledAppendPropCRC is set.
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
    """One queue. After `run`, [begin, end) are the queue offsets of its valid units, except for
    `holes`."""

    def __init__(
        self,
        root: Path,
        topic: str,
        queue_id: int,
        *,
        file_bytes: int,
        log: Log,
        sums: RowSums,
        add_found: AreThere,
        tell: Tell,
        sizes_are_due: bool = True,
    ) -> None:
        """`add_found` is called with the units to be summed. `sizes_are_due`: short files are
        faults; after a crash they are not."""
        self._root = root
        self._directory = root / "consumequeue" / topic / str(queue_id)
        self._topic = topic
        self._queue_id = queue_id
        self._file_bytes = file_bytes
        self._log = log
        self._sums = sums
        self._add_found = add_found
        self._tell = tell
        self._sizes_are_due = sizes_are_due
        self.unit_count = 0
        self.begin: int | None = None
        self.end = 0  # queue offset after the last valid unit
        #: Whether there are units beyond the end of the walk.
        self.goes_beyond = False
        self._highest = -1  # physical offset
        # A hole if a unit follows: file, first offset, units.
        self._hole: tuple[_File, int, int] | None = None
        self.holes: list[Hole] = []

    # --- order -----------------------------------------------------------------------------

    def run(self) -> None:
        """Report what is wrong with the files, and count their units."""
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
                    self._chunk(file, first, units)
            except OSError as error:
                self._found(file, start // UNIT_SIZE, Kind.UNREADABLE, "", error)
            expected = max(start + self._file_bytes, expected or 0)
        if self.begin is None:
            self.begin = self.end

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

    def _chunk(self, file: _File, first: int, units: UnitArray) -> None:
        valid = self._valid(units)
        self._holes(file, first, units, valid)
        at = np.flatnonzero(valid)
        if not at.size:
            return
        self.unit_count += len(at)
        offsets = units["physical_offset"][at].astype(np.int64)
        past, falls, self._highest = self._order(units, at, offsets)
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
        asked = self._in_question(at[live], offsets[live])
        if len(asked):
            self._add_found((self._topic, self._queue_id), asked + first, units[asked])

    def _valid(self, units: UnitArray) -> BoolArray:
        return valid_units(units) & (units["physical_offset"] < self._log.cut_offset)

    def _order(
        self, units: UnitArray, at: IntArray, offsets: IntArray
    ) -> tuple[BoolArray, BoolArray, int]:
        """Which of the units at these indices are beyond the log, which descend, and the highest
        physical offset."""
        past = offsets + units["record_size"][at] > self._log.end_offset
        # A unit beyond the log does not make later ones descend.
        credible = np.where(past, -1, offsets)
        peaks = np.maximum.accumulate(np.concatenate(([self._highest], credible)))
        return past, ~past & (offsets < peaks[:-1]), max(0, int(peaks[-1]))

    def _in_question(self, at: IntArray, offsets: IntArray) -> IntArray:
        """The indices whose records the walk must have reported."""
        wanted = self._log.in_question(offsets)
        if not wanted.all():
            self.goes_beyond |= bool((offsets >= self._log.walked_end).any())
            at = at[wanted]
        return at

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

    # --- what the units point at -----------------------------------------------------------

    def ask(self, is_live: Callable[[str, int], bool] | None) -> None:
        """Compare the units whose sums differ with their records; call after `run`. Reports the
        first fault of each kind in a file, and counts the others."""
        self._highest = -1
        for start, path in files_in(self._directory):
            if not path.is_file():
                continue
            file = _File(str(path.relative_to(self._root)), start)
            wrong: dict[Kind, list[tuple[int, int, str, str]]] = {}
            for first, units in self._chunks(path, start):
                at = np.flatnonzero(self._valid(units))
                if not at.size:
                    continue
                offsets = units["physical_offset"][at].astype(np.int64)
                past, falls, self._highest = self._order(units, at, offsets)
                at = at[(offsets >= self._log.start_offset) & ~past & ~falls]
                for index in self._candidates(first, units, at).tolist():
                    told = self._ask(first + index, units[index].item(), is_live)
                    if told is not None:
                        kind, wanted, found = told
                        place = int(units["physical_offset"][index])
                        wrong.setdefault(kind, []).append((first + index, place, wanted, found))
            for kind, each in wrong.items():
                offset, place, wanted, found = each[0]
                self._found(file, offset, kind, wanted, found, len(each), physical_offset=place)

    def _candidates(self, first: int, units: UnitArray, at: IntArray) -> IntArray:
        """Indexes of units that may differ from the log, or that the walk did not reach."""
        offsets = units["physical_offset"][at].astype(np.int64)
        asked = self._in_question(at, offsets)
        queue = [(self._topic, self._queue_id)]
        hashes = units_of_queues(queue, [asked + first], [units[asked]]).hashes()
        beyond = at[offsets >= self._log.walked_end]
        return np.sort(np.concatenate((asked[self._sums.candidates(hashes)], beyond)))

    def _ask(
        self,
        offset: int,
        unit: tuple[int, int, int],
        is_live: Callable[[str, int], bool] | None,
    ) -> tuple[Kind, str, str] | None:
        """The fault of the unit, as kind, expected and found; None if it has none."""
        place, size, tag_code = unit
        record = self._log.record_at(place)
        if record is None:
            if self._log.is_damaged(place):
                return None
            return Kind.NO_RECORD, f"a record at {place}", "nothing at that physical offset"
        there = f"the record at {place}"
        if not is_at_place(record, self._topic, self._queue_id, offset):
            where = f"queue {record.queue_id} of {record.topic!r}, offset {record.queue_offset}"
            return Kind.WRONG_UNIT, "a record of this place", f"{there} of {where}{UNCOVERED}"
        if record.record_size != size:
            wanted = f"the size of {there}, {record.record_size} bytes"
            return Kind.WRONG_UNIT, wanted, f"{size} bytes"
        if record.tag_code != tag_code:
            wanted = f"the tag code of {there}, {record.tag_code}"
            return Kind.WRONG_UNIT, wanted, f"{tag_code}{UNCOVERED}"
        if is_live is not None and not is_live(self._topic, place):
            return Kind.DEAD_ROW, "no unit", f"one of {there}"
        return None
