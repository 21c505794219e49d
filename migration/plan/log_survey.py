"""Reads a RocketMQ log once before it is taken over. Changes nothing.

Determines the log's end. An invalid record that is followed by valid ones is damage, not the end:
cutting the log there would lose them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from migration.plan.queue_runs import QueueRuns
from store.format import FastParser
from store.log import Damage, End, FallFinder, Run, parse_segment_name, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from kvcq.inspect import Take
    from store.consume_queue import DispatchRequest
    from store.log import SegmentSet


@dataclass
class LogSurvey:
    """The result of `survey_log`."""

    start: int = 0
    end: int = 0
    records: int = 0
    units: int = 0
    last_physical_offset: int = 0
    #: For each queue and light queue, where its offsets rise and where they fall back.
    queues: QueueRuns = field(default_factory=QueueRuns)
    #: Highest queue id of each topic, including records that are in no queue.
    topics: dict[str, int] = field(default_factory=dict)
    #: Where store times fall along the log.
    times: FallFinder = field(default_factory=FallFinder)
    end_reason: str = ""
    #: Physical offset at which the log continues after damage at `end`; None without damage.
    goes_on_at: int | None = None

    def ids_of(self, topic: str) -> list[int]:
        """Ids of the topic's queues that have records, ascending."""
        ids = range(self.topics.get(topic, -1) + 1)
        return [queue_id for queue_id in ids if (topic, queue_id) in self.queues]

    def records_of(self, topic: str) -> int:
        """Number of records in its queues, in their latest generations."""
        return sum(self.queues.last((topic, queue_id)).count for queue_id in self.ids_of(topic))

    def add(self, requests: Sequence[DispatchRequest]) -> None:
        topics = self.topics
        self.records += len(requests)
        self.queues.add(requests)
        self.times.look(requests)
        if requests:
            self.last_physical_offset = requests[-1].physical_offset
        for request in requests:
            topic, queue_id = request[:2]
            if topics.get(topic, -1) < queue_id:
                topics[topic] = queue_id
            if request.in_queue:
                self.units += 1 + len(request.light_queues)


def survey_log(
    segments: SegmentSet,
    progress: Callable[[float], None] | None = None,
    take: Take | None = None,
) -> LogSurvey:
    """Read every record up to the end, or to the first damage. Memory: one entry for each queue.

    `take` is also called with the records.
    """
    found = LogSurvey(start=segments.first_offset)
    span = max(1, len(segments) * segments.segment_bytes)
    for step in walk(segments, found.start, parser=FastParser()):
        match step:
            case Run():
                found.add(step.requests)
                if take is not None:
                    take(step.requests)
            case Damage():
                found.end, found.end_reason = step.physical_offset, step.reason
                found.goes_on_at = step.next_offset
                break
            case End():
                found.end, found.end_reason = step.next_offset, step.reason
        if progress is not None:
            progress((step.next_offset - found.start) / span)
    return found


def walk_log(segments: SegmentSet, take: Take) -> None:
    """Call `take` with the records that a survey reads."""
    for step in walk(segments, segments.first_offset, parser=FastParser()):
        if isinstance(step, Damage):
            return
        if isinstance(step, Run):
            take(step.requests)


def segment_files(commitlog: Path) -> list[Path]:
    """Segment files of a log, oldest first."""
    return sorted(path for path in commitlog.iterdir() if parse_segment_name(path.name) is not None)
