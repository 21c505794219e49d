"""Checks the units in order: physical offsets must ascend, and bounds must match at the ends."""

from __future__ import annotations

import operator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

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
    max_key,
    unit_prefix,
    unpack_max,
    unpack_unit,
    unpack_unit_key,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvcq.engine import Pair
    from kvcq.inspect.rows import Rows

_ENDS = 1024


class _LastUnit(NamedTuple):
    """The last unit read of a queue; its record is in the log."""

    prefix: bytes
    queue_offset: int
    physical_offset: int


class UnitOrder:
    """Takes pages of units one after the other. Memory: a page, and the ends of some queues."""

    def __init__(self, lookup: Rows) -> None:
        self._lookup = lookup
        self._start = lookup.log.start_offset
        self._last: _LastUnit | None = None
        self._ends: list[_LastUnit] = []

    def page(self, rows: list[Pair]) -> list[Pair]:
        """Check the next rows; returns those that need a record in the log."""
        rows, units = plain_units(rows, self._lookup.bad_row)
        if not rows:
            return []
        keys = [key for key, _ in rows]
        numbers = b"".join([key[-OFFSET_BYTES:] for key in keys])
        queue_offsets = np.frombuffer(numbers, ">i8").astype(np.int64)
        offsets = units["physical_offset"].astype(np.int64)
        self._in_order([key[:-OFFSET_BYTES] for key in keys], queue_offsets, offsets)
        for index in self._lookup.damaged_rows(offsets):
            topic, queue_id, queue_offset = unpack_unit_key(keys[index])
            self._lookup.log.name_damage(int(offsets[index]), topic, queue_id, queue_offset)
        wanted = self._lookup.in_question(offsets)
        if wanted.all():
            return rows
        return [rows[index] for index in np.flatnonzero(wanted).tolist()]

    def finish(self) -> None:
        """Call after the last page."""
        self._close_queue()
        self._look_at_ends()

    # --- order -----------------------------------------------------------------------------

    def _in_order(
        self,
        prefixes: list[bytes],
        queue_offsets: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> None:
        """Runs of one queue each; a run that is in order as a whole needs no closer look."""
        changes = np.fromiter(map(operator.ne, prefixes, prefixes[1:]), np.bool_, len(prefixes) - 1)
        starts = [0, *(np.flatnonzero(changes) + 1).tolist()]
        odd = offsets < self._start
        odd[1:] |= ~changes & ((np.diff(queue_offsets) != 1) | (np.diff(offsets) <= 0))
        are_odd = np.logical_or.reduceat(odd, starts).tolist()
        ends = [*starts[1:], len(prefixes)]
        for start, end, is_odd in zip(starts, ends, are_odd, strict=True):
            prefix = prefixes[start]
            last = self._last
            if last is not None and last.prefix != prefix:
                self._close_queue()
                last = None
            follows = last is None or (
                queue_offsets[start] == last.queue_offset + 1
                and offsets[start] > last.physical_offset
            )
            if follows and not is_odd:
                self._last = _LastUnit(prefix, int(queue_offsets[end - 1]), int(offsets[end - 1]))
            else:
                self._one_by_one(prefix, queue_offsets[start:end], offsets[start:end])

    def _one_by_one(
        self,
        prefix: bytes,
        queue_offsets: npt.NDArray[np.int64],
        offsets: npt.NDArray[np.int64],
    ) -> None:
        last = self._last
        for queue_offset, offset in zip(queue_offsets.tolist(), offsets.tolist(), strict=True):
            if last is not None:
                self._falls(last, queue_offset, offset)
            if offset < self._start:  # expired; compaction takes such units in any order
                continue
            last = _LastUnit(prefix, queue_offset, offset)
        self._last = last

    def _falls(self, last: _LastUnit, queue_offset: int, offset: int) -> None:
        if offset <= last.physical_offset:
            topic, queue_id = _queue_of(last.prefix) or ("", 0)
            self._lookup.tell(
                Kind.FALLING_OFFSET,
                UNITS,
                f"above {last.physical_offset}",
                offset,
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=offset,
            )

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
        queues = [_queue_of(end.prefix) or ("", 0) for end in ends]
        rows = self._lookup.engine.multi_get(BOUNDS, [max_key(*queue) for queue in queues])
        for end, (topic, queue_id), row in zip(ends, queues, rows, strict=True):
            there = (end.physical_offset, end.queue_offset)
            if row is None:
                kind, expected, found = Kind.MISSING_BOUND, f"{there}", "no row"
            elif len(row) == 16 and unpack_max(row) != there:
                kind, expected = Kind.WRONG_BOUND, f"the last unit, {there}"
                found = f"{unpack_max(row)}"
            else:
                continue
            self._lookup.tell(
                kind,
                BOUNDS,
                expected,
                found,
                topic=topic,
                queue_id=queue_id,
                queue_offset=end.queue_offset,
                physical_offset=end.physical_offset,
            )


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
            all(map(_queue_of, {key[:-OFFSET_BYTES] for key, _ in rows}))
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
        if unit is None or _queue_of(key[:-OFFSET_BYTES]) is None:
            bad_row(UNITS, key, value)
        elif len(value) == ROCKETMQ_UNIT_SIZE:
            plain.append((key, value + expiry_stamp(unit.store_time_ms)))
        else:
            plain.append((key, value))
    return plain, np.frombuffer(b"".join([value for _, value in plain]), UNIT_DTYPE)


@lru_cache(maxsize=4096)
def _queue_of(prefix: bytes) -> tuple[str, int] | None:
    """Topic and queue of units with this prefix; None if it is not such a prefix."""
    if len(prefix) + OFFSET_BYTES < UNIT_KEY_BYTES:
        return None
    try:
        topic, queue_id, _ = unpack_unit_key(prefix + bytes(OFFSET_BYTES))
        return (topic, queue_id) if unit_prefix(topic, queue_id) == prefix else None
    except BAD_ROW:
        return None
