"""A side in RocksDB: compares the rows of the derived database with the log, both ways.

Units: see comparison.py. Index rows are compared in the same way, as whole rows. Memory: one page
of rows, nothing per queue.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.errors import KvcqError
from kvcq.inspect.bounds import look_at_bounds
from kvcq.inspect.comparison import Comparison
from kvcq.inspect.findings import Kind, size_text
from kvcq.inspect.lookup import faults_of
from kvcq.inspect.rows import BAD_ROW, Rows
from kvcq.inspect.sums import RowSums, hashes_of
from kvcq.inspect.units import UnitOrder, plain_units
from kvcq.tables import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    OFFSET_BYTES,
    TIME_AND_OFFSET_BYTES,
    UNITS,
    expiry_stamp,
    index_rows,
    unit_key,
    units_at,
    units_of_requests,
    unpack_index_key,
)
from store.format import is_mark
from store.topics import Admission

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.engine import KvEngine, Pair
    from kvcq.inspect.comparison import Queue
    from kvcq.inspect.log import LogCheck
    from kvcq.inspect.side import OpenedStore, WalkAgain
    from kvcq.tables import Unit, UnitColumns
    from store.consume_queue import DispatchRequest

_NOWHERE = 1 << 62


class DatabaseSide:
    """A database: see Side and UnitSide."""

    def __init__(self, engine: KvEngine, opened: OpenedStore, *, may_lag: bool) -> None:
        """`may_lag`: it is being filled, so it may be behind the log even after a clean shutdown.
        Raises EngineFailedError."""
        self._engine = engine
        self._opened = opened
        row = engine.get(BOUNDS, DISPATCHED_KEY)
        checkpoint = int.from_bytes(row or b"", "big", signed=True)
        #: The row of the dispatch point if it is invalid.
        self._bad_checkpoint = (
            row if row is not None and (len(row) != 8 or checkpoint < 0) else None
        )
        self._checkpoint = checkpoint if self._bad_checkpoint is None else _NOWHERE
        self._ending = opened.ends_behind(self._checkpoint)
        others = _Others(opened.admission, self._ending)
        self._admission = Admission(others, opened.admission.dead_light)
        self._all_dispatched = opened.was_closed and not may_lag
        self._units = Comparison(self, with_times=True)
        self._index = RowSums()
        self._unit_count = self._index_count = 0
        self._units_were_read = False
        self._is_checked = False

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        admitted = self._admit(requests)
        self._units.expect(units_of_requests(admitted))
        self._index.add_expected(hashes_of(index_rows(admitted)))

    def _admit(self, requests: Sequence[DispatchRequest]) -> Sequence[DispatchRequest]:
        """The live parts of the records that are dispatched."""
        if requests[-1].physical_offset >= self._checkpoint:
            requests = [each for each in requests if each.physical_offset < self._checkpoint]
        return self._admission.admit_all(requests)

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        self._lookup = Rows(
            self._engine, self._opened, log, self._checkpoint, self._admission, self._ending
        )
        self._tell = self._lookup.tell
        try:
            self._compare(log, walk_again)
            self._is_checked = True
        except KvcqError as error:
            self._tell(Kind.DATABASE, "kvcq", "rows that can be read", error)

    def is_left_out(self, number: int) -> bool:
        return self._is_checked and self._lookup.is_left_out(number)

    @property
    def counts(self) -> tuple[int, int]:
        return (self._unit_count, self._index_count) if self._is_checked else (0, 0)

    def _compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        if self._bad_checkpoint is not None:
            self._lookup.bad_row(BOUNDS, DISPATCHED_KEY, self._bad_checkpoint)
            self._checkpoint = self._lookup.checkpoint = log.end_offset
        self._look_at_checkpoint(log)
        self._units.read()
        look_at_bounds(self._lookup)
        self._sum_index()
        if self._index.differ:
            self._look_at_index_again()
        if self._units.differ or self._index.differ:
            walk_again(self._find_missing)
        if self._units.differ:
            self._units.find_wrong()

    # --- the dispatch point ----------------------------------------------------------------

    def _look_at_checkpoint(self, log: LogCheck) -> None:
        end = log.end_offset
        ahead = self._checkpoint - end
        if ahead > 0:
            # After a power loss the database may be ahead, but within the existing files; an
            # opening replaces it then. Otherwise it proves that the end of the log is missing.
            is_missing = self._opened.was_closed or self._checkpoint > log.files_end
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
                f"from {size_text(end - log.start_offset)} of log.",
            )
        elif ahead < 0 and self._all_dispatched:
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

    # --- units ------------------------------------------------------------------------------

    def units(self) -> Iterator[UnitColumns]:
        """See UnitSide. The first time their order is checked too."""
        if self._units_were_read:
            for rows in self._lookup.pages(UNITS, "rows to look at again", self._unit_count):
                plain, stored = plain_units(rows, _already_reported)
                units = units_at([key for key, _ in plain], stored)
                yield units.where(self._lookup.in_question(units.physical_offset))
            return
        self._units_were_read = True
        order = UnitOrder(self._lookup)
        for rows in self._lookup.pages(UNITS, "rows of default", self._units.expected):
            self._unit_count += len(rows)
            yield order.page(rows)
        order.finish()

    def places_in(self, queue: Queue, offsets: Sequence[int]) -> set[int]:
        rows = self._engine.multi_get(UNITS, [unit_key(*queue, offset) for offset in offsets])
        return {offset for offset, row in zip(offsets, rows, strict=True) if row is not None}

    def is_missing(self, queue: Queue, offset: int, unit: Unit) -> None:
        self._tell_unit(Kind.MISSING_UNIT, queue, offset, unit, str(unit), "no row")

    def judge(self, queue: Queue, offset: int, unit: Unit) -> None:
        if unit[0] >= self._checkpoint:
            expected = f"no row above {self._checkpoint}"
            self._tell_unit(Kind.BEYOND_CHECKPOINT, queue, offset, unit, expected, str(unit))
            return
        record = self._lookup.record_at(unit[0])
        for fault in faults_of(record, queue, offset, unit, self._admission.is_live):
            self._tell_unit(fault.kind, queue, offset, unit, *fault.in_words(unit))

    def _tell_unit(
        self, kind: Kind, queue: Queue, offset: int, unit: Unit, expected: str, found: str
    ) -> None:
        self._tell(
            kind,
            UNITS,
            expected,
            found,
            topic=queue[0],
            queue_id=queue[1],
            queue_offset=offset,
            physical_offset=unit[0],
        )

    # --- index rows -------------------------------------------------------------------------

    def _sum_index(self) -> None:
        for rows in self._lookup.pages(INDEX, "rows of index", self._index.expected):
            self._index_count += len(rows)
            self._index.add_found(hashes_of(self._index_in_question(rows, tell=True)))

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

    def _look_at_index_again(self) -> None:
        """Report wrong rows, and count them as expected, since they explain a difference."""
        for rows in self._lookup.pages(INDEX, "keys to look at again", self._index_count):
            candidates = self._candidates(self._index_in_question(rows, tell=False))
            wrong = [row for row in candidates if self._is_wrong_index_row(row)]
            self._index.add_expected(hashes_of(wrong))

    def _candidates(self, rows: list[Pair]) -> list[Pair]:
        return [rows[index] for index in self._index.candidates(hashes_of(rows)).tolist()]

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
        """Find missing rows. Index rows that differ were found when they were compared with their
        records."""
        admitted = self._admit(requests)
        self._units.find_missing(units_of_requests(admitted))
        candidates = self._candidates(index_rows(admitted))
        there = self._engine.multi_get(INDEX, [key for key, _ in candidates]) if candidates else []
        for (key, _), row in zip(candidates, there, strict=True):
            if row is None:
                topic, message_key, time_ms, offset = unpack_index_key(key)
                self._tell(
                    Kind.MISSING_INDEX_ROW,
                    INDEX,
                    f"key {message_key!r} at {time_ms} ms",
                    "no row",
                    topic=topic,
                    physical_offset=offset,
                )


class _Others(NamedTuple):
    """Topics without those that the next opening deletes; light queues of these are dead anyway."""

    admission: Admission
    ending: frozenset[str]

    def get(self, name: str, /) -> int | None:
        return None if name in self.ending else self.admission.topics.get(name)


def _already_reported(_family: str, _key: bytes, _value: bytes) -> None:
    """Ignores impossible rows, which were reported when first seen."""
