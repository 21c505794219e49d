"""Compares log, files and RocksDB below a cut point, while traffic continues above it.

The log is the reference. It is read once, and so is each side, in its own order; see
kvcq/inspect/comparison.py. It only reports, and never repairs.

Concurrent changes (expired segments, deleted topics) may make sums differ. The detailed comparison
uses the state at its time, so they are not reported.

Memory: one page of units, 1 MiB for each side, and at most 10,000 differences; others are counted.
"""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, NamedTuple

from kvcq.inspect import Comparison, Finding, Kind, faults_of, request_at
from kvcq.tables import units_of_requests
from migration.errors import JobCancelledError, VerificationError
from migration.fill import LogFeed, Pace
from migration.sides import FileSideStore
from migration.state import SideName
from store.consume_queue import KeyHit
from store.errors import CorruptRecordError, MessageNotFoundError, StoreBusyError, StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from kvcq.inspect import Fault, Queue
    from kvcq.tables import Unit, UnitColumns
    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, SideStore
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

_READ = 4096
_KEPT = 10_000  # differences

#: Of the messages with keys, one in this many is looked up by key on each side.
KEY_EVERY = 16

#: In place of a missing unit.
NOTHING = "nothing"


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
        self, store: MessageStore, double: DoubleQueueStore, job: Job, key_every: int
    ) -> None:
        self._store = store
        self._double = double
        self._job = job
        self._key_every = key_every
        self._admission = store.admission
        self._feed = LogFeed(store)
        self._changes = double.changes
        self._stores: dict[SideName, SideStore] = {
            name: side.store
            for name in SideName
            if (side := double.side(name)) is not None and side.joined
        }
        self._pace = Pace(store.log)
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
        start = self._store.log.start_offset
        comparisons = {
            name: Comparison(
                _LiveSide(name, store, self, start, cut), with_times=name is SideName.ROCKSDB
            )
            for name, store in self._stores.items()
        }
        for requests in self._log("compare units", start, cut):
            units = units_of_requests(requests)
            self._compared += len(units)
            for comparison in comparisons.values():
                comparison.expect(units)
            self._compare_some_keys(requests)
            self._check_changes()
        for comparison in comparisons.values():
            comparison.read()
        for name, comparison in comparisons.items():
            if comparison.differ:
                for requests in self._log("look at what differs", start, cut):
                    comparison.find_missing(units_of_requests(requests))
            if comparison.differ:
                comparison.find_wrong()
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

    def pages(self, step: str, pages: Iterator[UnitColumns]) -> Iterator[UnitColumns]:
        """Yield pages of a side's units at a reduced pace."""
        seen = 0
        self._job.step(step, 0, self._compared)
        for units in pages:
            seen += len(units)
            yield units
            self._job.report(min(seen, self._compared), self._compared)
            self._pace.after_batch(self._job, max(0, self._compared - seen))

    def _check_changes(self) -> None:
        if self._double.changes != self._changes:
            raise StoreBusyError("the state changed meanwhile: verify again")

    def differ(
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
        if len(self._found) < _KEPT:
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

    def _compare_some_keys(self, requests: Sequence[DispatchRequest]) -> None:
        every = self._key_every
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
                if found != [hit] and self.is_there(request.topic, request.physical_offset):
                    shown = found[0].physical_offset if found else NOTHING
                    kind, place = Kind.MISSING_INDEX_ROW, hit.physical_offset
                    self.differ(kind, name, f"key {key}", place, shown, *request[:3])

        files = self._stores.get(SideName.FILES)
        if isinstance(files, FileSideStore):
            with _reading(SideName.FILES):
                tag = files.missing_tag(request)
            if tag is not None and self.is_there(request.topic, request.physical_offset):
                kind, place = Kind.MISSING_INDEX_ROW, request.physical_offset
                self.differ(kind, SideName.FILES, f"tag {tag}", place, NOTHING, *request[:3])

    def is_there(self, topic: str, at: int) -> bool:
        """Whether that record of the topic or light queue still exists: since it was read it may
        have been dropped, or its topic deleted."""
        if at < self._store.log.start_offset:
            return False
        return not topic or self._admission.is_live(topic, at)  # "": the key of a batch

    def faults_of(self, queue: Queue, offset: int, unit: Unit) -> list[Fault]:
        record = request_at(self._store.log, unit[0])
        if unit[0] < self._store.log.start_offset:
            return []  # dropped since the unit was read
        return faults_of(record, queue, offset, unit, self._admission.is_live)

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
                self.differ(Kind.ENDS_EARLY, name.other, "max_offset", wanted, end, *place)


class _LiveSide:
    """One side, below a cut: see UnitSide."""

    def __init__(
        self, name: SideName, store: SideStore, run: Verification, start: int, cut: int
    ) -> None:
        self._name = name
        self._store = store
        self._run = run
        self._start = start
        self._cut = cut
        self._step = f"look through {name.value}"

    def units(self) -> Iterator[UnitColumns]:
        step, self._step = self._step, "look for what is too much"
        return self._run.pages(step, self._pages())

    def _pages(self) -> Iterator[UnitColumns]:
        with _reading(self._name):
            pages = self._store.units_between(self._start, self._cut)
        while True:
            with _reading(self._name):
                units = next(pages, None)
            if units is None:
                return
            yield units

    def places_in(self, queue: Queue, offsets: Sequence[int]) -> set[int]:
        with _reading(self._name):
            there = self._store.places_of(*queue, offsets)
        return {offset for offset, place in zip(offsets, there, strict=True) if place is not None}

    def is_missing(self, queue: Queue, offset: int, unit: Unit) -> None:
        if self._run.is_there(queue[0], unit[0]):
            self._run.differ(Kind.MISSING_UNIT, self._name, "unit", unit, NOTHING, *queue, offset)

    def judge(self, queue: Queue, offset: int, unit: Unit) -> None:
        for fault in self._run.faults_of(queue, offset, unit):
            kind, field, expected, found = fault
            self._run.differ(kind, self._name, field, expected, found, *queue, offset)
