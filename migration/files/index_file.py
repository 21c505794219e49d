"""One index file. Layout in formats/index.py.

Invariants, while the file is open for writing:
- Entries are in the order of their physical offsets, and never change once written.
- A slot is derived from the entries below `next_entry`, so it can always be rebuilt.

Entries are written immediately. Slots and header are in memory until `write_back`; before that only
this process finds the new entries. A crash may leave uncounted entries or outdated slots, which
`cut` repairs.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from migration.errors import IndexFileError
from migration.formats import (
    ENTRY,
    ENTRY_DTYPE,
    ENTRY_SIZE,
    HEADER,
    HEADER_SIZE,
    MAX_SECONDS,
    SLOT_DTYPE,
    SLOT_SIZE,
    IndexLayout,
    IntArray,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from migration.files.handles import FileHandles

_PAGE_SLOTS = 1024  # 4 KiB of slots are written back together
_SCAN_ENTRIES = 1 << 18  # 5 MiB at once


class IndexFile:
    """Entries of one file.

    Thread: one writer; `candidates` from any thread: it sees a consistent, maybe earlier state.
    """

    def __init__(self, path: Path, layout: IndexLayout, handles: FileHandles) -> None:
        # Constant after construction.
        self.path = path
        self.layout = layout
        self._name = str(path)
        self._handles = handles
        # Changed by the writer only.
        self.begin_ms = self.end_ms = 0
        self.begin_offset = self.end_offset = 0
        self.slots_used = 0
        self.next_entry = 1
        self._slots: npt.NDArray[np.int32] | None = None  # in memory once the file is written to
        self._dirty_pages: npt.NDArray[np.bool_] | None = None
        self._changed = False

    @property
    def empty(self) -> bool:
        return self.next_entry <= 1

    @property
    def free(self) -> int:
        """Number of entries that still fit."""
        return self.layout.entries - self.next_entry

    def create(self) -> IndexFile:
        """Create the file, empty and with its full size. Raises DiskFullError."""
        self._handles.create(self._name, self.layout.file_bytes)
        self._open_slots(np.zeros(self.layout.slots, dtype=np.int32))
        return self

    def load(self) -> IndexFile:
        """Read the header. Raises IndexFileError if it, or the size, is invalid."""
        size = self.path.stat().st_size
        if size != self.layout.file_bytes:
            reason = f"the file has {size} bytes, not {self.layout.file_bytes}"
            raise IndexFileError(self.path, min(size, self.layout.file_bytes), reason)
        header = HEADER.unpack(self._handles.read(self._name, HEADER_SIZE, 0))
        self.begin_ms, self.end_ms, self.begin_offset, self.end_offset, *counts = header
        self.slots_used, self.next_entry = counts
        self.next_entry = self.next_entry or 1  # 0: never written to
        if not 1 <= self.next_entry <= self.layout.entries:
            reason = f"the next entry is {self.next_entry}, of {self.layout.entries}"
            raise IndexFileError(self.path, 36, reason)
        if not 0 <= self.slots_used <= self.layout.slots:
            reason = f"{self.slots_used} slots are used, of {self.layout.slots}"
            raise IndexFileError(self.path, 32, reason)
        return self

    # --- writing ---------------------------------------------------------------------------

    def insert(self, hashes: IntArray, offsets: IntArray, times_ms: IntArray) -> None:
        """Add entries, at most `free`, in log order. Raises DiskFullError; then none is added."""
        count = len(hashes)
        assert 0 < count <= self.free
        slots, pages = self._slots_for_writing()
        first = self.next_entry
        # Begin is set before the differences are taken from it (H23).
        begin_ms = int(times_ms[0]) if self.empty else self.begin_ms
        seconds = (times_ms - begin_ms) // 1000 if begin_ms > 0 else np.zeros_like(times_ms)

        slot = hashes % self.layout.slots
        order = np.argsort(slot, kind="stable")
        in_order = slot[order]
        numbers = first + order
        opens = np.empty(count, dtype=np.bool_)  # the first of the batch in its slot
        opens[0] = True
        np.not_equal(in_order[1:], in_order[:-1], out=opens[1:])
        previous = np.empty(count, dtype=np.int64)
        previous[1:] = numbers[:-1]
        newest = slots[in_order[opens]]
        previous[opens] = np.where((newest > 0) & (newest < first), newest, 0)

        entries = np.empty(count, dtype=ENTRY_DTYPE)
        entries["key_hash"] = hashes
        entries["physical_offset"] = offsets
        entries["seconds"] = np.clip(seconds, 0, MAX_SECONDS)
        entries["previous"][order] = previous
        self._handles.write(self._name, entries.tobytes(), self.layout.entry_position(first))

        closes = np.roll(opens, -1)  # the last of the batch in its slot
        slots[in_order[closes]] = numbers[closes]
        pages[in_order // _PAGE_SLOTS] = True
        if self.empty:
            self.begin_ms, self.begin_offset = begin_ms, int(offsets[0])
        self.slots_used += int(np.count_nonzero(previous[opens] == 0))
        self.end_ms, self.end_offset = int(times_ms[-1]), int(offsets[-1])
        self.next_entry = first + count
        self._changed = True

    def _slots_for_writing(self) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        if self._slots is None or self._dirty_pages is None:
            return self._open_slots(self._read_slots().astype(np.int32))
        return self._slots, self._dirty_pages

    def _open_slots(
        self, slots: npt.NDArray[np.int32]
    ) -> tuple[npt.NDArray[np.int32], npt.NDArray[np.bool_]]:
        self._slots = slots
        self._dirty_pages = np.zeros(-(-self.layout.slots // _PAGE_SLOTS), dtype=np.bool_)
        return self._slots, self._dirty_pages

    def _read_slots(self) -> npt.NDArray[np.int32]:
        data = self._handles.read(self._name, self.layout.slots * SLOT_SIZE, HEADER_SIZE)
        return np.frombuffer(data, dtype=SLOT_DTYPE)

    def write_back(self, *, seal: bool = False) -> None:
        """Write slots and header to the file; durable after the next sync of the handles. `seal`
        also frees the memory of the slots: the file takes no more entries."""
        if self._slots is not None and self._dirty_pages is not None:
            dirty = np.flatnonzero(self._dirty_pages)
            breaks = np.flatnonzero(np.diff(dirty) != 1) + 1
            edges = [0, *breaks.tolist(), len(dirty)]
            for begin, end in pairwise(edges):
                if begin == end:
                    continue
                first = int(dirty[begin]) * _PAGE_SLOTS
                last = (int(dirty[end - 1]) + 1) * _PAGE_SLOTS
                data = self._slots[first:last].astype(SLOT_DTYPE).tobytes()
                self._handles.write(self._name, data, self.layout.slot_position(first))
            self._dirty_pages[:] = False
        if self._changed:
            times, offsets = (self.begin_ms, self.end_ms), (self.begin_offset, self.end_offset)
            header = HEADER.pack(*times, *offsets, self.slots_used, self.next_entry)
            self._handles.write(self._name, header, 0)
            self._changed = False
        if seal:
            self._slots = self._dirty_pages = None

    # --- reading ---------------------------------------------------------------------------

    def candidates(self, key_hash: int, begin_ms: int, end_ms: int) -> Iterator[int]:
        """Physical offsets of entries with this hash that may be in this time range, inclusive;
        newest first. Only the record shows whether the key matches (H34).

        Times of entries are in whole seconds, so entries just outside the range are included.
        """
        number, limit = self._newest(key_hash % self.layout.slots)
        while 0 < number < limit:
            data = self._handles.read(self._name, ENTRY_SIZE, self.layout.entry_position(number))
            found_hash, physical_offset, seconds, previous = ENTRY.unpack(data)
            if found_hash == key_hash:
                earliest, latest = self._times(number, seconds)
                if (latest is None or latest >= begin_ms) and (
                    earliest is None or earliest <= end_ms
                ):
                    yield physical_offset
            # A chain only leads back; anything else is damage, and could be a loop.
            limit, number = number, previous

    def _times(self, number: int, seconds: int) -> tuple[int | None, int | None]:
        """Lower and upper bound of an entry's store time, ms; None if unknown."""
        if number == 1 or not 0 <= seconds < MAX_SECONDS:
            # The original counts the first entry of a file from the file before (H23).
            return None, None
        earliest = self.begin_ms + seconds * 1000
        # 0 is also stored for a record with an earlier time than the first one of the file.
        return (earliest if seconds else None), earliest + 999

    def _newest(self, slot: int) -> tuple[int, int]:
        """Number of the newest entry of a slot, and an upper bound for valid numbers."""
        slots = self._slots
        if slots is not None:
            # Not the number of entries: the writer sets slots first. Their entries are written.
            return int(slots[slot]), self.layout.entries
        data = self._handles.read(self._name, SLOT_SIZE, self.layout.slot_position(slot))
        return int.from_bytes(data, "big", signed=True), self.next_entry

    def entries_at(self, physical_offset: int) -> int:
        """How many of the last entries belong to the record at this offset."""
        count = 0
        for number in range(self.next_entry - 1, 0, -1):
            data = self._handles.read(self._name, ENTRY_SIZE, self.layout.entry_position(number))
            if ENTRY.unpack(data)[1] != physical_offset:
                break
            count += 1
        return count

    # --- cutting ---------------------------------------------------------------------------

    def cut(
        self, physical_offset: int, floor: int, store_time_ms: Callable[[int], int | None]
    ) -> None:
        """Remove entries at or above `physical_offset`, and rebuild the slots.

        Entries that descend, or are below `floor`, are from a torn write; they are removed with all
        that follow.
        """
        kept, last, seconds = 1, floor, 0
        for first, entries in self._entries():
            offsets = entries["physical_offset"].astype(np.int64)
            before = np.maximum.accumulate(np.concatenate(([last], offsets)))[:-1]
            bad = np.flatnonzero((offsets >= physical_offset) | (offsets < before))
            good = int(bad[0]) if bad.size else len(entries)
            kept = first + good
            if good:
                last, seconds = int(offsets[good - 1]), int(entries["seconds"][good - 1])
            if bad.size:
                break
        if kept > 1 and (kept < self.next_entry or last != self.end_offset):
            # Without the record: the latest time that the whole seconds allow.
            ends_ms = store_time_ms(last)
            guess = min(self.end_ms, self.begin_ms + seconds * 1000 + 999)
            self.end_ms, self.end_offset = (guess if ends_ms is None else ends_ms), last
        self.next_entry = kept
        self._handles.clear(self._name, self.layout.entry_position(kept), self.layout.file_bytes)
        self._rebuild_slots()

    def _entries(self) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
        for first in range(1, self.next_entry, _SCAN_ENTRIES):
            count = min(_SCAN_ENTRIES, self.next_entry - first)
            position = self.layout.entry_position(first)
            data = self._handles.read(self._name, count * ENTRY_SIZE, position)
            yield first, np.frombuffer(data, dtype=ENTRY_DTYPE)

    def _rebuild_slots(self) -> None:
        """Compute the slots that inserting the entries one by one would give."""
        slots = np.zeros(self.layout.slots, dtype=np.int32)
        for first, entries in self._entries():
            # If a slot occurs more than once, the last assignment stays: the newest entry.
            slots[entries["key_hash"] % self.layout.slots] = np.arange(first, first + len(entries))
        differs = np.flatnonzero(slots != self._read_slots())
        _, pages = self._open_slots(slots)
        pages[differs // _PAGE_SLOTS] = True
        self.slots_used = int(np.count_nonzero(slots))
        self._changed = True
