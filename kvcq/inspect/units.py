"""Checks the units in order: physical offsets must ascend, and bounds must match at the ends."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from kvcq.inspect.findings import Kind
from kvcq.inspect.rows import BAD_ROW
from kvcq.tables import (
    BOUNDS,
    OFFSET_BYTES,
    ROCKETMQ_UNIT_SIZE,
    UNIT_DTYPE,
    UNIT_KEY_BYTES,
    UNIT_SIZE,
    UNITS,
    expiry_stamp,
    expiry_stamps,
    max_key,
    unit_prefix,
    units_at,
    unpack_max,
    unpack_unit,
    unpack_unit_key,
)
from store.consume_queue import LastUnit

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvcq.engine import Pair
    from kvcq.inspect.rows import Rows
    from kvcq.tables import UnitColumns

_ENDS = 1024


class UnitOrder:
    """Takes pages of units one after the other. Memory: a page, and the ends of some queues."""

    def __init__(self, lookup: Rows) -> None:
        self._lookup = lookup
        self._start = lookup.log.start_offset
        # The last unit read of a queue whose record is in the log, and those of earlier queues.
        self._last: LastUnit | None = None
        self._ends: list[LastUnit] = []

    def page(self, rows: list[Pair]) -> UnitColumns:
        """Check the next rows; returns the units that need a record in the log."""
        rows, stored = plain_units(rows, self._lookup.bad_row)
        units = units_at([key for key, _ in rows], stored)
        wanted = self._lookup.in_question(units.physical_offset)
        if len(units):
            self._in_order(units)
        stamps = stored["expiry_stamp"], expiry_stamps(stored["store_time_ms"].astype(np.int64))
        for index in np.flatnonzero(wanted & (stamps[0] != stamps[1])).tolist():
            found, proper = (f"expiry stamp {each[index]}" for each in stamps)
            self._tell(Kind.WRONG_UNIT, units, index, proper, found)
        for index in self._lookup.damaged_rows(units.physical_offset):
            self._lookup.log.name_damage(int(units.physical_offset[index]), *_place(units, index))
        return units.where(wanted)

    def finish(self) -> None:
        """Call after the last page."""
        self._close_queue()
        self._look_at_ends()

    def _tell(
        self, kind: Kind, units: UnitColumns, index: int, expected: str, found: object
    ) -> None:
        topic, queue_id, queue_offset = _place(units, index)
        self._lookup.tell(
            kind,
            UNITS,
            expected,
            found,
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=int(units.physical_offset[index]),
        )

    # --- order -----------------------------------------------------------------------------

    def _in_order(self, units: UnitColumns) -> None:
        """Runs of one queue each; a run that is in order as a whole needs no closer look."""
        queue_offsets, offsets = units.queue_offset, units.physical_offset
        changes = np.diff(units.queue_index) != 0
        starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
        odd = offsets < self._start
        odd[1:] |= ~changes & ((np.diff(queue_offsets) != 1) | (np.diff(offsets) <= 0))
        are_odd = np.logical_or.reduceat(odd, starts).tolist()
        ends = [*starts[1:], len(units)]
        for start, end, is_odd in zip(starts, ends, are_odd, strict=True):
            queue = units.queues[int(units.queue_index[start])]
            last = self._last
            if last is not None and last[:2] != queue:
                self._close_queue()
                last = None
            follows = last is None or (
                queue_offsets[start] == last.queue_offset + 1
                and offsets[start] > last.physical_offset
            )
            if follows and not is_odd:
                place = int(queue_offsets[end - 1]), int(offsets[end - 1])
                self._last = LastUnit(*queue, *place)
            else:
                self._one_by_one(queue, units, range(start, end))

    def _one_by_one(self, queue: tuple[str, int], units: UnitColumns, indexes: range) -> None:
        last = self._last
        for index in indexes:
            offset = int(units.physical_offset[index])
            if last is not None and offset <= last.physical_offset:
                wanted = f"above {last.physical_offset}"
                self._tell(Kind.FALLING_OFFSET, units, index, wanted, offset)
            if offset >= self._start:  # others have expired; compaction takes them in any order
                last = LastUnit(*queue, int(units.queue_offset[index]), offset)
        self._last = last

    # --- ends ------------------------------------------------------------------------------

    def _close_queue(self) -> None:
        if self._last is not None:
            self._ends.append(self._last)
            self._last = None
        if len(self._ends) >= _ENDS:
            self._look_at_ends()

    def _look_at_ends(self) -> None:
        """Compare the last units of these queues with their bounds."""
        ends, self._ends = self._ends, []
        rows = self._lookup.engine.multi_get(BOUNDS, [max_key(*end[:2]) for end in ends])
        for end, row in zip(ends, rows, strict=True):
            there = (end.physical_offset, end.queue_offset)
            if row is None:
                kind, expected, found = Kind.MISSING_BOUND, f"{there}", "no row"
            elif len(row) == 16 and unpack_max(row) != there:
                kind, expected = Kind.WRONG_BOUND, f"the last unit, {there}"
                found = f"{unpack_max(row)}"
            else:
                continue
            self._lookup.tell(kind, BOUNDS, expected, found, **end._asdict())


def plain_units(
    rows: list[Pair], bad_row: Callable[[str, bytes, bytes], None]
) -> tuple[list[Pair], npt.NDArray[np.void]]:
    """The rows that are units, with values in our 32-byte form; RocketMQ's 28 bytes are completed.

    The array has a unit for each of them. `bad_row` is called for the others.
    """
    values = [value for _, value in rows]
    if set(map(len, values)) == {UNIT_SIZE}:
        units = np.frombuffer(b"".join(values), UNIT_DTYPE)
        if (
            all(map(_is_prefix, {key[:-OFFSET_BYTES] for key, _ in rows}))
            and (units["physical_offset"] >= 0).all()
            and (units["record_size"] > 0).all()
        ):
            return rows, units
    plain: list[Pair] = []
    for key, value in rows:
        try:
            unit = unpack_unit(value)
        except BAD_ROW:
            unit = None
        if unit is None or not _is_prefix(key[:-OFFSET_BYTES]):
            bad_row(UNITS, key, value)
        elif len(value) == ROCKETMQ_UNIT_SIZE:
            plain.append((key, value + expiry_stamp(unit.store_time_ms)))
        else:
            plain.append((key, value))
    return plain, np.frombuffer(b"".join([value for _, value in plain]), UNIT_DTYPE)


@lru_cache(maxsize=4096)
def _is_prefix(prefix: bytes) -> bool:
    """Whether it is what the keys of a queue's units begin with."""
    if len(prefix) + OFFSET_BYTES < UNIT_KEY_BYTES:
        return False
    try:
        topic, queue_id, _ = unpack_unit_key(prefix + bytes(OFFSET_BYTES))
        return unit_prefix(topic, queue_id) == prefix
    except BAD_ROW:
        return False


def _place(units: UnitColumns, index: int) -> tuple[str, int, int]:
    queue = units.queues[int(units.queue_index[index])]
    return *queue, int(units.queue_offset[index])
