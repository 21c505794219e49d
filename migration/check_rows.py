"""Holds the rows of the derived database against the log, both ways.

Every record is asked for its rows, every row for its record: so they stand one to one, without
sorting either side. Memory: one batch of records, one page of rows, nothing for each queue.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kvcq.dispatch_batch import DispatchBatchBuilder
from kvcq.errors import CorruptValueError
from kvcq.keys import (
    BOUNDS,
    CHECKPOINT_KEY,
    DELETIONS_KEY,
    INDEX,
    UNITS,
    max_key,
    pack_i64,
    unit_prefix,
    unpack_bounds_key,
    unpack_index_key,
    unpack_unit_key,
)
from kvcq.values import UNIT_SIZE, expiry_stamp, unpack_max, unpack_unit
from migration.check_findings import Kind
from store.errors import CorruptRecordError
from store.record import Found, check_record, dispatch_request
from store.units import LMQ_PREFIX

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from kvcq.engine import KvEngine, Pair
    from migration.check_findings import Findings
    from migration.check_log import LogWalk
    from store.consume_queue import DispatchRequest
    from store.segment_set import SegmentSet
    from store.topics import Topics

_PAGE_ROWS = 4096
_BATCH = 1024
_KEYS_END = b"\xff" * 8
_BAD_ROW = (CorruptValueError, ValueError, struct.error)


class _LastUnit(NamedTuple):
    """Where a queue stands while its units are read in order."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int


class RowCheck:
    """One check of one database against one log."""

    def __init__(
        self,
        engine: KvEngine,
        segments: SegmentSet,
        log: LogWalk,
        topics: Topics,
        pending: frozenset[str],
        findings: Findings,
        progress: Callable[[str, float], None],
    ) -> None:
        """`pending`: topics whose deletion the next opening finishes."""
        self._engine = engine
        self._segments = segments
        self._log = log
        self._topics = topics
        self._pending = pending
        self._findings = findings
        self._progress = progress
        self._checkpoint = 0

    def run(self, *, was_closed: bool) -> None:
        """Raises EngineFailedError when the database cannot be read."""
        self._look_at_checkpoint(was_closed=was_closed)
        self._records_have_rows()
        self._units_have_records()
        self._bounds_have_units()
        self._index_rows_have_records()

    # --- the dispatch point ----------------------------------------------------------------

    def _look_at_checkpoint(self, *, was_closed: bool) -> None:
        row = self._engine.get(BOUNDS, CHECKPOINT_KEY)
        self._checkpoint = int.from_bytes(row or b"", "big", signed=True)
        if row is not None and (len(row) != 8 or self._checkpoint < 0):
            self._bad_row(BOUNDS, CHECKPOINT_KEY, row)
            self._checkpoint = self._log.end_offset
        end = self._log.end_offset
        if self._checkpoint > end:
            self._findings.add(
                Kind.AHEAD_OF_LOG,
                BOUNDS,
                f"a dispatch checkpoint up to the log's end, {end}",
                self._checkpoint,
                physical_offset=self._checkpoint,
                # After a power loss the database may be ahead: opening cuts it back.
                is_fault=was_closed,
            )
        elif self._checkpoint < end:
            self._findings.add(
                Kind.UNDISPATCHED,
                BOUNDS,
                f"all records dispatched, up to {end}",
                f"a dispatch checkpoint of {self._checkpoint}: opening replays the rest",
                physical_offset=self._checkpoint,
            )

    # --- records have their rows -----------------------------------------------------------

    def _records_have_rows(self) -> None:
        builder = DispatchBatchBuilder()
        start, end = self._log.start_offset, min(self._log.end_offset, self._checkpoint)
        batch: list[DispatchRequest] = []
        for request in self._records(start, end):
            admitted = self._topics.admit(request)
            if admitted is not None and admitted.topic not in self._pending:
                batch.append(admitted)
            if len(batch) >= _BATCH:
                self._compare(builder, batch)
                batch.clear()
                share = (request.physical_offset - start) / max(1, end - start)
                self._progress("records against rows", share)
        self._compare(builder, batch)

    def _compare(self, builder: DispatchBatchBuilder, batch: list[DispatchRequest]) -> None:
        rows = builder.build(batch, 0).puts
        for family, kind in ((UNITS, Kind.MISSING_UNIT), (INDEX, Kind.MISSING_INDEX_ROW)):
            wanted = rows[family]
            there = self._engine.multi_get(family, [key for key, _ in wanted])
            for (key, _), value in zip(wanted, there, strict=True):
                # What is there but differs is found when rows are asked for their records.
                if value is None:
                    self._missing(family, kind, key, rows[family])

    def _missing(self, family: str, kind: Kind, key: bytes, rows: list[Pair]) -> None:
        if family == UNITS:
            topic, queue_id, queue_offset = unpack_unit_key(key)
            if topic in self._pending:
                return
            value = next(value for wanted, value in rows if wanted == key)
            unit = unpack_unit(value)
            self._findings.add(
                kind,
                UNITS,
                unit,
                "no row",
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=unit.physical_offset,
            )
        else:
            topic, message_key, time_ms, offset = unpack_index_key(key)
            self._findings.add(
                kind,
                INDEX,
                f"key {message_key!r} at {time_ms} ms",
                "no row",
                topic=topic,
                physical_offset=offset,
            )

    def _records(self, start: int, end: int) -> Iterator[DispatchRequest]:
        """What is derived from each whole record; damage was reported before and is stepped over.

        A record that no queue can hold is left out, as dispatch leaves it out.
        """
        at = start
        damaged = dict(self._log.damaged)
        while at < end and (segment := self._segments.find(at)) is not None:
            base = segment.start_offset
            with segment.view(0, segment.size) as view:
                while base <= at < min(end, base + segment.size):
                    if at in damaged:
                        at = damaged[at]
                        continue
                    checked = check_record(view, at - base, segment.size, at, verify_crc=False)
                    if checked.found is not Found.RECORD:
                        at = base + segment.size
                        break
                    try:
                        request = dispatch_request(view, at - base)
                    except CorruptRecordError:
                        request = None
                    at += checked.size
                    if request is not None and request.queue_id >= 0 and request.queue_offset >= 0:
                        yield request

    # --- rows have their records -----------------------------------------------------------

    def _units_have_records(self) -> None:
        last: _LastUnit | None = None
        for key, value in self._rows(UNITS):
            try:
                topic, queue_id, queue_offset = unpack_unit_key(key)
                unit = unpack_unit(value)
            except _BAD_ROW:
                self._bad_row(UNITS, key, value)
                continue
            if topic in self._pending:
                continue
            if last is not None and (last.topic, last.queue_id) != (topic, queue_id):
                self._end_of_queue(last)
                last = None
            if unit.physical_offset < self._log.start_offset:
                # Expired; compaction takes such units in any order.
                last = None if last is None else self._falls(last, queue_offset, unit[0])
                continue
            if last is not None:
                self._falls(last, queue_offset, unit[0])
                if queue_offset != last.queue_offset + 1:
                    self._findings.add(
                        Kind.HOLE,
                        UNITS,
                        f"offset {last.queue_offset + 1}",
                        f"offset {queue_offset}",
                        topic=topic,
                        queue_id=queue_id,
                        queue_offset=last.queue_offset + 1,
                        physical_offset=unit.physical_offset,
                    )
            self._unit_has_record(topic, queue_id, queue_offset, value)
            last = _LastUnit(topic, queue_id, queue_offset, unit.physical_offset)
        if last is not None:
            self._end_of_queue(last)

    def _falls(self, last: _LastUnit, queue_offset: int, physical_offset: int) -> _LastUnit:
        if physical_offset <= last.physical_offset:
            self._findings.add(
                Kind.FALLING_OFFSET,
                UNITS,
                f"above {last.physical_offset}",
                physical_offset,
                topic=last.topic,
                queue_id=last.queue_id,
                queue_offset=queue_offset,
                physical_offset=physical_offset,
            )
        return last

    def _end_of_queue(self, last: _LastUnit) -> None:
        """The last unit of a queue was read: its bound must say the same."""
        row = self._engine.get(BOUNDS, max_key(last.topic, last.queue_id))
        wanted = (last.physical_offset, last.queue_offset)
        if row is None:
            self._findings.add(
                Kind.MISSING_BOUND,
                BOUNDS,
                wanted,
                "no row",
                topic=last.topic,
                queue_id=last.queue_id,
                queue_offset=last.queue_offset,
                physical_offset=last.physical_offset,
            )
        elif len(row) == 16 and unpack_max(row) != wanted:
            self._findings.add(
                Kind.WRONG_BOUND,
                BOUNDS,
                f"the last unit, {wanted}",
                unpack_max(row),
                topic=last.topic,
                queue_id=last.queue_id,
                queue_offset=last.queue_offset,
                physical_offset=last.physical_offset,
            )

    def _unit_has_record(self, topic: str, queue_id: int, queue_offset: int, value: bytes) -> None:
        unit = unpack_unit(value)
        kind = Kind.WRONG_UNIT
        expected = "the unit of its record"
        if self._is_told(unit.physical_offset):
            return
        request = self._record_at(unit.physical_offset)
        if unit.physical_offset >= self._checkpoint:
            kind, expected = Kind.BEYOND_CHECKPOINT, f"no row above {self._checkpoint}"
        elif request is None:
            expected = "a record there"
        elif not self._stands_in(request, topic, queue_id, queue_offset):
            expected = f"the unit of {request.topic!r} queue {request.queue_id}"
            expected += f" offset {request.queue_offset}"
        elif unit != request[3:7]:
            expected = f"{request[3:7]}"
        elif len(value) == UNIT_SIZE and value[-4:] != expiry_stamp(unit.store_time_ms):
            expected = f"the expiry stamp {expiry_stamp(unit.store_time_ms).hex()}"
        elif not self._is_live(request, topic):
            kind, expected = Kind.DEAD_ROW, "no row"
        else:
            return
        self._findings.add(
            kind,
            UNITS,
            expected,
            f"{unit} {value[28:].hex()}",
            topic=topic,
            queue_id=queue_id,
            queue_offset=queue_offset,
            physical_offset=unit.physical_offset,
        )

    @staticmethod
    def _stands_in(request: DispatchRequest, topic: str, queue_id: int, offset: int) -> bool:
        if not request.in_queue:
            return False
        if topic.startswith(LMQ_PREFIX):
            return queue_id == 0 and (topic, offset) in request.light_queues
        return (request.topic, request.queue_id, request.queue_offset) == (topic, queue_id, offset)

    def _is_live(self, request: DispatchRequest, topic: str) -> bool:
        if not topic.startswith(LMQ_PREFIX):
            return self._topics.is_live(topic, request.physical_offset)
        admitted = self._topics.admit(request)
        return admitted is not None and (
            admitted.topic == topic or any(name == topic for name, _ in admitted.light_queues)
        )

    def _bounds_have_units(self) -> None:
        for key, value in self._rows(BOUNDS):
            if key in (CHECKPOINT_KEY, DELETIONS_KEY):
                if len(value) != 8:
                    self._bad_row(BOUNDS, key, value)
                continue
            try:
                topic, marker, queue_id = unpack_bounds_key(key)
                physical_offset, queue_offset = unpack_max(value)
            except _BAD_ROW:
                self._bad_row(BOUNDS, key, value)
                continue
            if marker != "max" or topic in self._pending:
                continue
            self._look_at_bound(topic, queue_id, physical_offset, queue_offset)

    def _look_at_bound(
        self, topic: str, queue_id: int, physical_offset: int, queue_offset: int
    ) -> None:
        kind = None
        expected = found = ""
        if physical_offset >= self._checkpoint:
            kind, expected = Kind.BEYOND_CHECKPOINT, f"no row above {self._checkpoint}"
        elif not topic.startswith(LMQ_PREFIX) and not self._topics.is_live(topic, 1 << 62):
            kind, expected = Kind.DEAD_ROW, "no row"
        elif physical_offset >= self._log.start_offset:
            from_unit = self._engine.scan(
                UNITS, *_unit_range(topic, queue_id, queue_offset), limit=1
            )
            if not from_unit:  # a bound that differs from its last unit is found with the units
                kind, expected = Kind.WRONG_BOUND, "a bound with a unit"
        if kind is not None:
            found = f"{(physical_offset, queue_offset)}"
            self._findings.add(
                kind,
                BOUNDS,
                expected,
                found,
                topic=topic,
                queue_id=queue_id,
                queue_offset=queue_offset,
                physical_offset=physical_offset,
            )

    def _index_rows_have_records(self) -> None:
        for key, value in self._rows(INDEX):
            try:
                topic, message_key, time_ms, offset = unpack_index_key(key)
            except _BAD_ROW:
                self._bad_row(INDEX, key, value)
                continue
            if offset < self._log.start_offset or topic in self._pending:
                continue
            if self._is_told(offset):
                continue
            request = self._record_at(offset)
            kind = Kind.WRONG_INDEX_ROW
            if offset >= self._checkpoint:
                kind, expected = Kind.BEYOND_CHECKPOINT, f"no row above {self._checkpoint}"
            elif request is None:
                expected = "a record there"
            elif request.topic != topic or message_key not in request.keys:
                expected = f"a key of its record, {request.keys} of {request.topic!r}"
            elif request.store_time_ms != time_ms or value != expiry_stamp(time_ms):
                expected = f"{request.store_time_ms} ms, {expiry_stamp(time_ms).hex()}"
            elif not self._topics.is_live(topic, offset):
                kind, expected = Kind.DEAD_ROW, "no row"
            else:
                continue
            self._findings.add(
                kind,
                INDEX,
                expected,
                f"key {message_key!r} at {time_ms} ms, {value.hex()}",
                topic=topic,
                physical_offset=offset,
            )

    def _is_told(self, physical_offset: int) -> bool:
        """Whether it is known already that no record is there: damage, or a log that ends before.

        With a checkpoint ahead of the log, all rows in between are; opening cuts them.
        """
        end = self._log.end_offset
        return end <= physical_offset < self._checkpoint or self._log.is_damaged(physical_offset)

    # --- help ------------------------------------------------------------------------------

    def _record_at(self, physical_offset: int) -> DispatchRequest | None:
        """What is derived from the record that begins there, if one does."""
        segment = self._segments.find(physical_offset)
        if segment is None or physical_offset >= self._log.end_offset:
            return None
        at = physical_offset - segment.start_offset
        with segment.view(0, segment.size) as view:
            checked = check_record(view, at, segment.size, physical_offset, verify_crc=False)
            if checked.found is not Found.RECORD:
                return None
            try:
                return dispatch_request(view, at)
            except CorruptRecordError:
                return None

    def _rows(self, family: str) -> Iterator[Pair]:
        start = b""
        while page := self._engine.scan(
            family, start, _KEYS_END, limit=_PAGE_ROWS, fill_cache=False
        ):
            yield from page
            start = page[-1][0] + b"\x00"
        self._progress(f"rows of {family}", 1.0)

    def _bad_row(self, family: str, key: bytes, value: bytes) -> None:
        self._findings.add(
            Kind.BAD_ROW, family, "a row of this layout", f"{key.hex()} = {value.hex()}"
        )


def _unit_range(topic: str, queue_id: int, queue_offset: int) -> tuple[bytes, bytes]:
    """Start and end of all units of a queue up to `queue_offset`, that one included."""
    prefix = unit_prefix(topic, queue_id)
    return prefix + pack_i64(0), prefix + pack_i64(queue_offset + 1)
