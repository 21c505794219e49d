"""The content of a RocketMQ directory, and its faults. Read-only."""

from __future__ import annotations

import logging
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from kvcq.inspect import Finding, Kind, Remedy
from migration.broker_config import BrokerConfig, is_own_topic, read_config
from migration.errors import LogDamageError, QueueNameError
from migration.files import NOWHERE, FileCheck, FileQueueOptions, RecordLookup, check_name
from migration.formats import (
    INDEX_DIRECTORY,
    QUEUE_DIRECTORY,
    entries_in,
    queues_in,
)
from migration.plan.generations import Generations, find_generations
from migration.plan.held_back import HeldBack, held_back, held_for_groups
from migration.plan.layouts import detect_layout, detect_segment_bytes
from migration.plan.log_survey import LogSurvey, survey_log, walk_log
from migration.plan.queue_evidence import QueueEvidence, own_rocksdb
from migration.waiting import (
    Watched,
    delivered_delayed,
    done_below,
    find_in_flight,
    popping_groups,
    read_timer_files,
    seen_groups,
)
from store.errors import StoreFormatError
from store.format import is_topic_name
from store.light_queue import is_light
from store.log import SegmentSet
from store.topics import Admission

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

    from migration.formats import BoolArray, IntArray
    from migration.state import FileLayout
    from store.base import Progress
    from store.consume_queue import DispatchRequest

logger = logging.getLogger(__name__)

#: Directories with queue files of other kinds. Source: RocketMQ 5, StorePathConfigHelper.
_NOT_READ = (
    (
        "batchconsumequeue",
        "batch consume queue (queue.type=BatchCQ): one unit has many offsets. The store can be "
        "taken over once its topics are deleted in RocketMQ, and their files are gone",
        Remedy.REFUSE,
    ),
    (
        "consumequeue_ext",
        "extension of a consume queue (enableConsumeQueueExt): tag codes are taken from the log; "
        "bit maps of filters are lost",
        Remedy.IGNORE,
    ),
)


@dataclass(frozen=True)
class Inventory:
    """Everything known before the directory is taken over."""

    root: Path
    segment_bytes: int
    segment_count: int
    layout: FileLayout
    log: LogSurvey
    last_store_time_ms: int
    was_closed: bool  # RocketMQ removed its abort file
    topics: dict[str, int]  # queue counts
    generations: Generations
    findings: list[Finding]
    config: BrokerConfig = field(default_factory=BrokerConfig)
    #: Number of queues that are only in RocketMQ's own RocksDB. Their files are built from the log.
    queues_in_rocksdb: int = 0
    #: Names of live queues that cannot be names of files, each with the reason.
    unnameable: list[str] = field(default_factory=list)
    #: Messages that the broker would deliver later.
    held_back: tuple[HeldBack, ...] = ()
    #: Groups whose members pop. They become shared groups.
    pops: frozenset[str] = frozenset()

    @property
    def files_are_whole(self) -> bool:
        """Whether queue files and index were proved to match the log completely."""
        return (
            self.was_closed
            and not self.queues_in_rocksdb
            and all(finding.remedy is Remedy.IGNORE for finding in self.findings)
        )

    @property
    def refusals(self) -> list[str]:
        """Reasons why the directory cannot be taken over; empty if it can."""
        log = self.log
        found = []
        if log.goes_on_at is not None:
            found.append(
                f"commitlog: {log.end_reason} at physical offset {log.end}, and the log continues "
                f"behind it at {log.goes_on_at}: restore the segment from a copy"
            )
        found += [
            f"{self.root / finding.place}: {finding.detail}"
            for finding in self.findings
            if finding.remedy is Remedy.REFUSE
        ]
        return found + self.generations.refusals + self.unnameable


def take_inventory(
    root: Path,
    layout: FileLayout | None,
    progress: Progress,
) -> Inventory:
    """Read the log once, and compare all derived files with it.

    Raises StoreFormatError if the segments are not those of one log, the sizes of queue and index
    files cannot be determined, or a table of `config/` is invalid; EngineFailedError if one of its
    databases cannot be read.
    """
    config = read_config_with_marks(root)
    segment_bytes = detect_segment_bytes(root)
    layout = layout or detect_layout(root)
    try:
        segments = SegmentSet.load(root / "commitlog", segment_bytes, read_only=True)
    except StoreFormatError as error:
        raise LogDamageError(error.path, error.reason) from error
    findings = files_not_read(root)
    with closing(segments), closing(RecordLookup(root / "commitlog", segment_bytes)) as lookup:
        files = FileCheck(
            root,
            FileQueueOptions(units_per_file=layout.units_per_file, index=layout.index),
            lambda *what, **where: findings.append(planned_finding(*what, **where)),
            log_start=segments.first_offset,
            progress=progress,
        )
        timers = read_timer_files(root)
        watched = Watched(lookup.record, done_below(config.offsets), timers)

        def take(requests: Sequence[DispatchRequest]) -> None:
            files.take(requests)
            watched.take(requests)

        log = survey_log(segments, lambda share: progress("reading the log", share), take)
        topics, generations = _find_live_records(root, log, config, lookup)
        # Which records are live is only known after the log was read. Until then all count.
        admission = Admission(
            {name: generations.live_from.get(name, 0) for name in topics}, generations.dead_light
        )
        files.compare(
            _WalkedLog(log, segments, lookup),
            partial(walk_log, segments),
            is_required=admission.is_live,
        )
        last_ms = _last_store_time_ms(lookup, log)
        in_flight = find_in_flight(watched, done_below(config.offsets))
        pops = popping_groups(config.groups, seen_groups(watched, in_flight), topics)
        waiting = held_back(log, watched, timers)
        waiting += held_for_groups(log, config, pops, in_flight)
    faults, in_rocksdb = _queues_without_files(root, findings)
    faults += _odd_offsets(generations)
    since = files.tags.since
    if since is not None and any(each.remedy is Remedy.REBUILD_INDEX for each in faults):
        since = 0  # lost files may have had tags, and additional entries are harmless
    return Inventory(
        root,
        segment_bytes,
        len(segments),
        replace(layout, index_tags_from=since),
        log,
        last_ms,
        not (root / "abort").exists(),
        topics,
        generations,
        faults,
        config,
        in_rocksdb,
        _unnameable(generations, topics),
        waiting,
        pops,
    )


def read_config_with_marks(root: Path) -> BrokerConfig:
    """Like `read_config`. Offsets include how far the broker has delivered delayed messages."""
    config = read_config(root)
    return replace(config, offsets=[*config.offsets, *delivered_delayed(root)])


def _unnameable(generations: Generations, topics: Collection[str]) -> list[str]:
    """Queues of a broker with RocksDB whose names cannot be names of directories."""
    found = []
    for name in {name for name, _ in generations.live if is_light(name) or name in topics}:
        try:
            check_name(name)
        except QueueNameError as error:
            found.append(f"{error}: delete it in RocketMQ")
    return sorted(found)


def _odd_offsets(generations: Generations) -> list[Finding]:
    """Findings for queues in which the broker assigned offsets twice or skipped some. They cannot
    be repaired."""
    found = []
    for (topic, queue_id), run in generations.live.items():
        place = f"{QUEUE_DIRECTORY}/{topic}/{queue_id}"
        where = {"topic": topic, "queue_id": queue_id, "position": 0}
        for kind, count, what in (
            (
                Kind.REPEATED_OFFSET,
                run.repeated,
                "records at the offset of an earlier one; only one of them can be read",
            ),
            (
                Kind.SKIPPED_OFFSET,
                run.left_out,
                "offsets without a record; committed offsets behind them may be too low by as much",
            ),
        ):
            if count:
                detail = f"{count} {what}"
                found.append(
                    planned_finding(kind, place, "", detail, Remedy.IGNORE, count=count, **where)
                )
    return found


class _WalkedLog:
    """The log of a survey, for the comparison with files."""

    cut_offset = NOWHERE

    def __init__(self, log: LogSurvey, segments: SegmentSet, lookup: RecordLookup) -> None:
        self.start_offset = log.start
        self.walked_end = self.end_offset = log.end
        self._is_damaged = log.goes_on_at is not None
        if self._is_damaged:  # the log continues after the damage, and units may refer to that
            self.end_offset = segments.first_offset + len(segments) * segments.segment_bytes
        self.record_at = lookup.request

    def in_question(self, offsets: IntArray) -> BoolArray:
        return (offsets >= self.start_offset) & (offsets < self.walked_end)

    def is_damaged(self, physical_offset: int) -> bool:
        return self._is_damaged and physical_offset >= self.walked_end


def files_not_read(root: Path) -> list[Finding]:
    """A finding for each directory of RocketMQ's queue files of other kinds."""
    found = []
    for name, what, remedy in _NOT_READ:
        for topic in entries_in(root / name):
            for directory in entries_in(topic) or [topic]:
                count = len(entries_in(directory))
                if count or not directory.is_dir():
                    place = str(directory.relative_to(root))
                    where = {"topic": topic.name, "position": 0, "count": count}
                    found.append(planned_finding(Kind.NOT_READ, place, "", what, remedy, **where))
    return found


def planned_finding(
    kind: Kind,
    place: str,
    expected: object,
    found: object,
    remedy: Remedy | None = None,
    **where: Any,  # noqa: ANN401 - fields of a finding
) -> Finding:
    """A finding in the files, with the planned remedy."""
    if remedy is None:
        in_index = place.split("/")[0] == INDEX_DIRECTORY
        remedy = Remedy.REBUILD_INDEX if in_index else Remedy.REBUILD_QUEUE
        if kind is Kind.FOREIGN:
            remedy = Remedy.IGNORE
    return Finding(kind, place, str(expected), str(found), side="files", own_remedy=remedy, **where)


def find_live_records(root: Path, progress: Progress) -> tuple[dict[str, int], Generations]:
    """The directory's topics with their queue counts, and which of their records are live.

    Reads the log once. Raises StoreFormatError if the segments are not those of one log, and what
    `read_config` raises.
    """
    segment_bytes = detect_segment_bytes(root)
    with (
        closing(SegmentSet.load(root / "commitlog", segment_bytes, read_only=True)) as segments,
        closing(RecordLookup(root / "commitlog", segment_bytes)) as lookup,
    ):
        log = survey_log(segments, lambda share: progress("reading the log", share))
        return _find_live_records(root, log, read_config(root), lookup)


def _queues_without_files(root: Path, findings: Sequence[Finding]) -> tuple[list[Finding], int]:
    """The findings without queues that are only in RocketMQ's RocksDB, and the number of these.

    A broker with storeType=defaultRocksDB has no queue files, one with combineCQUseRocksdbForLmq
    none for light queues.
    """
    names = {topic for topic, *_ in queues_in(root / QUEUE_DIRECTORY)}
    no_files = own_rocksdb(root) is not None and not names
    no_light_files = own_rocksdb(root) is not None and not any(is_light(name) for name in names)
    faults = []
    elsewhere = 0
    for finding in findings:
        name = finding.topic
        if finding.kind is not Kind.MISSING_QUEUE or name is None:
            faults.append(finding)
        elif no_light_files if is_light(name) else no_files:
            elsewhere += 1
        else:
            faults.append(finding)
    return faults, elsewhere


def _find_live_records(
    root: Path, log: LogSurvey, config: BrokerConfig, lookup: RecordLookup
) -> tuple[dict[str, int], Generations]:
    """Topics with their queue counts, and which of their records are live.

    A topic has the highest number of queues from the broker's table, the queue files, and the log.
    If there is a table, a topic that is only in the log was deleted, and stays deleted, except for
    topics that every broker has, which may be missing in it.
    """
    configured = config.topics
    counts = dict(configured or {})
    for topic, queue_id, _ in queues_in(root / QUEUE_DIRECTORY):
        counts[topic] = max(counts.get(topic, 1), queue_id + 1)
    for name in log.topics:
        if configured is None or is_own_topic(name):
            counts.setdefault(name, 1)
    known = {name: (configured or {}).get(name) for name in counts}
    with closing(QueueEvidence(root, log.start, lookup.request)) as evidence:
        generations = find_generations(log.queues, known, evidence)
    for name, queue_id in log.topics.items():
        if name in known and name not in generations.live_from:
            counts[name] = max(counts[name], queue_id + 1)
    for name, queue_id in generations.live:
        if name in known:
            counts[name] = max(counts[name], queue_id + 1)
    # Light queues have no configuration.
    topics = {name: count for name, count in sorted(counts.items()) if is_topic_name(name)}
    for name in counts.keys() - topics.keys():
        if not is_light(name):
            logger.warning("topic %r is left out: no topic here can have that name", name)
    return topics, generations


def _last_store_time_ms(lookup: RecordLookup, log: LogSurvey) -> int:
    """Store time of the newest record of a queue; 0 if there is none."""
    return lookup.store_time_ms(log.last_physical_offset) or 0 if log.records else 0
