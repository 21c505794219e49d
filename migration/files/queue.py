"""One file consume queue: units in files of equal size, indexed by queue offset.

Invariants, while the queue is open for writing:
- The unit of queue offset `n` is `n * 20` bytes into the queue, or missing.
- A valid unit below `end` is never overwritten by another one.
- Everything at or above `end` is zero on disk, except between `write` and `commit` or `undo`.
- Blanks and zeros are not units: they are not counted or returned, and a unit may replace them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.inspect import is_at_place
from migration.errors import QueueFileError, UnitConflictError
from migration.files.segments import BadFileError, QueueFiles
from migration.formats import (
    BLANK_UNIT,
    END_MARK,
    UNIT_SIZE,
    UnitArray,
    pack_units,
    unpack_unit,
    valid_units,
)
from store.base import Lock
from store.consume_queue import Bounds

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from migration.files.handles import FileHandles
    from store.consume_queue import DispatchRequest

    #: Returns the record at a physical offset of the log; None if there is no whole record.
    RecordAt = Callable[[int], DispatchRequest | None]

_BLANKS_AT_ONCE = 65_536

#: Physical offset, record size, tag code.
Unit = tuple[int, int, int]


class PendingUnits(NamedTuple):
    """The units that `check` found to be missing."""

    runs: list[tuple[int, list[int]]]  # (queue offset of the first, flat fields as pack_units)
    end: int  # end of the queue afterwards
    physical_end: int


class FileQueue:
    """The units of one (topic, queue id).

    Thread: one writer at a time, ensured by the owner; any for reads. Locks: `_lock` for the state
    that readers need; held for a few assignments, never across I/O.
    """

    __slots__ = (
        "__weakref__",
        "_end",
        "_files",
        "_first",
        "_lock",
        "_min",
        "_physical_end",
        "queue_id",
        "topic",
    )

    def __init__(
        self, topic: str, queue_id: int, directory: str, file_bytes: int, handles: FileHandles
    ) -> None:
        # Constant after construction.
        self.topic = topic
        self.queue_id = queue_id
        self._files = QueueFiles(directory, file_bytes, handles)
        self._lock = Lock()
        # Guarded by _lock.
        self._end = 0
        self._physical_end = 0
        self._first: int | None = None  # offset of the first valid unit; None: not determined yet
        self._min: tuple[int, int] | None = None  # (log start, min offset at that log start)

    @property
    def end(self) -> int:
        """Max offset, exclusive; 0 if the queue never had a unit."""
        return self._end

    @property
    def physical_end(self) -> int:
        """End of the last unit's record; 0 without units. Blanks do not count (H21)."""
        return self._physical_end

    def load(self, *, repair: bool = False) -> FileQueue:
        """Read names and find the last unit. Writes nothing, unless `repair` is set.

        `repair` restores the size of files that a crash left short. Raises QueueFileError for a
        file with a wrong size or an impossible start.
        """
        if repair:
            self._files.repair_sizes()
        try:
            self._files.load()
        except BadFileError as error:
            raise QueueFileError(
                self.topic,
                self.queue_id,
                (error.start + error.position) // UNIT_SIZE,
                error.path,
                error.position,
                error.reason,
            ) from None
        for start in reversed(self._files.starts):
            last = self._files.last_valid(start)
            if last is not None:
                self._end = last.offset + 1
                self._physical_end = last.physical_offset + last.record_size
                break
        else:
            self._end = self._files.end_without_units()
        return self

    # --- reading ---------------------------------------------------------------------------

    def read(self, start: int, count: int) -> Iterator[tuple[int, UnitArray]]:
        """Yield units from offset `start` on, below the end, as (offset of the first, units).
        Includes invalid units; leaves out missing files. Both are gaps."""
        return self._files.read(start, min(self._end, start + count))

    def unit(self, offset: int) -> Unit | None:
        """The valid unit at this offset; None without one."""
        for _, units in self.read(offset, 1):
            return unpack_unit(units.tobytes())
        return None

    def bounds(self, log_start: int) -> Bounds:
        """Min and max; min is the first unit at or above `log_start`, or max. Writes nothing."""
        with self._lock:
            end, known, first = self._end, self._min, self._first
        if known is not None and known[0] == log_start:
            return Bounds(min(known[1], end), end)
        if end == 0:
            return Bounds(0, 0)
        if first is None:
            first = self._files.next_valid(0, end)
            first = end if first is None else first
        found = self.first_where(first, end, lambda unit: unit[0] >= log_start)
        with self._lock:
            if self._end >= end:  # otherwise truncated meanwhile
                self._first, self._min = first, (log_start, found)
        return Bounds(found, end)

    def first_where(self, start: int, end: int, wanted: Callable[[Unit], bool]) -> int:
        """First valid unit in [start, end) for which `wanted` is true, or `end`. `wanted` must be
        monotonic along the queue.

        Skips invalid units, so gaps do not mislead the search. Finds the first of equal units
        (H13).
        """
        low, high, best = start, end, end
        while low < high:
            middle = (low + high) // 2
            offset = self._files.next_valid(middle, high)
            if offset is None:
                high = middle
                continue
            unit = self.unit(offset)
            if unit is not None and wanted(unit):
                high, best = middle, offset
            else:
                low = offset + 1
        return best

    # --- writing ---------------------------------------------------------------------------

    def check(
        self,
        offsets: Sequence[int],
        fields: list[int],
        log_start: int,
        record_at: RecordAt,
    ) -> PendingUnits | None:
        """Those of these units that are missing, for `write`; None if all exist. Writes nothing.

        `fields` is flat, three values for each unit. If a different unit exists, it stays if
        `record_at` shows that its record has the same place; otherwise raises UnitConflictError.
        Gaps are included, but not units below `log_start` whose file has expired.
        """
        count = len(offsets)
        first, end = offsets[0], self._end
        if self._physical_end == 0:  # no units: the queue may begin anywhere
            end = first
        if first == end and (count == 1 or list(offsets) == list(range(first, first + count))):
            if fields[0] < self._physical_end:
                self._refuse_behind(first, fields[0])
            return PendingUnits([(first, fields)], first + count, fields[-3] + fields[-2])
        return self._check_one_by_one(offsets, fields, end, log_start, record_at)

    def _check_one_by_one(
        self,
        offsets: Sequence[int],
        fields: list[int],
        end: int,
        log_start: int,
        record_at: RecordAt,
    ) -> PendingUnits | None:
        runs: list[tuple[int, list[int]]] = []
        physical_end = self._physical_end
        known = self._known(min(offsets), max(offsets) + 1)
        for index, offset in enumerate(offsets):
            row = fields[3 * index : 3 * index + 3]
            physical_offset, record_size, tag_code = row
            unit = (physical_offset, record_size, tag_code)
            present = known.get(offset)
            if present == unit:
                continue
            if present is not None:
                other = record_at(present[0]) if present[0] != physical_offset else None
                if other is not None and is_at_place(other, self.topic, self.queue_id, offset):
                    continue  # the log has two records for this place
                reason = f"the unit is {present}, the log says {unit}"
                raise UnitConflictError(self.topic, self.queue_id, offset, reason)
            if offset < end:
                # A gap, or a missing file: write it, unless it has expired.
                expired = physical_offset < log_start
                if expired and self._files.start_of(offset) not in self._files.starts:
                    continue
            else:
                if physical_offset < physical_end:
                    self._refuse_behind(offset, physical_offset)
                end, physical_end = offset + 1, physical_offset + record_size
            known[offset] = unit
            if runs and offset == runs[-1][0] + len(runs[-1][1]) // 3:
                runs[-1][1].extend(row)
            else:
                runs.append((offset, row))
        return PendingUnits(runs, end, physical_end) if runs else None

    def differing(
        self, offsets: Sequence[int], fields: list[int], log_start: int
    ) -> PendingUnits | None:
        """Those of these units, below the end, that differ from the files, for `write`; None if all
        are equal."""
        known = self._known(min(offsets), max(offsets) + 1)
        runs: list[tuple[int, list[int]]] = []
        for index, offset in enumerate(offsets):
            row = fields[3 * index : 3 * index + 3]
            expired = row[0] < log_start
            if offset < self._end and not expired and known.get(offset) != tuple(row):
                runs.append((offset, row))
        return PendingUnits(runs, self._end, self._physical_end) if runs else None

    def _refuse_behind(self, offset: int, physical_offset: int) -> None:
        reason = f"the record at {physical_offset} is below {self._physical_end}, the queue's end"
        raise UnitConflictError(self.topic, self.queue_id, offset, reason)

    def _known(self, start: int, end: int) -> dict[int, Unit]:
        known: dict[int, Unit] = {}
        for offset, units in self.read(start, end - start):
            rows: list[Unit] = units.tolist()
            for at in np.flatnonzero(valid_units(units)).tolist():
                known[offset + at] = rows[at]
        return known

    def write(self, pending: PendingUnits) -> None:
        """Write the units into the page cache. Readers do not see them before `commit`. Raises
        DiskFullError; the caller must then call `undo`."""
        end, is_new = self._end, self._physical_end == 0
        for offset, fields in pending.runs:
            if is_new:
                self._begin(offset)
                end, is_new = offset, False
            elif offset < self._files.first_offset():
                self._fill_with_blanks(offset)
            else:  # blanks, because RocketMQ takes zeros for the queue's end
                for begin in range(end, offset, _BLANKS_AT_ONCE):
                    self._files.write(begin, BLANK_UNIT * min(_BLANKS_AT_ONCE, offset - begin))
            self._files.write(offset, pack_units(fields))
            end = max(end, offset + len(fields) // 3)

    def _begin(self, offset: int) -> None:
        """Create the files of an empty queue whose first unit has this offset, with blanks before
        it."""
        files = self._files
        start = files.start_of(offset)
        for other in [found for found in files.starts if found != start]:
            # Without units: left by a crash before they were filled.
            files.remove(other)
        files.make(start)
        files.clear_rest(start, offset)
        self._fill_with_blanks(offset)

    def _fill_with_blanks(self, offset: int) -> None:
        """Make the file of `offset` the first of the queue, beginning there."""
        first = self._files.start_of(offset) // UNIT_SIZE
        if offset > first:
            self._files.write(first, BLANK_UNIT * (offset - first))

    def commit(self, pending: PendingUnits) -> None:
        """Make the written units visible to readers."""
        filled = pending.runs[0][0] < self._end
        with self._lock:
            self._end, self._physical_end = pending.end, pending.physical_end
            if filled:  # this may have been the first gap of the queue
                self._first = self._min = None

    def undo(self, pending: PendingUnits) -> None:
        """Clear what `write` wrote. Needs no space, because the blocks are allocated."""
        first = pending.runs[0][0]
        for offset, fields in pending.runs:
            begin = min(self._end if self._physical_end else first, offset)
            self._files.clear(begin, offset - begin + len(fields) // 3)

    # --- cutting ---------------------------------------------------------------------------

    def cut(self, physical_offset: int) -> bool:
        """Remove all units at or above `physical_offset`, and all that follow them. Returns whether
        there were any.

        Also removes units with descending offsets, which a torn write leaves. Overwrites old bytes
        with zeros, so that they cannot come back (H1). If no unit is left, the first one's offset
        remains the end, so offsets of expired units are not reused. Durable after the owner's sync;
        an interrupted cut leaves fewer units, never a gap.
        """
        changed, end, physical_end = False, 0, 0
        first = self._files.next_valid(0, self._end)
        first = self._end if first is None else first
        for start in reversed(list(self._files.starts)):
            last = self._files.last_below(start, physical_offset)
            if last is None and start == self._files.starts[0] and first:
                end = first
                changed = self._leave_end_mark(first) or changed
                break
            if last is None:
                self._files.remove(start)
                changed = True
                continue
            end, physical_end = last.offset + 1, last.physical_offset + last.record_size
            changed = self._files.clear_rest(start, end) or changed
            break
        with self._lock:
            self._end, self._physical_end = end, physical_end
            self._first = self._min = None
        return changed

    def _leave_end_mark(self, end: int) -> bool:
        """Make the only remaining file an end mark of the queue. Returns whether it changed."""
        files = self._files
        (start,) = files.starts
        wanted = files.start_of(end)
        if wanted == start and files.last_valid(start) is None:
            if files.end_without_units() == end:
                return False
        elif wanted != start:
            files.make(wanted)
            files.remove(start)
        if end * UNIT_SIZE > wanted:  # otherwise the file's name is enough
            self._fill_with_blanks(end - 1)
            files.write(end - 1, END_MARK)
        files.clear_rest(wanted, end)
        return True

    def drop_leading(self, log_start: int) -> int:
        """Delete leading files whose units are all below `log_start`. Returns how many. The last
        file and files without a valid unit stay."""
        dropped = 0
        while len(self._files.starts) > 1:
            last = self._files.last_valid(self._files.starts[0])
            if last is None or last.physical_offset >= log_start:
                break
            self._files.remove(self._files.starts[0])
            dropped += 1
        if dropped:
            with self._lock:
                self._first = self._min = None
        return dropped
