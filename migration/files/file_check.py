"""Compares queue files and index files with a log: RocketMQ's before it is taken over, or kvcq's.

Everything in them is derived from the log, so every fault has the same remedy: derive it again.
Pass it every record in one walk. Units: see kvcq/inspect/comparison.py. What the queues lack is
reported as ranges. Read-only. Memory: a few chunks, and begin and end of each queue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.inspect import Comparison, Kind, faults_of
from kvcq.tables import pages_of_queues, units_of_requests
from migration.files.index_check import IndexCheck
from migration.files.queue_check import NOWHERE, UNCOVERED, QueueCheck
from migration.formats import (
    QUEUE_DIRECTORY,
    UNIT_SIZE,
    entries_in,
    file_name,
    files_in,
    parse_queue_id,
)
from store.base import no_progress
from store.format import is_topic_name
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kvcq.inspect import Fault, Queue, WalkAgain
    from kvcq.tables import Unit, UnitColumns
    from migration.files.index_check import IsRequired, TagEntries
    from migration.files.options import FileQueueOptions
    from migration.files.queue_check import Hole, Log, Tell
    from migration.formats import IntArray, UnitArray
    from store.base import Progress
    from store.consume_queue import DispatchRequest

    Admit = Callable[[Sequence[DispatchRequest]], Sequence[DispatchRequest]]


class _Range(NamedTuple):
    """A range of queue offsets."""

    begin: int
    end: int


_NOTHING = _Range(0, -1)


class FileCheck:
    """The files below one root. Call `take` with every record, then `compare`."""

    def __init__(
        self,
        root: Path,
        options: FileQueueOptions,
        tell: Tell,
        *,
        log_start: int,
        admit: Admit | None = None,
        is_required: IsRequired | None = None,
        lacks_tag: Callable[[Sequence[DispatchRequest]], list[DispatchRequest]] | None = None,
        cut_offset: int = NOWHERE,
        progress: Progress = no_progress,
    ) -> None:
        """`admit`: selects the parts of records that should have units; None while that is unknown:
        all. For the others see IndexCheck."""
        self._root = root
        self._options = options
        self._tell = tell
        self._admit = admit or (lambda requests: requests)
        self._is_cut = cut_offset < NOWHERE
        self._progress = progress
        self._units = Comparison(self, with_times=False)
        self._were_read = False
        self._ranges: dict[Queue, _Range] = {}
        self._holes: dict[Queue, list[Hole]] = {}
        #: Ranges before and after the units that a queue has.
        self._lacking: dict[Queue, tuple[_Range, _Range]] = {}
        self._faulty: set[Hole] = set()
        self._newest: dict[Queue, int] = {}
        #: Queues with a place that two records of the log have: the files have either of them.
        self._twice: set[Queue] = set()
        #: The queue of the last wrong unit, and where its files begin, in bytes.
        self._judged: Queue = ("", 0)
        self._starts: list[int] = []
        #: Its wrong units by file and kind: the first, and their number.
        self._wrong: dict[tuple[int, Kind], tuple[tuple[int, Unit, Fault], int]] = {}
        self._index = IndexCheck(
            root,
            options.index,
            tell,
            log_start=log_start,
            is_required=is_required,
            lacks_tag=lacks_tag,
            cut_offset=cut_offset,
        )
        self._unit_count = 0

    @property
    def tags(self) -> TagEntries:
        """Whether the index has tags; valid after all records were taken."""
        return self._index.tags

    @property
    def counts(self) -> tuple[int, int]:
        """Number of units and index entries checked."""
        return self._unit_count, self._index.entry_count

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Take the next records of the log, ascending."""
        self._index.take(requests)
        self._units.expect(units_of_requests(self._admit(requests)))

    def compare(
        self,
        log: Log,
        walk_again: WalkAgain,
        *,
        is_required: IsRequired,
        is_live: IsRequired | None = None,
    ) -> None:
        """After the walk: report what is wrong with the files.

        `is_required`: whether a record of that topic or light queue at that physical offset must
        have its unit and keys. `is_live`: whether a topic has records at a physical offset; if
        given, units of others are wrong.
        """
        self._log, self._is_required, self._is_live = log, is_required, is_live
        self._all_queues = list(self._queues())
        self._units.read()
        if self._units.differ:
            walk_again(self._find_missing)
            self._tell_missing()
        if self._units.differ:
            self._units.find_wrong()
        self._tell_wrong()
        self._progress("index files", 0.0)
        self._index.finish(log, is_required)
        self._progress("index files", 1.0)

    # --- the units, see UnitSide -----------------------------------------------------------

    def units(self) -> Iterator[UnitColumns]:
        return pages_of_queues(self._parts())

    def _parts(self) -> Iterator[tuple[Queue, IntArray, UnitArray]]:
        """The first time structure is reported, and ends and holes are noted; units behind the end
        of the walk are judged at once, since no sum has them."""
        is_first, self._were_read = not self._were_read, True
        step = "consume queues" if is_first else "units to look at again"
        for done, queue in enumerate(self._all_queues):
            self._progress(step, done / len(self._all_queues))
            check = QueueCheck(
                self._root,
                *queue,
                file_bytes=self._options.units_per_file * UNIT_SIZE,
                log=self._log,
                tell=self._tell if is_first else _already_reported,
                sizes_are_due=not self._is_cut,
            )
            for offsets, units in check.units():
                places = units["physical_offset"].astype(np.int64)
                wanted = self._log.in_question(places)
                if not wanted.all():
                    beyond = np.flatnonzero(places >= self._log.walked_end)
                    for at in beyond.tolist() if is_first else ():
                        self.judge(queue, int(offsets[at]), units[at].item())
                    offsets, units = offsets[wanted], units[wanted]
                yield queue, offsets, units
            if is_first:
                begin = check.end if check.begin is None else check.begin
                self._ranges[queue] = _Range(begin, check.end)
                self._unit_count += check.unit_count
                if check.holes:
                    self._holes[queue] = check.holes

    def places_in(self, queue: Queue, offsets: Sequence[int]) -> set[int]:
        begin, end = self._ranges.get(queue, _NOTHING)
        inside = (offset for offset in offsets if begin <= offset < end)
        return {offset for offset in inside if self._hole_at(queue, offset) is None}

    def is_missing(self, queue: Queue, offset: int, unit: Unit) -> None:
        """Noted, and reported as ranges: a broker that was killed has not written its last ones."""
        if not self._is_required(queue[0], unit[0]):
            return
        hole = self._hole_at(queue, offset)
        if hole is not None:
            self._faulty.add(hole)
            return
        before, behind = self._lacking.get(queue, (_NOTHING, _NOTHING))
        if queue in self._ranges and offset < self._ranges[queue].begin:
            before = _with(before, offset)
        else:
            behind = _with(behind, offset)
        self._lacking[queue] = before, behind

    def judge(self, queue: Queue, offset: int, unit: Unit) -> None:
        """Of each kind in a file the first is reported, and the others are counted."""
        record = self._log.record_at(unit[0])
        if record is None and self._log.is_damaged(unit[0]):
            return
        for fault in faults_of(record, queue, offset, unit, self._is_live)[:1]:
            if queue != self._judged:
                self._tell_wrong()
                directory = self._root / QUEUE_DIRECTORY / queue[0] / str(queue[1])
                self._judged, self._starts = queue, [start for start, _ in files_in(directory)]
            start = self._starts[bisect_right(self._starts, offset * UNIT_SIZE) - 1]
            first, count = self._wrong.get((start, fault.kind), ((offset, unit, fault), 0))
            self._wrong[start, fault.kind] = first, count + 1

    # --- reports ---------------------------------------------------------------------------

    def _tell_wrong(self) -> None:
        for (start, kind), ((offset, unit, fault), count) in self._wrong.items():
            topic, queue_id = self._judged
            expected, found = fault.in_words(unit)
            may_be_damaged = kind is Kind.WRONG_UNIT and fault.field != "record_size"
            self._tell(
                kind,
                f"{QUEUE_DIRECTORY}/{topic}/{queue_id}/{file_name(start)}",
                expected,
                f"{found}{UNCOVERED}" if may_be_damaged else found,
                topic=topic,
                queue_id=queue_id,
                queue_offset=offset,
                physical_offset=unit[0],
                position=offset * UNIT_SIZE - start,
                count=count,
            )
        self._wrong.clear()

    def _find_missing(self, requests: Sequence[DispatchRequest]) -> None:
        units = units_of_requests(self._admit(requests))
        for queue, offset, unit in units.rows():
            if self._is_required(queue[0], unit[0]):
                if offset <= self._newest.get(queue, -1):
                    self._twice.add(queue)
                self._newest[queue] = offset
        self._units.find_missing(units)

    def _tell_missing(self) -> None:
        """Report what the queues lack inside and at their ends."""
        for queue, holes in self._holes.items():
            for hole in filter(self._faulty.__contains__, holes):
                self._tell_hole(queue, hole)
        for queue, (before, behind) in sorted(self._lacking.items()):
            if queue in self._twice:
                continue
            is_there = queue in self._ranges
            there = self._ranges.get(queue, _NOTHING)
            if before is not _NOTHING:
                found = f"a first unit at {there.begin}"
                self._of_queue(Kind.STARTS_LATE, queue, before.begin, there.begin, found)
            if behind is not _NOTHING:
                kind = Kind.ENDS_EARLY if is_there else Kind.MISSING_QUEUE
                found = f"an end at {there.end}" if is_there else "no queue"
                self._of_queue(kind, queue, behind.begin, behind.end, found)

    # --- directories -----------------------------------------------------------------------

    def _queues(self) -> Iterator[Queue]:
        """Reports directories that are not queues on the way."""
        for topic in entries_in(self._root / QUEUE_DIRECTORY):
            if not topic.is_dir():
                self._foreign(topic, "no directory of a topic")
                continue
            if not is_light(topic.name) and not is_topic_name(topic.name):
                found = "of a topic whose name no topic here can have: its messages are left out"
                self._foreign(topic, found)
                continue
            for directory in entries_in(topic):
                queue_id = parse_queue_id(directory.name) if directory.is_dir() else None
                if queue_id is None:
                    self._foreign(directory, "no directory of a queue", topic.name)
                else:
                    yield topic.name, queue_id

    def _foreign(self, path: Path, found: str, topic: str | None = None) -> None:
        place = str(path.relative_to(self._root))
        self._tell(Kind.FOREIGN, place, "", found, topic=topic, position=0)

    def _hole_at(self, queue: Queue, offset: int) -> Hole | None:
        holes = self._holes.get(queue, ())
        at = bisect_right(holes, offset, key=lambda each: each.begin) - 1
        return holes[at] if at >= 0 and offset < holes[at].end else None

    def _tell_hole(self, queue: Queue, hole: Hole) -> None:
        self._tell(
            Kind.HOLE,
            hole.place,
            "a unit",
            "no unit, but units behind it",
            topic=queue[0],
            queue_id=queue[1],
            queue_offset=hole.begin,
            position=hole.position,
            count=hole.end - hole.begin,
        )

    def _of_queue(self, kind: Kind, queue: Queue, begin: int, end: int, found: str) -> None:
        topic, queue_id = queue
        self._tell(
            kind,
            f"{QUEUE_DIRECTORY}/{topic}/{queue_id}",
            f"offsets {begin} to {end - 1}, which the log has",
            found,
            topic=topic,
            queue_id=queue_id,
            queue_offset=begin,
            position=0,
            count=end - begin,
        )


def _already_reported(*_what: object, **_where: object) -> None:
    """Ignores structure, which was reported when it was first read."""


def _with(known: _Range, offset: int) -> _Range:
    if known.end < 0:
        return _Range(offset, offset + 1)
    return _Range(min(known.begin, offset), max(known.end, offset + 1))
