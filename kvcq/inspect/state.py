"""Checks rows of state: applying the records behind a snapshot again must give the same rows.

It is a Side: the records of the walk are applied to a scratch database that begins with the newest
sealed snapshot, or empty. Shared groups, timers and transactions are also checked with code that is
independent of dispatch, see shared_groups.py, timers.py and halves.py. Memory: one page of rows,
and theirs.
"""

from __future__ import annotations

import shutil
import tempfile
from contextlib import suppress
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.engine import pages
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import CorruptValueError, KvcqError
from kvcq.inspect.findings import Kind, Remedy
from kvcq.inspect.halves import Halves
from kvcq.inspect.shared_groups import SharedGroups
from kvcq.inspect.timers import Timers
from kvcq.snapshots import DIRECTORY, Snapshot, place_sealed, snapshots_in
from kvcq.state_store import KvStateStore
from kvcq.tables import (
    BOUNDS,
    DISPATCHED_KEY,
    STATE,
    UNITS,
    max_key,
    unit_prefix,
    unpack_i64,
    unpack_max,
    unpack_units,
)
from store.errors import CorruptRecordError, StoreFormatError
from store.format import FastParser, unpack_record
from store.log import Run, walk
from store.state import (
    STATE_TOPIC,
    CorruptRowError,
    CorruptStateError,
    TopicEnded,
    changes_of,
    unpack_entries,
    unpack_topic,
)

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import ExitStack

    from kvcq.engine import KvEngine, Pair
    from kvcq.inspect.log import LogCheck
    from kvcq.inspect.shared_groups import Tell
    from kvcq.inspect.side import OpenedStore, WalkAgain
    from store.consume_queue import DispatchRequest
    from store.log import SegmentSet
    from store.state import Entry

STATE_SIDE = "state"
#: Rows that are not derived from records: the point, and counted rows.
_NOT_COMPARED = (b"p", b"k")
_ANYWHERE = 1 << 62


class StateSide:
    """The state in the database: see Side."""

    def __init__(self, engine: KvEngine, opened: OpenedStore, stack: ExitStack) -> None:
        """Files that it creates are removed with the stack. Raises KvcqError."""
        self._engine = engine
        self._opened = opened
        self._tell = partial(opened.findings.add, side=STATE_SIDE)
        self._state = KvStateStore(engine)
        scratch = Path(tempfile.mkdtemp(prefix="kvcq-check-"))
        stack.callback(shutil.rmtree, scratch, ignore_errors=True)
        self._tell_of_snapshots()
        self._begin = self._start(scratch / "kvcq")
        self._replayed: KvStateStore | None = None
        self._scratch_engine: RocksEngine | None = None
        if self._begin is not None:
            self._scratch_engine = RocksEngine.open(scratch / "kvcq", DERIVED, in_place=True)
            stack.callback(self._scratch_engine.close)
            self._replayed = KvStateStore(self._scratch_engine)
            self._timers, self._halves = Timers(), Halves()
            waiting = self._timers, self._halves
            rows = _taken(_rows(self._scratch_engine), waiting, self._ignore_row)
            self._judge = SharedGroups.of_rows(rows, self._ignore_row)
        # Keys of rows that were reported.
        self._told: set[bytes] = set()

    def _tell_of_snapshots(self) -> None:
        directory = self._opened.directory.root / DIRECTORY
        for path in sorted(directory.glob("[0-9]*[0-9]")):
            place = f"{DIRECTORY}/{path.name}"
            try:
                snapshot = Snapshot.read(path)
            except StoreFormatError as error:
                self._tell(Kind.SNAPSHOT, place, "a snapshot that can be read", error)
                continue
            if not snapshot.mark.fits(self._opened.segments):
                self._tell(Kind.OLD_SNAPSHOT, place, "a snapshot of this log", "one of another")
                continue
            try:
                if snapshot.was_sealed:
                    snapshot.verified_files()
            except (StoreFormatError, OSError) as error:
                self._tell(Kind.SNAPSHOT, place, "the files that were sealed", error)

    def _start(self, path: Path) -> int | None:
        """Where the replay begins, with the known state at `path`; None if nothing is known."""
        directory = self._opened.directory.root / DIRECTORY
        for snapshot in reversed(snapshots_in(directory, read_only=True)):
            usable = snapshot.point <= self._state.point
            if usable and snapshot.is_sealed and snapshot.mark.fits(self._opened.segments):
                try:
                    place_sealed(snapshot, path, "unused")
                except (StoreFormatError, KvcqError, OSError):
                    continue  # reported before
                return snapshot.point
        begin = max(self._opened.segments.first_offset, self._opened.directory.base_offset)
        return 0 if begin == 0 else None

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        if self._replayed is None:
            return
        for request in requests:
            at, size = request.physical_offset, request.record_size
            if request.topic != STATE_TOPIC or not self._replayed.point <= at < self._state.point:
                continue
            try:
                entries = read_entries(self._opened.segments, at, size)
            except (CorruptRecordError, CorruptStateError) as error:
                self._tell(Kind.STATE, STATE, "entries", error, physical_offset=at)
                continue
            self._judge.follow(entries, at)
            self._timers.follow(entries)
            self._halves.follow(entries, at)
            changes = changes_of(entries, at, self._replayed)
            self._replayed.apply(changes, at + size)

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        """Report rows that differ from those of the replay.

        Not for a database that is ahead of the log, which the other side reports: an opening
        rebuilds it from the log.
        """
        del walk_again
        if self._state.point > log.end_offset:
            return
        timers, halves = Timers(), Halves()
        rows = _taken(_rows(self._engine), (timers, halves), self._tell_row)
        here_too = SharedGroups.of_rows(rows, self._tell_row)
        here_too.check(self._tell_row, self._end_of)
        timers.check(self._tell_row, self._end_of)
        halves.check(self._tell_row, self._end_of)
        if self._scratch_engine is None:
            return
        here_too.compare(self._judge, self._tell_row)
        timers.compare(self._timers, self._tell_row)
        halves.compare(self._halves, self._tell_row)
        there, replayed = _rows(self._engine), _rows(self._scratch_engine)
        here, other = next(there, None), next(replayed, None)
        while here is not None or other is not None:
            if here == other:
                here, other = next(there, None), next(replayed, None)
            elif other is None or (here is not None and here[0] < other[0]):
                assert here is not None
                self._differs(here[0], "no row", here[1])
                here = next(there, None)
            elif here is None or other[0] < here[0]:
                self._differs(other[0], other[1], "no row")
                other = next(replayed, None)
            else:
                self._differs(here[0], other[1], here[1])
                here, other = next(there, None), next(replayed, None)

    def _differs(self, key: bytes, expected: bytes | str, found: bytes | str) -> None:
        if key not in self._told:
            said = [each if isinstance(each, str) else each.hex() for each in (expected, found)]
            self._tell_row(key, *said)

    def _tell_row(self, key: bytes, expected: str, found: str) -> None:
        self._told.add(key)
        # Without a snapshot there is no state to compare with or to rebuild from.
        remedy = Remedy.RESTORE if self._begin is None else None
        self._tell(Kind.STATE, f"{STATE} {key!r}", expected, found, remedy=remedy)

    def _ignore_row(self, key: bytes, expected: str, found: str) -> None:
        """Ignores rows of a snapshot, whose seal shows whether they are intact."""

    def _end_of(self, topic: str, queue_id: int) -> int:
        """The next offset of the queue; a maximum if it is not known here or not yet."""
        dispatched = self._engine.get(BOUNDS, DISPATCHED_KEY)
        if dispatched is None or unpack_i64(dispatched) < self._state.point:
            return _ANYWHERE
        row = self._engine.get(BOUNDS, max_key(topic, queue_id))
        with suppress(CorruptValueError):  # the other side reports it
            return _ANYWHERE if row is None else unpack_max(row)[1] + 1
        return _ANYWHERE

    def is_left_out(self, number: int) -> bool:
        """No row of state refers to damage."""
        del number
        return True

    @property
    def counts(self) -> tuple[int, int]:
        return 0, 0


def read_entries(segments: SegmentSet, offset: int, size: int) -> list[Entry]:
    """The entries of the state record there. Raises CorruptRecordError, CorruptStateError."""
    segment = segments.find(offset)
    if segment is None:
        raise CorruptRecordError(offset, "no segment has the state record")
    record = segment.pread(offset - segment.start_offset, size)
    return unpack_entries(unpack_record(record).body)


def state_records(
    engine: KvEngine, segments: SegmentSet, base_offset: int
) -> Iterator[tuple[int, int, list[Entry]]]:
    """Yield physical offset, end and entries of each state record in the log, in log order, from
    `base_offset` on; unreadable ones are skipped.

    The database's queues lead to them as far as they go; the rest of the log is scanned. Raises
    KvcqError.
    """
    first = max(segments.first_offset, base_offset)
    places = chain(_units_of_state(engine, segments), _behind_queues(engine, segments, first))
    for at, size in places:
        if at >= first:
            with suppress(CorruptRecordError, CorruptStateError):  # the side reports it
                yield at, at + size, read_entries(segments, at, size)


def _units_of_state(engine: KvEngine, segments: SegmentSet) -> Iterator[tuple[int, int]]:
    prefix = unit_prefix(STATE_TOPIC, 0)
    for rows in pages(engine, UNITS, prefix, prefix + b"\xff" * 9):
        for unit in unpack_units([value for _, value in rows]):
            if unit.physical_offset < segments.end_offset:
                yield unit.physical_offset, unit.record_size


def _behind_queues(engine: KvEngine, segments: SegmentSet, first: int) -> Iterator[tuple[int, int]]:
    row = engine.get(BOUNDS, DISPATCHED_KEY)
    done = 0 if row is None else unpack_i64(row)
    for step in walk(segments, max(first, done), parser=FastParser()):
        for request in step.requests if isinstance(step, Run) else ():
            if request.topic == STATE_TOPIC:
                yield request.physical_offset, request.record_size


def endings_in(engine: KvEngine, segments: SegmentSet, base_offset: int) -> dict[str, int]:
    """Deleted names, and the physical offset of the last record that deletes each. Raises
    KvcqError."""
    return {
        entry.topic: at
        for at, _, entries in state_records(engine, segments, base_offset)
        for entry in entries
        if isinstance(entry, TopicEnded)
    }


def _taken(rows: Iterator[Pair], waiting: tuple[Timers, Halves], tell: Tell) -> Iterator[Pair]:
    """Yield the same rows, and add held messages to `waiting` on the way. Reports impossible rows
    of topics."""
    for key, value in rows:
        for each in waiting:
            each.take_row(key, value, tell)
        if key.startswith(b"t"):
            try:
                unpack_topic(key[1:].decode(), value)
            except (CorruptRowError, UnicodeDecodeError) as error:
                tell(key, "a row that can be", f"{value.hex()}: {error}")
        yield key, value


def _rows(engine: KvEngine) -> Iterator[Pair]:
    for page in pages(engine, STATE):
        yield from (row for row in page if not row[0].startswith(_NOT_COMPARED))
