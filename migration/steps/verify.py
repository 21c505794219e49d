"""Compares log, files and RocksDB below a cut point, while traffic continues above it.

The log is the reference. The log and each side are read once, each in its own order; sums prove
that they have the same units (kvcq/inspect/sums.py). Where sums differ, the log is read again, and
its units are looked up in the side. If that does not explain the difference, the side has
unexpected units, and is read again. Repairs nothing.

Concurrent changes (expired segments, deleted topics) may make sums differ. The detailed comparison
uses the state at its time, so they are not reported.

Memory: one page of units, 1 MiB for each side, and at most `kept` differences; others are counted.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from kvcq.inspect import Finding, Kind, RowSums, is_at_place
from kvcq.tables import hash_of_unit, units_of_requests
from migration.errors import JobCancelledError, VerificationError
from migration.fill import LogFeed, Pace
from migration.sides import FileSideStore
from migration.state import SideName
from store.consume_queue import KeyHit
from store.errors import CorruptRecordError, MessageNotFoundError, StoreBusyError, StoreError
from store.format import dispatch_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.tables import UnitColumns
    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, SideStore
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

_READ = 4096
Queue = tuple[str, int]
#: Physical offset, record size, tag code and, if stored, the store time.
Unit = tuple[int, ...]
_FIELDS = ("physical_offset", "record_size", "tag_code", "store_time_ms")

#: In place of a missing unit.
NOTHING = "nothing"


@dataclass(frozen=True)
class VerifyOptions:
    """What to compare, and how much to keep."""

    #: Of the messages with keys, one in this many is looked up by key on each side; 0: none.
    key_every: int = 16
    #: Most differences that are kept; others are counted.
    kept: int = 10_000


class Verified(NamedTuple):
    """The result of a verification."""

    cut_offset: int  # physical
    compared_units: int
    difference_count: int
    differences: list[Finding]  # `place` is a field of the unit, or the key that was looked up


@contextmanager
def _reading(name: SideName) -> Iterator[None]:
    """Convert a side's errors to VerificationError, which names the side."""
    try:
        yield
    except (JobCancelledError, StoreBusyError, CorruptRecordError):
        raise  # not an error of the side
    except (StoreError, OSError) as error:
        raise VerificationError(name.value, str(error)) from error


class Verification:
    """One run. Used by one job's thread."""

    def __init__(
        self, store: MessageStore, double: DoubleQueueStore, job: Job, options: VerifyOptions
    ) -> None:
        self._store = store
        self._double = double
        self._job = job
        self._options = options
        self._admission = store.admission
        self._feed = LogFeed(store)
        self._changes = double.changes
        self._stores: dict[SideName, SideStore] = {
            name: side.store
            for name in SideName
            if (side := double.side(name)) is not None and side.joined
        }
        self._sums = {name: RowSums() for name in self._stores}
        self._pace = Pace(self._feed)
        self._compared = 0
        self._with_keys = 0
        self._found: list[Finding] = []
        self._differences = 0

    def run(self) -> Verified:
        """Verify. Segments that are dropped meanwhile are not compared. Raises VerificationError if
        a side cannot be read, JobCancelledError, CorruptRecordError, and StoreBusyError if a step
        is taken meanwhile."""
        with ExitStack() as stack:
            with _reading(self._double.phase.serving):
                admitting = self._store.applier.admitting(self._admission)
                self._admission = stack.enter_context(admitting)
            self._feed = LogFeed(self._store, self._admission)
            return self._run()

    def _run(self) -> Verified:
        cut = self._double.dispatched_offset
        start = self._feed.start_offset
        for requests in self._log("compare units", start, cut):
            self._expect(requests)
            self._check_changes()
        for name, sums in self._sums.items():
            for units in self._there(name, f"look through {name.value}", start, cut):
                sums.add_found(units.hashes())
        for name, sums in self._sums.items():
            if sums.differ:
                self._explain(name, start, cut)
            with _reading(name):
                self._compare_ends(name, start)
            self._check_changes()
        return Verified(cut, self._compared, self._differences, self._found)

    def _log(self, step: str, start: int, cut: int) -> Iterator[list[DispatchRequest]]:
        """Yield runs of the log's live records, at a reduced pace."""
        self._job.step(step, start, cut)
        at = start
        while at < cut:
            before = at
            try:
                requests, at = self._feed.read(at, cut, _READ)
            except MessageNotFoundError:
                continue  # its segment was dropped; the feed continues after it
            if requests:
                yield requests
            self._job.report(at, cut)
            self._job.count(rows=len(requests))
            self._pace.after_batch(self._job, cut - at)
            assert at > before

    def _there(self, name: SideName, step: str, start: int, cut: int) -> Iterator[UnitColumns]:
        """Yield a side's units of the records in the range."""
        seen = 0
        self._job.step(step, 0, self._compared)
        with _reading(name):
            pages = self._stores[name].units_between(start, cut)
        while True:
            with _reading(name):
                units = next(pages, None)
            if units is None:
                return
            seen += len(units)
            yield _kept(name, units)
            self._job.report(min(seen, self._compared), self._compared)
            self._pace.after_batch(self._job, max(0, self._compared - seen))

    def _check_changes(self) -> None:
        if self._double.changes != self._changes:
            raise StoreBusyError("the state changed meanwhile: verify again")

    def _differ(
        self,
        kind: Kind,
        name: SideName,
        field: str,
        in_log: object,
        in_side: object,
        *where: *tuple[str, int, int],
    ) -> None:
        """Report a difference. `where`: topic, queue id, queue offset."""
        self._differences += 1
        self._job.count(differences=1)
        if len(self._found) < self._options.kept:
            self._found.append(
                Finding(
                    kind,
                    field,
                    str(in_log),
                    str(in_side),
                    *where,
                    side=name.value,
                )
            )

    # --- the proof ----------------------------------------------------------------------------

    def _expect(self, requests: Sequence[DispatchRequest]) -> None:
        units = units_of_requests(requests)
        self._compared += len(units)
        for name, sums in self._sums.items():
            sums.add_expected(_kept(name, units).hashes())
        if every := self._options.key_every:
            indexed = [request for request in requests if request.keys or request.tag_code]
            for request in indexed[-(self._with_keys + 1) % every :: every]:
                self._compare_keys(request)
            self._with_keys += len(indexed)

    def _compare_keys(self, request: DispatchRequest) -> None:
        hit = KeyHit(request.store_time_ms, request.physical_offset)
        before = KeyHit(request.store_time_ms, request.physical_offset - 1)
        for name, store in self._stores.items():
            for key in request.keys:
                time_ms = request.store_time_ms
                with _reading(name):
                    found = store.query_key(request.topic, key, time_ms, time_ms, before, 1)
                if found != [hit] and self._is_there(request.topic, request.physical_offset):
                    shown = found[0].physical_offset if found else NOTHING
                    kind, place = Kind.MISSING_INDEX_ROW, hit.physical_offset
                    self._differ(kind, name, f"key {key}", place, shown, *request[:3])

        files = self._stores.get(SideName.FILES)
        if isinstance(files, FileSideStore):
            with _reading(SideName.FILES):
                tag = files.missing_tag(request)
            if tag is not None and self._is_there(request.topic, request.physical_offset):
                kind, place = Kind.MISSING_INDEX_ROW, request.physical_offset
                self._differ(kind, SideName.FILES, f"tag {tag}", place, NOTHING, *request[:3])

    def _is_there(self, topic: str, at: int) -> bool:
        """Whether the record at `at` is still live: it may have been dropped since it was read, or
        its topic deleted."""
        if at < self._feed.start_offset:
            return False
        return not topic or self._admission.is_live(topic, at)  # "": the key of a batch

    # --- where it fails -----------------------------------------------------------------------

    def _explain(self, name: SideName, start: int, cut: int) -> None:
        """Report missing and different units, and subtract them from the sums. If sums still
        differ, report unexpected units."""
        sums = self._sums[name]
        for requests in self._log("compare differing queues", start, cut):
            units = _kept(name, units_of_requests(requests))
            queues: dict[Queue, list[tuple[int, Unit]]] = {}
            for queue, offset, unit in _candidates(sums, units):
                queues.setdefault(queue, []).append((offset, unit))
            for queue, expected in queues.items():
                for run in _runs(expected):
                    self._compare_queue(name, queue, run)
        if not sums.differ:
            return
        for units in self._there(name, "find unexpected units", start, cut):
            for queue, offset, unit in _candidates(sums, units):
                place = (*queue, offset)
                if unit[0] >= self._feed.start_offset and not self._is_its_record(unit[0], *place):
                    self._differ(Kind.WRONG_UNIT, name, "unit", NOTHING, unit, *place)

    def _compare_queue(
        self, name: SideName, queue: Queue, expected: list[tuple[int, Unit]]
    ) -> None:
        """Compare ascending suspect units with those of the side."""
        first, last = expected[0][0], expected[-1][0]
        with _reading(name):
            there = dict(self._stores[name].stored_units(*queue, first, last - first + 1))
        for offset, unit in expected:
            other = there.get(offset)
            # Equal units are candidates only because their bucket differs.
            if other != unit and self._is_there(queue[0], unit[0]):
                self._compare_unit(name, queue, offset, unit, other)

    def _compare_unit(
        self, name: SideName, queue: Queue, offset: int, unit: Unit, other: Unit | None
    ) -> None:
        place, sums = (*queue, offset), self._sums[name]
        sums.add_found(hash_of_unit(queue, offset, unit))
        if other is None:
            self._differ(Kind.MISSING_UNIT, name, "unit", unit, NOTHING, *place)
            return
        if other[0] != unit[0] and self._is_its_record(other[0], *place):
            return  # the log has two records with the same place; the side has one of them
        sums.add_expected(hash_of_unit(queue, offset, other))
        for field, ours, theirs in zip(_FIELDS, unit, other, strict=False):
            if ours != theirs:
                self._differ(Kind.WRONG_UNIT, name, field, ours, theirs, *place)

    def _compare_ends(self, name: SideName, start: int) -> None:
        """Report queues without messages in the log that would continue at different offsets on the
        two sides."""
        other = self._stores.get(name.other)
        if other is None:
            return
        for topic, queue_id, last_offset, last_physical in self._stores[name].last_units():
            self._job.check()
            if last_physical >= start:
                continue
            end = other.next_offsets([(topic, queue_id)])[0]
            if end < last_offset + 1:
                wanted, place = last_offset + 1, (topic, queue_id, end)
                self._differ(Kind.ENDS_EARLY, name.other, "max_offset", wanted, end, *place)

    def _is_its_record(self, physical_offset: int, topic: str, queue_id: int, offset: int) -> bool:
        try:
            record = self._store.log.read_at(physical_offset)
        except MessageNotFoundError:
            return False
        try:
            found = dispatch_request(record, 0)
        except CorruptRecordError:  # such a record is in no queue
            return False
        # A record of a deleted topic is not in the queues of a new one with that name.
        request = self._admission.admit(found)
        return request is not None and is_at_place(request, topic, queue_id, offset)


def _kept(name: SideName, units: UnitColumns) -> UnitColumns:
    """The columns that both the log and this side have: files have no store time."""
    return units.without_times() if name is SideName.FILES else units


def _candidates(sums: RowSums, units: UnitColumns) -> Iterator[tuple[Queue, int, Unit]]:
    return units.where(sums.candidates(units.hashes())).rows()


def _runs(expected: list[tuple[int, Unit]]) -> Iterator[list[tuple[int, Unit]]]:
    """Split into runs whose queue offsets ascend, and are close enough for one read."""
    begin = 0
    for at in range(1, len(expected)):
        if not 0 < expected[at][0] - expected[at - 1][0] <= _READ:
            yield expected[begin:at]
            begin = at
    yield expected[begin:]
