"""Compares log, files and RocksDB below a cut point, while traffic goes on above it.

The log is the judge. It is read once, in windows; each queue's units in a window are read from
each side that is to have them, and compared. That finds what is missing or wrong. What is there
and should not be is found by counting: a side that has more units than were compared is gone
through unit by unit. Reports, and never repairs.

Memory: one window, and at most `kept` differences; the rest are counted.
"""

from __future__ import annotations

from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

from kvcq.inspect import Finding, Kind, Remedy, stands_in
from migration.errors import JobCancelledError, VerificationError
from migration.fill import LogFeed, Pace
from migration.sides import FileSideStore
from migration.state import SideName
from store.consume_queue import KeyHit
from store.errors import (
    CorruptRecordError,
    MessageNotFoundError,
    StoreBusyError,
    StoreError,
)
from store.format import dispatch_request

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from migration.jobs import Job
    from migration.sides import DoubleQueueStore, SideStore
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

_WINDOW = 32_768
_READ = 4096
_FIELDS = ("physical_offset", "record_size", "tag_code", "store_time_ms")

_REMEDIES = {
    SideName.FILES: Remedy.REBUILD_FILES,
    SideName.ROCKSDB: Remedy.REBUILD_DATABASE,
}
#: Stands for a unit that is not there.
NOTHING = "nothing"
#: The side of a difference that no side is to blame for: the log has two records for one place.
LOG = "log"


@dataclass(frozen=True)
class VerifyOptions:
    """How much is compared, and kept."""

    #: Of every so many messages with keys, the keys of one are looked up on each side; 0: of none.
    key_every: int = 16
    #: Differences that are kept in full; more are counted.
    kept: int = 10_000


class Verified(NamedTuple):
    """What a verification found."""

    cut_offset: int  # physical
    compared_units: int
    difference_count: int
    differences: list[Finding]  # `place` is the field of a unit, or what is asked of the index


@contextmanager
def _reading(name: SideName) -> Iterator[None]:
    """Raises VerificationError, which says which side it was, for what a side raises."""
    try:
        yield
    except (JobCancelledError, StoreBusyError, CorruptRecordError):
        raise  # not the side's
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
        self._feed = LogFeed(store)
        self._routes = double.routes
        self._stores: dict[SideName, SideStore] = {
            name: side.store
            for name in SideName
            if (side := double.side(name)) is not None and side.joined
        }
        self._matched = dict.fromkeys(self._stores, 0)  # units found as the log has them, or wrong
        self._compared = 0
        self._with_keys = 0
        self._found: list[Finding] = []
        # Queues with differences, and the highest offset at which the log is not found in a side.
        self._differing: dict[tuple[str, int], int] = {}
        self._twice: set[tuple[str, int]] = set()  # queues whose offsets fall back along the log

    def run(self) -> Verified:
        """Raises VerificationError for a side that cannot be read, JobCancelledError,
        CorruptRecordError, and StoreBusyError when the routes change.

        Segments that are dropped meanwhile are not compared.
        """
        cut = self._double.dispatched_offset
        at = start = self._feed.start_offset
        self._job.step("compare units", at, cut)
        pace = Pace(self._feed)
        while at < cut:
            requests: list[DispatchRequest] = []
            before = at
            while at < cut and len(requests) < _WINDOW:
                try:
                    more, at = self._feed.read(at, cut, _READ)
                except MessageNotFoundError:
                    continue  # its segment was dropped just now: the feed begins behind it
                requests += more
                pace.after_batch(self._job, cut - at)
            self._compare(requests)
            self._job.report(at, cut, len(requests))
            assert at > before
            self._check_routes()
        self._job.step("look for what is too much", 0, len(self._stores))
        for done, name in enumerate(self._stores):
            with _reading(name):
                self._count(name, start, cut)
            self._job.report(done + 1, len(self._stores))
        return Verified(cut, self._compared, self._job.differences, self._blamed())

    def _blamed(self) -> list[Finding]:
        """What was found, and a side where a side is to blame.

        A queue whose offsets fall back along the log had two lives, of which only one is in the
        sides. That is no fault of theirs, and to make one again from the log would not mend it.
        """
        twice = self._twice
        return [
            replace(each, side=LOG) if (each.topic, each.queue_id) in twice else each
            for each in self._found
        ]

    def _check_routes(self) -> None:
        if self._double.routes is not self._routes:
            raise StoreBusyError("the routes changed meanwhile: verify again")

    def _differ(
        self,
        kind: Kind,
        name: SideName,
        field: str,
        in_log: object,
        in_side: object,
        *where: *tuple[str, int, int],
    ) -> None:
        """`where`: topic, queue id, queue offset."""
        self._job.differences += 1
        if len(self._found) < self._options.kept:
            remedy = _REMEDIES[name]
            self._found.append(
                Finding(
                    kind,
                    field,
                    str(in_log),
                    str(in_side),
                    *where,
                    side=name.value,
                    own_remedy=remedy,
                )
            )

    # --- what the log has ------------------------------------------------------------------

    def _compare(self, requests: Sequence[DispatchRequest]) -> None:
        queues: dict[tuple[str, int], list[tuple[int, tuple[int, ...]]]] = {}
        every = self._options.key_every
        for request in requests:
            unit = request[3:7]
            if (request.keys or request.tag_code) and every:
                self._with_keys += 1
                if self._with_keys % every == 0:
                    self._compare_keys(request)
            if not request.in_queue:
                continue
            queues.setdefault((request.topic, request.queue_id), []).append(
                (request.queue_offset, unit)
            )
            for light, offset in request.light_queues:
                queues.setdefault((light, 0), []).append((offset, unit))
        for (topic, queue_id), expected in queues.items():
            self._compared += len(expected)
            if expected[0][0] <= self._differing.get((topic, queue_id), -1):
                self._twice.add((topic, queue_id))
            for name in self._stores:
                if self._routes.takes(name, topic):
                    with _reading(name):
                        self._compare_queue(name, topic, queue_id, expected)
            self._job.check()

    def _compare_queue(
        self,
        name: SideName,
        topic: str,
        queue_id: int,
        expected: list[tuple[int, tuple[int, ...]]],
    ) -> None:
        if name is SideName.FILES:  # they do not keep the store time
            expected = [(offset, unit[:3]) for offset, unit in expected]
        for number, run in enumerate(_rising(expected)):
            if number:
                self._twice.add((topic, queue_id))
            first, last = run[0][0], run[-1][0]
            found = self._stores[name].stored_units(topic, queue_id, first, last - first + 1)
            self._matched[name] += len(found)
            if found != run:
                highest = self._differing.get((topic, queue_id), -1)
                self._differing[topic, queue_id] = max(last, highest)
                self._compare_units(name, topic, queue_id, run, dict(found))

    def _compare_units(
        self,
        name: SideName,
        topic: str,
        queue_id: int,
        expected: list[tuple[int, tuple[int, ...]]],
        there: dict[int, tuple[int, ...]],
    ) -> None:
        log_start = self._feed.start_offset
        for offset, unit in expected:
            other = there.get(offset)
            if other == unit or unit[0] < log_start:
                continue  # dropped since it was read
            if other is None:
                self._differ(
                    Kind.MISSING_UNIT, name, "unit", unit, NOTHING, topic, queue_id, offset
                )
                continue
            if other[0] != unit[0] and self._is_its_record(other[0], topic, queue_id, offset):
                self._twice.add((topic, queue_id))
            for field, ours, theirs in zip(_FIELDS, unit, other, strict=False):
                if ours != theirs:
                    place = (topic, queue_id, offset)
                    self._differ(Kind.WRONG_UNIT, name, field, ours, theirs, *place)

    def _compare_keys(self, request: DispatchRequest) -> None:
        hit = KeyHit(request.store_time_ms, request.physical_offset)
        before = KeyHit(request.store_time_ms, request.physical_offset - 1)
        for name, store in self._stores.items():
            if not self._routes.takes(name, request.topic):
                continue
            for key in request.keys:
                time_ms = request.store_time_ms
                with _reading(name):
                    found = store.query_key(request.topic, key, time_ms, time_ms, before, 1)
                if found != [hit] and request.physical_offset >= self._feed.start_offset:
                    shown = found[0].physical_offset if found else NOTHING
                    kind, place = Kind.MISSING_INDEX_ROW, hit.physical_offset
                    self._differ(kind, name, f"key {key}", place, shown, *request[:3])

        files = self._stores.get(SideName.FILES)
        if isinstance(files, FileSideStore) and self._routes.takes(SideName.FILES, request.topic):
            with _reading(SideName.FILES):
                tag = files.missing_tag(request)
            if tag is not None and request.physical_offset >= self._feed.start_offset:
                kind, place = Kind.MISSING_INDEX_ROW, request.physical_offset
                self._differ(kind, SideName.FILES, f"tag {tag}", place, NOTHING, *request[:3])

    # --- what the log does not have --------------------------------------------------------

    def _count(self, name: SideName, start: int, cut: int) -> None:
        """Units of a side in start..cut are as many as were compared; else which are too many."""
        store = self._stores[name]
        total = 0
        for topic, queue_id, last_offset, last_physical in store.last_units():
            self._job.check()
            if not self._routes.takes(name, topic):
                continue
            if last_physical < start:
                self._compare_end(name, topic, queue_id, last_offset)
                continue
            first, end = self._range(store, topic, queue_id, start, cut)
            total += end - first
        if total == self._matched[name]:
            return
        for topic, queue_id, _, last_physical in store.last_units():
            if self._routes.takes(name, topic) and last_physical >= start:
                self._find_extra(name, topic, queue_id, start, cut)

    def _compare_end(self, name: SideName, topic: str, queue_id: int, last_offset: int) -> None:
        """A queue whose messages are all expired goes on at one offset on both sides."""
        other = self._stores.get(name.other)
        if other is None or not self._routes.takes(name.other, topic):
            return
        end = other.next_offsets([(topic, queue_id)])[0]
        if end < last_offset + 1:
            wanted, place = last_offset + 1, (topic, queue_id, end)
            self._differ(Kind.ENDS_EARLY, name.other, "max_offset", wanted, end, *place)

    def _range(
        self, store: SideStore, topic: str, queue_id: int, start: int, cut: int
    ) -> tuple[int, int]:
        """Offsets of the queue's first unit at or above `start`, and of the first one at `cut`."""
        low, high = store.bounds(topic, queue_id, start)
        first = low
        while low < high:
            middle = (low + high) // 2
            units = store.stored_units(topic, queue_id, middle, 1)
            if units and units[0][1][0] >= cut:
                high = middle
            else:
                low = middle + 1
        return first, low

    def _find_extra(self, name: SideName, topic: str, queue_id: int, start: int, cut: int) -> None:
        store = self._stores[name]
        first, end = self._range(store, topic, queue_id, start, cut)
        for at in range(first, end, _READ):
            self._job.check()
            for offset, unit in store.stored_units(topic, queue_id, at, min(_READ, end - at)):
                if unit[0] < self._feed.start_offset or unit[0] >= cut:
                    continue
                if not self._is_its_record(unit[0], topic, queue_id, offset):
                    place = (topic, queue_id, offset)
                    self._differ(Kind.WRONG_UNIT, name, "unit", NOTHING, unit, *place)

    def _is_its_record(self, physical_offset: int, topic: str, queue_id: int, offset: int) -> bool:
        try:
            record = self._store.log.read_at(physical_offset)
        except MessageNotFoundError:
            return False
        try:
            found = dispatch_request(record, 0)
        except CorruptRecordError:  # no queue can hold it
            return False
        # A record of a topic that was deleted, and recreated, is none of its queue.
        request = self._store.admission.admit(found)
        return request is not None and stands_in(request, topic, queue_id, offset)


def _rising(
    expected: list[tuple[int, tuple[int, ...]]],
) -> Iterator[list[tuple[int, tuple[int, ...]]]]:
    """Runs in which the queue offsets rise: nearly always one, and then no unit is looked at."""
    if expected[-1][0] - expected[0][0] + 1 == len(expected):
        yield expected
        return
    begin = 0
    for at in range(1, len(expected)):
        if expected[at][0] <= expected[at - 1][0]:
            yield expected[begin:at]
            begin = at
    yield expected[begin:]
