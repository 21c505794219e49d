"""Verifies a running store piece by piece: records by their CRC, units by their records.

It reads the log from the file like other readers, a given amount at a time. Appends, deletions and
retention continue meanwhile; what was dropped or deleted since it was read is not a finding. It
only reports, and repairs nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.inspect.findings import Findings, Kind, Remedy
from kvcq.inspect.lookup import Fault, faults_of, request_at
from kvcq.inspect.rows import ROCKSDB
from store.errors import StoreError
from store.format import FastParser
from store.light_queue import is_light
from store.log import Damage, Poison, PreadWindow, Run, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq.inspect.findings import Finding
    from store.consume_queue import ConsumeQueueStore, DispatchRequest
    from store.log import CommitLog
    from store.topics import Admission

#: Records of one step: a millisecond or two of the interpreter, which other threads wait for.
_RUN = 256
#: Fields of a unit that every side keeps: physical offset, size, tag code.
_KEPT = 3

#: Queue offset, and the unit that the record gives there, with its store time.
_Expected = tuple[int, tuple[int, ...]]


class Scrub:
    """One pass over the log. Not thread-safe. Memory: a window of 8 MiB."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        admission: Callable[[], Admission],
        start: int,
        *,
        log_only: bool = False,
    ) -> None:
        """`start`: physical offset where a record begins, or anything below the log's start."""
        # Constant after construction.
        self._log = log
        self._queues = queues
        self._admission = admission
        self._log_only = log_only
        self._parser = FastParser()
        self._look = PreadWindow()
        self._findings = Findings()
        # Counted.
        self.position = max(start, log.start_offset)
        self.bytes = 0
        self.records = 0
        self.units = 0
        self.damaged_records = 0
        self.wrong_units = 0

    @property
    def findings(self) -> list[Finding]:
        """The findings in order; frequent kinds are only counted beyond a limit."""
        return self._findings.result()

    def advance(self, end: int, budget_bytes: int) -> bool:
        """Verify about `budget_bytes` more, below `end`. Returns whether there is more to do.

        `end`: where a record begins or the log ends; everything below must be dispatched. Raises
        StoreError, and OSError if the disk or a queue cannot be read; the next call retries the
        same place.
        """
        stop = self.position + budget_bytes
        while self.position < end:
            try:
                self._walk(end, stop)
            except (StoreError, OSError):
                if self.position >= self._log.start_offset:
                    raise
                self.position = self._log.start_offset  # dropped while it was read
                continue
            break
        return self.position < end

    def _walk(self, end: int, stop: int) -> None:
        for step in walk(
            self._log.segments,
            self.position,
            end=end,
            parser=self._parser,
            count=_RUN,
            look=self._look,
        ):
            match step:
                case Run():
                    if not self._log_only:
                        self._compare(step.requests)
                    self.records += step.record_count
                case Poison():  # neither dispatch nor a rebuild makes anything of it
                    self.records += 1
                case Damage():
                    self._damaged(step)
            self.bytes += max(0, step.next_offset - self.position)
            self.position = step.next_offset
            if self.position >= min(stop, end):
                return

    def _damaged(self, damage: Damage) -> None:
        segment = self._log.segments.find(damage.physical_offset)
        if segment is None:
            return  # dropped since
        self.damaged_records += 1
        self._findings.add(
            Kind.DAMAGED_RECORD,
            f"commitlog/{segment.path.name}",
            "a whole record",
            f"{damage.reason}; the log goes on at {damage.next_offset}",
            side="log",
            physical_offset=damage.physical_offset,
        )

    # --- units -----------------------------------------------------------------------------

    def _compare(self, requests: Sequence[DispatchRequest]) -> None:
        queues: dict[tuple[str, int], list[_Expected]] = {}
        # Fields by their places: by name each costs as much as all else here.
        for request in self._admission().admit_all(requests):
            if not request[9]:
                continue
            unit = request[3:7]
            queues.setdefault(request[:2], []).append((request[2], unit))
            for light, offset in request[8]:
                queues.setdefault((light, 0), []).append((offset, unit))
        for (topic, queue_id), expected in queues.items():
            self._compare_queue(topic, queue_id, expected)
            self.units += len(expected)

    def _compare_queue(self, topic: str, queue_id: int, expected: list[_Expected]) -> None:
        first = min(expected)[0]
        span = max(expected)[0] - first + 1
        if span > 2 * len(expected):  # the offsets of a queue fall where a topic had two lives
            for each in expected:
                found = self._queues.read_units(topic, queue_id, each[0], 1)
                self._compare_units(topic, queue_id, [each], found)
            return
        found = self._queues.read_units(topic, queue_id, first, span)
        if found != expected:  # nearly always they are the same, in order, with their times
            self._compare_units(topic, queue_id, expected, found)

    def _compare_units(
        self,
        topic: str,
        queue_id: int,
        expected: Sequence[_Expected],
        units: Sequence[tuple[int, tuple[int, ...]]],
    ) -> None:
        """`units`: those in the queue, possibly without a store time."""
        there = {offset: unit[:_KEPT] for offset, unit in units}
        for offset, whole in expected:
            unit = whole[:_KEPT]
            found = there.get(offset)
            if found == unit or not self._is_live(topic, unit[0]):
                continue
            if found is not None and not self._faults_of(topic, queue_id, offset, found):
                continue  # the log has two records for one place, and the queue has one of them
            self.wrong_units += 1
            self._findings.add(
                Kind.MISSING_UNIT if found is None else Kind.WRONG_UNIT,
                "consume queue",
                unit,
                "nothing" if found is None else found,
                side=ROCKSDB,
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=unit[0],
                remedy=Remedy.REBUILD_QUEUE,
            )

    def _faults_of(
        self, topic: str, queue_id: int, offset: int, unit: tuple[int, ...]
    ) -> list[Fault]:
        record = request_at(self._log, unit[0])
        return faults_of(record, (topic, queue_id), offset, unit, self._admission().is_live)

    def _is_live(self, topic: str, physical_offset: int) -> bool:
        """Whether the record is still in the log, and its topic was not deleted since."""
        if physical_offset < self._log.start_offset:
            return False
        if not self._admission().is_live(topic, physical_offset):
            return False
        return not is_light(topic) or self._was_there(topic, physical_offset)

    def _was_there(self, light_queue: str, physical_offset: int) -> bool:
        """Whether the light queue has rows, and not only later ones: no row of state says when it
        was deleted, but a deletion leaves no rows, and what is put then begins it anew."""
        low, high = self._queues.bounds(light_queue, 0, self._log.start_offset)
        first = self._queues.read_units(light_queue, 0, low, 1)
        return high > 0 and (not first or first[0][1][0] <= physical_offset)
