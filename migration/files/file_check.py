"""Compares queue files and index files with a log: RocketMQ's before it is taken over, or kvcq's.

The files are derived from the log, so every fault has the same remedy: rebuild them. The check gets
every record in one walk. Sums then prove that each record has its units, and each unit its record.
If sums differ, the log is walked again to find units that queues lack at their ends. If that does
not explain the difference, suspect units are compared with their records. Read-only. Memory: a few
chunks, and begin and end of each queue.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.inspect import Kind, RowSums
from kvcq.tables import units_of_queues, units_of_requests
from migration.files.index_check import IndexCheck
from migration.files.queue_check import NOWHERE, QueueCheck
from migration.formats import QUEUE_DIRECTORY, UNIT_SIZE, entries_in, parse_queue_id
from store.base import no_progress
from store.format import is_topic_name
from store.light_queue import is_light

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from kvcq.inspect import WalkAgain
    from kvcq.tables import Hashes, UnitColumns
    from migration.files.index_check import IsRequired, TagEntries
    from migration.files.options import FileQueueOptions
    from migration.files.queue_check import Hole, Log, Tell
    from migration.formats import IntArray, UnitArray
    from store.base import Progress
    from store.consume_queue import DispatchRequest

    Admit = Callable[[Sequence[DispatchRequest]], Sequence[DispatchRequest]]


_GATHERED_UNITS = 16_384


class _Range(NamedTuple):
    """A range of queue offsets."""

    begin: int
    end: int


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
        self._sums = RowSums()
        self._there = _Gathered(self._sums)
        self._ranges: dict[tuple[str, int], _Range] = {}
        self._holes: dict[tuple[str, int], list[Hole]] = {}
        self._goes_beyond = False
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
        self._sums.add_expected(_hashes(units_of_requests(self._admit(requests))))

    def compare(
        self,
        log: Log,
        walk_again: WalkAgain,
        *,
        admit: Admit,
        is_required: IsRequired,
        is_live: IsRequired | None = None,
        required_end: int = NOWHERE,
    ) -> None:
        """After the walk: report what is wrong with the files.

        `admit`, `is_required`: as for the constructor, now with full knowledge. Units of records
        from `required_end` on may be missing. `is_live`: whether a topic has records at a physical
        offset; if given, units of others are wrong.
        """
        queues = list(self._queues())
        for done, queue in enumerate(queues):
            self._progress("consume queues", done / len(queues))
            check = self._check_of(queue, log)
            check.run()
            self._ranges[queue] = _Range(
                check.end if check.begin is None else check.begin, check.end
            )
            if check.holes:
                self._holes[queue] = check.holes
            self._unit_count += check.unit_count
            self._goes_beyond |= check.goes_beyond
        self._there.settle()
        if self._sums.differ:
            self._tell_ends(walk_again, admit, required_end)
        if self._sums.differ or self._goes_beyond:
            for done, queue in enumerate(queues):
                self._progress("units to look at again", done / len(queues))
                self._check_of(queue, log).ask(is_live)
        self._progress("index files", 0.0)
        self._index.finish(log, is_required)
        self._progress("index files", 1.0)

    def _check_of(self, queue: tuple[str, int], log: Log) -> QueueCheck:
        return QueueCheck(
            self._root,
            *queue,
            file_bytes=self._options.units_per_file * UNIT_SIZE,
            log=log,
            sums=self._sums,
            add_found=self._there.add,
            tell=self._tell,
            sizes_are_due=not self._is_cut,
        )

    def _queues(self) -> Iterator[tuple[str, int]]:
        """Yield the queues. Reports directories that are not queues."""
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

    def _tell_ends(self, walk_again: WalkAgain, admit: Admit, required_end: int) -> None:
        """Report units that the queues lack at their ends and inside, and exclude these from the
        expected sums.

        After a kill, RocketMQ's queues lack units that were not written yet. Without this, most
        sums would differ, and each unit would have to be compared with its record.
        """
        sums, ranges = self._sums, self._ranges
        sums.clear_expected()
        nothing = _Range(0, -1)
        # By queue: the ranges before and after its units.
        lacking: dict[tuple[str, int], tuple[_Range, _Range]] = {}
        newest: dict[tuple[str, int], int] = {}
        # Queues in which two records of the log have the same place: the files have one of them.
        twice = set()
        faulty: set[Hole] = set()

        def take(requests: Sequence[DispatchRequest]) -> None:
            units = units_of_requests(admit(requests))
            inside = []
            for index, (queue, offset, unit) in enumerate(units.rows()):
                if offset <= newest.get(queue, -1):
                    twice.add(queue)
                newest[queue] = offset
                there = ranges.get(queue, nothing)
                if there.begin <= offset < there.end:
                    hole = self._hole_at(queue, offset)
                    if hole is None:
                        inside.append(index)
                    elif unit[0] < required_end:
                        faulty.add(hole)
                elif unit[0] < required_end:
                    before, behind = lacking.get(queue, (nothing, nothing))
                    if there is not nothing and offset < there.begin:
                        before = _with(before, offset)
                    else:
                        behind = _with(behind, offset)
                    lacking[queue] = before, behind
            sums.add_expected(_hashes(units.where(np.array(inside, np.int64))))

        walk_again(take)
        for queue, holes in self._holes.items():
            for hole in filter(faulty.__contains__, holes):
                self._tell_hole(queue, hole)
        for queue, (before, behind) in sorted(lacking.items()):
            if queue in twice:
                continue
            is_there = queue in ranges
            there = ranges.get(queue, nothing)
            if before is not nothing:
                found = f"a first unit at {there.begin}"
                self._of_queue(Kind.STARTS_LATE, queue, before.begin, there.begin, found)
            if behind is not nothing:
                kind = Kind.ENDS_EARLY if is_there else Kind.MISSING_QUEUE
                found = f"an end at {there.end}" if is_there else "no queue"
                self._of_queue(kind, queue, behind.begin, behind.end, found)

    def _hole_at(self, queue: tuple[str, int], offset: int) -> Hole | None:
        holes = self._holes.get(queue, ())
        at = bisect_right(holes, offset, key=lambda each: each.begin) - 1
        return holes[at] if at >= 0 and offset < holes[at].end else None

    def _tell_hole(self, queue: tuple[str, int], hole: Hole) -> None:
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

    def _of_queue(
        self, kind: Kind, queue: tuple[str, int], begin: int, end: int, found: str
    ) -> None:
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


class _Gathered:
    """Existing units, summed for many small queues at once."""

    def __init__(self, sums: RowSums) -> None:
        self._sums = sums
        self._parts: list[tuple[tuple[str, int], IntArray, UnitArray]] = []
        self._count = 0

    def add(self, queue: tuple[str, int], offsets: IntArray, units: UnitArray) -> None:
        self._parts.append((queue, offsets, units))
        self._count += len(offsets)
        if self._count >= _GATHERED_UNITS:
            self.settle()

    def settle(self) -> None:
        """Finish the sums of everything added."""
        if self._parts:
            self._sums.add_found(units_of_queues(*zip(*self._parts, strict=True)).hashes())
            self._parts, self._count = [], 0


def _hashes(units: UnitColumns) -> Hashes:
    """Hashes of units as files store them."""
    return units.without_times().hashes()


def _with(known: _Range, offset: int) -> _Range:
    if known.end < 0:
        return _Range(offset, offset + 1)
    return _Range(min(known.begin, offset), max(known.end, offset + 1))
