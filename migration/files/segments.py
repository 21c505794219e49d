"""The files of one consume queue, as one sequence of bytes that queue.py interprets.

Writes and file names are durable after the owner of the handles synced them.
"""

from __future__ import annotations

from bisect import bisect_right
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from migration.formats import UNIT_SIZE, UnitArray, file_name, files_in, unpack_units, valid_units
from store.base import DIRECTORY_MODE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from migration.files.handles import FileHandles

_CHUNK_UNITS = 4096  # one read of a scan that may end early: 80 KiB
_SCAN_UNITS = 65_536  # one read of a complete scan: 1.25 MiB


class BadFileError(Exception):
    """A file of the queue is invalid. FileQueue converts it to its own error."""

    def __init__(self, path: str, start: int, position: int, reason: str) -> None:
        super().__init__(reason)
        self.path = path
        self.start = start
        self.position = position
        self.reason = reason


class PlacedUnit(NamedTuple):
    """A valid unit and its place."""

    offset: int  # in the queue
    physical_offset: int
    record_size: int


class QueueFiles:
    """Creates, reads, writes and deletes the files in one directory.

    Thread: one writer; `read` and `first_offset` from any thread.
    """

    __slots__ = ("_handles", "directory", "file_bytes", "starts")

    def __init__(self, directory: str, file_bytes: int, handles: FileHandles) -> None:
        # Constant after construction.
        self.directory = directory
        self.file_bytes = file_bytes
        self._handles = handles
        # Changed by the writer only. Starts of files in bytes, ascending.
        self.starts: list[int] = []

    def path(self, start: int) -> str:
        return f"{self.directory}/{file_name(start)}"

    def start_of(self, offset: int) -> int:
        """Start of the file for the unit of this queue offset."""
        return offset * UNIT_SIZE // self.file_bytes * self.file_bytes

    def first_offset(self) -> int:
        """Queue offset at which the first file begins; 0 without files."""
        for start in self.starts[:1]:
            return start // UNIT_SIZE
        return 0

    # --- opening ---------------------------------------------------------------------------

    def load(self) -> None:
        """Read the names. Writes nothing. Raises BadFileError."""
        self.starts = []
        for start, file in files_in(Path(self.directory)):
            size, path = file.stat().st_size, self.path(start)
            if size != self.file_bytes:
                reason = f"the file has {size} bytes, not {self.file_bytes}"
                raise BadFileError(path, start, min(size, self.file_bytes), reason)
            if start % self.file_bytes:
                reason = f"the name is no multiple of the file size {self.file_bytes}"
                raise BadFileError(path, start, 0, reason)
            self.starts.append(start)

    def repair_sizes(self) -> None:
        """Restore the size of short files, which a crash between creating and sizing a file
        leaves."""
        for _, path in files_in(Path(self.directory)):
            if path.stat().st_size < self.file_bytes:
                self._handles.resize(str(path), self.file_bytes)

    # --- reading ---------------------------------------------------------------------------

    def read(self, start: int, end: int) -> Iterator[tuple[int, UnitArray]]:
        """Yield the units of [start, end) as (offset of the first, units), an array for each file.
        Missing files are left out."""
        start = max(start, self.first_offset())
        per_file = self.file_bytes // UNIT_SIZE
        while start < end:
            stop = min(end, start - start % per_file + per_file)
            file_start = self.start_of(start)
            try:
                data = self._handles.read(
                    self.path(file_start),
                    (stop - start) * UNIT_SIZE,
                    start * UNIT_SIZE - file_start,
                )
            except FileNotFoundError:  # expired, deleted or lost
                data = b""
            if len(data) >= UNIT_SIZE:
                yield start, unpack_units(data)
            start = stop

    def next_valid(self, start: int, end: int) -> int | None:
        """Offset of the first valid unit in [start, end)."""
        start = max(start, self.first_offset())
        step = 1  # nearly always the first unit is valid
        while start < end:
            stop = min(end, start + step)
            for offset, units in self.read(start, stop):
                at = np.flatnonzero(valid_units(units))
                if at.size:
                    return offset + int(at[0])
            start, step = stop, _CHUNK_UNITS
        return None

    def last_valid(self, start: int) -> PlacedUnit | None:
        """The last valid unit of the file that begins at `start`. Holes are not read."""
        path = self.path(start)
        for first, last in reversed(self._handles.data_ranges(path, 0, self.file_bytes)):
            begin, stop = _whole_units(first, last)
            while stop > begin:
                chunk = max(begin, stop - _CHUNK_UNITS * UNIT_SIZE)
                units = unpack_units(self._handles.read(path, stop - chunk, chunk))
                at = np.flatnonzero(valid_units(units))
                if at.size:
                    return self._placed(start, chunk, units, int(at[-1]))
                stop = chunk
        return None

    def end_without_units(self) -> int:
        """The queue's end if no file has a valid unit: after the blanks, or at an end mark, or at
        the start of the first file if that only has zeros."""
        for start in self.starts[:1]:
            path = self.path(start)
            for first, last in reversed(self._handles.data_ranges(path, 0, self.file_bytes)):
                begin, stop = _whole_units(first, last)
                units = unpack_units(self._handles.read(path, stop - begin, begin))
                at = np.flatnonzero(units["record_size"])
                if at.size:
                    return (start + begin) // UNIT_SIZE + int(at[-1]) + 1
            return start // UNIT_SIZE
        return 0

    def last_below(self, start: int, physical_offset: int) -> PlacedUnit | None:
        """The last unit of a file before the first one at or above `physical_offset`. A unit that
        is not above all earlier ones counts like that, too: a torn write left it."""
        path = self.path(start)
        floor = -1
        before_it = self.starts.index(start) - 1
        if before_it >= 0:
            last_before = self.last_valid(self.starts[before_it])
            floor = -1 if last_before is None else last_before.physical_offset
        found: PlacedUnit | None = None
        for first, last in self._handles.data_ranges(path, 0, self.file_bytes):
            begin, stop = _whole_units(first, last)
            for chunk in range(begin, stop, _SCAN_UNITS * UNIT_SIZE):
                size = min(stop - chunk, _SCAN_UNITS * UNIT_SIZE)
                units = unpack_units(self._handles.read(path, size, chunk))
                at = np.flatnonzero(valid_units(units))
                offsets = units["physical_offset"][at].astype(np.int64)
                highest = floor if found is None else found.physical_offset
                before = np.maximum.accumulate(np.concatenate(([highest], offsets)))[:-1]
                # Physical offset 0 can only be in the first unit of a queue. Later it is a unit of
                # which only half was written.
                half = (offsets == 0) & (at + (start + chunk) // UNIT_SIZE > 0)
                bad = np.flatnonzero((offsets >= physical_offset) | (offsets <= before) | half)
                good = int(bad[0]) if bad.size else len(at)
                if good:
                    found = self._placed(start, chunk, units, int(at[good - 1]))
                if bad.size:
                    return found
        return found

    def _placed(self, start: int, chunk: int, units: UnitArray, index: int) -> PlacedUnit:
        physical_offset, record_size, _ = units[index].item()
        return PlacedUnit((start + chunk) // UNIT_SIZE + index, physical_offset, record_size)

    # --- writing ---------------------------------------------------------------------------

    def write(self, offset: int, data: bytes) -> None:
        """Write units from a queue offset on, creating files as needed. Raises DiskFullError."""
        rest = memoryview(data)
        for start, position, size in self._pieces(offset, len(data)):
            self.make(start)
            self._handles.write(self.path(start), rest[:size], position)
            rest = rest[size:]

    def clear(self, offset: int, count: int) -> None:
        """Write zeros over `count` units; missing files are not created."""
        for start, position, size in self._pieces(offset, count * UNIT_SIZE):
            if start in self.starts:
                self._handles.clear(self.path(start), position, position + size)

    def clear_rest(self, start: int, offset: int) -> bool:
        """Write zeros from a queue offset to the end of its file. Returns whether anything else was
        there."""
        position = offset * UNIT_SIZE - start
        return self._handles.clear(self.path(start), position, self.file_bytes)

    def _pieces(self, offset: int, size: int) -> Iterator[tuple[int, int, int]]:
        """(file start, position, bytes) of a run of units, split at the ends of files."""
        at, end = offset * UNIT_SIZE, offset * UNIT_SIZE + size
        while at < end:
            position = at % self.file_bytes
            piece = min(end - at, self.file_bytes - position)
            yield at - position, position, piece
            at += piece

    def make(self, start: int) -> None:
        """Create the file that begins at `start`, with its full size, if it is missing."""
        starts = self.starts
        if starts and starts[-1] == start:
            return
        at = bisect_right(starts, start)
        if at and starts[at - 1] == start:
            return
        if not starts:
            self._make_directories()
        self._handles.create(self.path(start), self.file_bytes)
        starts.insert(at, start)

    def _make_directories(self) -> None:
        made = Path(self.directory)
        missing = []
        while not made.is_dir():
            missing.append(made)
            made = made.parent
        for directory in reversed(missing):
            directory.mkdir(DIRECTORY_MODE, exist_ok=True)
            self._handles.mark_directory(str(directory.parent))

    def remove(self, start: int) -> None:
        """Delete one file."""
        self._handles.remove(self.path(start))
        self.starts.remove(start)


def _whole_units(first: int, last: int) -> tuple[int, int]:
    """A range of bytes, widened to whole units."""
    return first - first % UNIT_SIZE, last + -last % UNIT_SIZE
