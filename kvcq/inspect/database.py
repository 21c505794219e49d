"""A side in RocksDB: compares the rows of the derived database with the log, both ways.

Sums of hashes prove that each record has its rows and each row its record. Only where they differ,
every row is compared with its record and every record with its rows. Memory: one page of rows,
nothing per queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from kvcq.errors import KvcqError
from kvcq.inspect.bounds import look_at_bounds
from kvcq.inspect.expected import ExpectedRows
from kvcq.inspect.findings import Kind, size_text
from kvcq.inspect.lookup import is_at_place
from kvcq.inspect.rows import BAD_ROW, Rows
from kvcq.inspect.sums import hashes_of
from kvcq.inspect.units import UnitOrder, plain_units
from kvcq.tables import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    OFFSET_BYTES,
    ROCKETMQ_UNIT_SIZE,
    TIME_AND_OFFSET_BYTES,
    UNITS,
    expiry_stamp,
    unpack_index_key,
    unpack_unit,
    unpack_unit_key,
)
from store.format import is_mark

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq.engine import KvEngine, Pair
    from kvcq.inspect.log import LogCheck
    from kvcq.inspect.side import OpenedStore, WalkAgain
    from kvcq.inspect.sums import RowSums
    from store.consume_queue import DispatchRequest


class DatabaseSide:
    """A database: see Side."""

    def __init__(
        self,
        engine: KvEngine,
        opened: OpenedStore,
        *,
        may_lag: bool = False,
    ) -> None:
        """`may_lag`: it is being filled, so it may be behind the log even after a clean shutdown.
        Raises EngineFailedError."""
        self._engine = engine
        self._opened = opened
        self._expected = ExpectedRows(engine, opened.admission)
        self._ending = opened.ends_behind(self._expected.checkpoint)
        self._expected.leave_out(self._ending)
        self._all_dispatched = opened.was_closed and not may_lag
        self._checked: RowCheck | None = None

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        self._expected.take(requests)

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        opened = self._opened
        lookup = Rows(
            self._engine,
            opened.segments,
            log,
            self._expected.checkpoint,
            opened.admission,
            self._ending,
            opened.findings,
            opened.progress,
        )
        checked = RowCheck(lookup, self._expected, walk_again)
        try:
            checked.run(was_closed=opened.was_closed, all_dispatched=self._all_dispatched)
            self._checked = checked
        except KvcqError as error:
            lookup.tell(Kind.DATABASE, "kvcq", "rows that can be read", error)

    def is_left_out(self, number: int) -> bool:
        return self._checked is not None and self._checked.is_left_out(number)

    @property
    def counts(self) -> tuple[int, int]:
        return (0, 0) if self._checked is None else self._checked.counts


class RowCheck:
    """One check of a database against a log that was walked."""

    def __init__(self, lookup: Rows, expected: ExpectedRows, walk_again: WalkAgain) -> None:
        self._lookup = lookup
        self._engine = lookup.engine
        self._log = lookup.log
        self._admission = lookup.admission
        self._tell = lookup.tell
        self._expected = expected
        self._walk_again = walk_again
        self._checkpoint = expected.checkpoint
        self._unit_count = 0
        self._index_count = 0

    @property
    def counts(self) -> tuple[int, int]:
        """Number of units and index rows checked."""
        return self._unit_count, self._index_count

    def is_left_out(self, number: int) -> bool:
        return self._lookup.is_left_out(number)

    def run(self, *, was_closed: bool, all_dispatched: bool) -> None:
        """Raises EngineFailedError if the database cannot be read.

        `all_dispatched`: whether the database must have the whole log.
        """
        bad = self._expected.bad_checkpoint
        if bad is not None:
            self._lookup.bad_row(BOUNDS, DISPATCHED_KEY, bad)
            self._checkpoint = self._log.end_offset
        self._lookup.checkpoint = self._checkpoint
        self._look_at_checkpoint(was_closed=was_closed, all_dispatched=all_dispatched)
        self._sum_units()
        look_at_bounds(self._lookup)
        self._sum_index()
        self._check_candidates()

    # --- the dispatch point ----------------------------------------------------------------

    def _look_at_checkpoint(self, *, was_closed: bool, all_dispatched: bool) -> None:
        end = self._log.end_offset
        ahead = self._checkpoint - end
        if ahead > 0:
            # After a power loss the database may be ahead, but within the existing files; an
            # opening replaces it then. Otherwise it proves that the end of the log is missing.
            is_missing = was_closed or self._checkpoint > self._log.files_end
            self._tell(
                Kind.AHEAD_OF_LOG,
                BOUNDS,
                f"a dispatch point up to the log's end, {end}",
                f"{self._checkpoint}: the log was longer, and its end is missing"
                if is_missing
                else self._checkpoint,
                physical_offset=self._checkpoint,
                is_fault=is_missing,
                note=f"The queues reach beyond the end of the log by {size_text(ahead)} (a power "
                "loss does that); the next start makes them again.",
            )
        elif ahead < 0 and self._checkpoint == 0:
            self._tell(
                Kind.UNDISPATCHED,
                BOUNDS,
                f"all records dispatched, up to {end}",
                "none: opening dispatches them",
                physical_offset=0,
                note="There are no queues yet (a repair does that); the next start rebuilds them "
                f"from {size_text(end - self._log.start_offset)} of log.",
            )
        elif ahead < 0 and all_dispatched:
            self._tell(
                Kind.OLD_DATABASE,
                BOUNDS,
                f"all records dispatched, up to {end}, as when the store was closed",
                f"a dispatch point of {self._checkpoint}: the database is an older copy. Opening "
                "brings it up to date",
                physical_offset=self._checkpoint,
            )
        elif ahead < 0:
            self._tell(
                Kind.UNDISPATCHED,
                BOUNDS,
                f"all records dispatched, up to {end}",
                f"a dispatch point of {self._checkpoint}: opening replays the rest",
                physical_offset=self._checkpoint,
                note=f"The last {size_text(-ahead)} of the log are not in the queues yet (a kill "
                "does that); the next start puts them in.",
            )

    # --- the proof --------------------------------------------------------------------------

    def _sum_units(self) -> None:
        order = UnitOrder(self._lookup)
        sums = self._expected.sums[UNITS]
        for rows in self._lookup.pages(UNITS, "rows of default", self._expected.counts[UNITS]):
            self._unit_count += len(rows)
            if rows:
                sums.add_found(hashes_of(order.page(rows)))
        order.finish()

    def _sum_index(self) -> None:
        sums = self._expected.sums[INDEX]
        for rows in self._lookup.pages(INDEX, "rows of index", self._expected.counts[INDEX]):
            self._index_count += len(rows)
            sums.add_found(hashes_of(self._index_in_question(rows, tell=True)))

    def _index_in_question(self, rows: list[Pair], *, tell: bool) -> list[Pair]:
        """The rows that need a record in the log. With `tell`, impossible rows are reported."""
        if min((len(key) for key, _ in rows), default=0) < TIME_AND_OFFSET_BYTES:
            rows = [row for row in rows if self._is_index_row(row, tell=tell)]
        if not rows:
            return []
        ends = b"".join([key[-OFFSET_BYTES:] for key, _ in rows])
        offsets = np.frombuffer(ends, ">i8").astype(np.int64)
        wanted = self._lookup.in_question(offsets)
        if wanted.all():
            return rows
        if tell:
            for index in np.flatnonzero(~wanted).tolist():
                self._is_index_row(rows[index], tell=True)
        return [rows[index] for index in np.flatnonzero(wanted).tolist()]

    def _is_index_row(self, row: Pair, *, tell: bool) -> bool:
        try:
            unpack_index_key(row[0])
        except BAD_ROW:
            if tell:
                self._lookup.bad_row(INDEX, *row)
            return False
        return True

    # --- where it fails ----------------------------------------------------------------------

    def _check_candidates(self) -> None:
        """Check rows first, since rows without a record explain a difference; then find missing
        rows."""
        units, index = self._expected.sums[UNITS], self._expected.sums[INDEX]
        if units.differ:
            for rows in self._lookup.pages(UNITS, "rows to look at again", self._unit_count):
                self._ask_units(rows)
        if index.differ:
            for rows in self._lookup.pages(INDEX, "keys to look at again", self._index_count):
                asked = self._index_in_question(rows, tell=False)
                _report_wrong_rows(index, asked, self._is_wrong_index_row)
        if units.differ or index.differ:
            self._walk_again(self._find_missing)

    def _ask_units(self, rows: list[Pair]) -> None:
        sums = self._expected.sums[UNITS]
        rows, units = plain_units(rows, _already_reported)
        if not rows:
            return
        wanted = self._lookup.in_question(units["physical_offset"].astype(np.int64))
        asked = [rows[index] for index in np.flatnonzero(wanted).tolist()]
        _report_wrong_rows(sums, asked, self._is_wrong_unit)

    def _is_wrong_unit(self, row: Pair) -> bool:
        """Whether its record gives another unit, or none; reports that."""
        key, value = row
        topic, queue_id, queue_offset = unpack_unit_key(key)
        unit = unpack_unit(value)
        kind = Kind.WRONG_UNIT
        request = self._lookup.record_at(unit.physical_offset)
        if unit.physical_offset >= self._checkpoint:
            kind, expected = Kind.BEYOND_CHECKPOINT, f"no row above {self._checkpoint}"
        elif request is None:
            expected = "a record there"
        elif not is_at_place(request, topic, queue_id, queue_offset):
            expected = f"the unit of {request.topic!r} queue {request.queue_id}"
            expected += f" offset {request.queue_offset}"
        elif unit != request[3:7]:
            expected = f"{request[3:7]}"
        elif value[-4:] != expiry_stamp(unit.store_time_ms):
            expected = f"the expiry stamp {expiry_stamp(unit.store_time_ms).hex()}"
        elif not self._admission.is_live(topic, unit.physical_offset):
            kind, expected = Kind.DEAD_ROW, "no row"
        else:
            return False
        self._tell(
            kind,
            UNITS,
            expected,
            f"{unit} {value[ROCKETMQ_UNIT_SIZE:].hex()}",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=unit.physical_offset,
        )
        return True

    def _is_wrong_index_row(self, row: Pair) -> bool:
        """Whether its record does not have that key; reports that."""
        key, value = row
        try:
            topic, message_key, time_ms, offset = unpack_index_key(key)
        except BAD_ROW:
            self._lookup.bad_row(INDEX, key, value)
            return True
        request = self._lookup.record_at(offset)
        kind = Kind.WRONG_INDEX_ROW
        if offset >= self._checkpoint:
            kind, expected = Kind.BEYOND_CHECKPOINT, f"no row above {self._checkpoint}"
        elif request is None:
            expected = "a record there"
        elif message_key not in request.keys or topic != (
            "" if is_mark(message_key) else request.topic
        ):
            expected = f"a key of its record, {request.keys} of {request.topic!r}"
        elif request.store_time_ms != time_ms or value != expiry_stamp(time_ms):
            expected = f"{request.store_time_ms} ms, {expiry_stamp(request.store_time_ms).hex()}"
        elif topic and not self._admission.is_live(topic, offset):
            kind, expected = Kind.DEAD_ROW, "no row"
        else:
            return False
        self._tell(
            kind,
            INDEX,
            expected,
            f"key {message_key!r} at {time_ms} ms, {value.hex()}",
            topic=topic,
            physical_offset=offset,
        )
        return True

    def _find_missing(self, requests: Sequence[DispatchRequest]) -> None:
        """Find missing rows. Rows that differ were found when they were compared with their
        records."""
        for family, rows in self._expected.rows(requests).items():
            candidates = _candidates(self._expected.sums[family], rows)
            if not candidates:
                continue
            there = self._engine.multi_get(family, [key for key, _ in candidates])
            for (key, value), found in zip(candidates, there, strict=True):
                if found is not None:
                    continue
                if family == UNITS:
                    self._missing_unit(key, value)
                else:
                    self._missing_index_row(key)

    def _missing_unit(self, key: bytes, value: bytes) -> None:
        topic, queue_id, queue_offset = unpack_unit_key(key)
        unit = unpack_unit(value)
        self._tell(
            Kind.MISSING_UNIT,
            UNITS,
            unit,
            "no row",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=unit.physical_offset,
        )

    def _missing_index_row(self, key: bytes) -> None:
        topic, message_key, time_ms, offset = unpack_index_key(key)
        self._tell(
            Kind.MISSING_INDEX_ROW,
            INDEX,
            f"key {message_key!r} at {time_ms} ms",
            "no row",
            topic=topic,
            physical_offset=offset,
        )


def _candidates(sums: RowSums, rows: list[Pair]) -> list[Pair]:
    return [rows[index] for index in sums.candidates(hashes_of(rows)).tolist()]


def _report_wrong_rows(sums: RowSums, rows: list[Pair], is_wrong: Callable[[Pair], bool]) -> None:
    """Report wrong rows and count them as expected, since they explain a difference."""
    sums.add_expected(hashes_of([row for row in _candidates(sums, rows) if is_wrong(row)]))


def _already_reported(_family: str, _key: bytes, _value: bytes) -> None:
    """Ignores impossible rows, which were reported when first seen."""
