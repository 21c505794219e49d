"""A dry run: what a migration would read, write, and need, and what is wrong before it begins.

Nothing in the store's directory changes. Speed and size come from a sample that is really
written, into a database in a temporary directory.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.inspect import Remedy
from migration.fill import LogFeed
from migration.next_step import NO_MIGRATION, NextStep
from migration.plan.log_survey import segment_files, survey_log
from migration.plan.note import take_noted_inventory
from migration.state import Phase, next_step, read_state
from store.errors import StoreFormatError
from store.format import FastParser
from store.log import Run, SegmentSet, walk
from store.store_dir import DirKind, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kvcq.inspect import Finding
    from migration.broker_config import ConfigFound
    from migration.plan.generations import DeadRecords
    from migration.state import FileLayout, MigrationState
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore
    from store.progress import Progress

#: Records of the sample: about a tenth of a second.
_SAMPLE = 20_000
_BATCH = 2048
#: Of fewer units neither speed nor size says anything of more.
_MEASURABLE = 1000


class Sample(NamedTuple):
    """What was measured on a piece of the log."""

    records: int
    units: int
    log_bytes: int
    database_bytes: int
    seconds: float


@dataclass(frozen=True)
class Plan:
    """What `start` would do. Estimates follow from the sample."""

    kind: str  # rocketmq, or ours
    phase: str | None  # None: not a store of ours, or one without a migration
    segments: int
    log_bytes: int
    bytes_to_replay: int
    messages: int
    messages_are_estimated: bool
    topics: int
    queues: int
    bytes_per_unit: float | None  # of the sample; None: too few messages to measure
    disk_needed_bytes: int
    disk_free_bytes: int
    units_per_s: float | None
    expected_s: float | None
    findings: tuple[Finding, ...]
    blocking: tuple[str, ...]  # reasons for which `start` would be refused
    next_step: NextStep
    config: tuple[ConfigFound, ...] = ()  # tables of the broker's own directory
    queues_in_rocksdb: int = 0  # RocketMQ has no files of them; they are made from the log
    dead: tuple[DeadRecords, ...] = ()  # of topics that RocketMQ deleted: they are not taken over

    @property
    def faults(self) -> list[Finding]:
        """Findings that something is done about; the others are left where they are."""
        return [each for each in self.findings if each.remedy is not Remedy.IGNORE]

    @property
    def is_clean(self) -> bool:
        return not self.faults and not self.blocking


def measure(runs: Iterator[list[DispatchRequest]]) -> Sample:
    """Write a sample of the log into a database of its own, compacted as it will be."""
    records = units = log_bytes = 0
    with tempfile.TemporaryDirectory(prefix="kvcq-plan-") as name:
        path = Path(name) / "kvcq"
        store = KvConsumeQueueStore(RocksEngine.open(path, DERIVED))
        began_s = time.perf_counter()
        seconds = 0.0
        try:
            for requests in runs:
                if not requests:
                    continue
                last = requests[-1]
                records += len(requests)
                units += sum(1 + len(each.light_queues) for each in requests if each.in_queue)
                log_bytes += last.physical_offset + last.record_size - requests[0].physical_offset
                store.dispatch(requests, last.physical_offset + last.record_size)
                if records >= _SAMPLE:
                    break
            seconds = time.perf_counter() - began_s
            store.flush()
            store.compact()
        finally:
            store.close()
        size = sum(each.stat().st_size for each in path.iterdir() if each.suffix == ".sst")
    return Sample(records, units, log_bytes, size, seconds)


def plan_directory(root: Path, layout: FileLayout | None, progress: Progress) -> Plan:
    """The plan for a directory that nobody has open. Raises StoreFormatError."""
    kind, identity = inspect(root)
    state = read_state(root)
    if kind is DirKind.ROCKETMQ or (state is not None and state.phase is Phase.ADOPTING):
        return _plan_legacy(root, layout, progress)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, f"is {kind.value}, not a store: there is nothing to plan")
    segments = SegmentSet.load(root / "commitlog", identity.segment_bytes, read_only=True)
    try:
        progress("measuring", 0.0)
        sample = measure(_runs(segments))
        log = survey_log(segments, lambda share: progress("reading the log", share))
        count, log_bytes = len(segments), log.end - log.start
    finally:
        segments.close()
    phase = None if state is None else state.phase.value
    replay = log_bytes if state is not None and state.phase is Phase.FILES else 0
    return _plan(
        "ours",
        phase,
        count,
        log_bytes,
        replay,
        sample,
        (log.records, log.units),
        len(log.topics),
        len(log.queues),
        root,
        following=NO_MIGRATION if state is None else next_step(state),
    )


def _plan_legacy(root: Path, layout: FileLayout | None, progress: Progress) -> Plan:
    inventory = take_noted_inventory(root, layout, progress)
    progress("measuring", 0.0)
    segments = SegmentSet.load(root / "commitlog", inventory.segment_bytes, read_only=True)
    try:
        sample = measure(_runs(segments))
    finally:
        segments.close()
    log = inventory.log
    found = _plan(
        "rocketmq",
        None,
        inventory.segment_count,
        log.end - log.start,
        log.end - log.start,
        sample,
        (log.records, log.units),
        len(inventory.topics),
        len(inventory.generations.bounds),
        root,
        findings=tuple(inventory.findings),
        blocking=tuple(inventory.refusals),
        following=NextStep("start"),
    )
    return replace(
        found,
        config=inventory.config.found,
        queues_in_rocksdb=inventory.queues_in_rocksdb,
        dead=tuple(inventory.generations.dead),
    )


def plan_live(store: MessageStore, state: MigrationState | None, done: int) -> Plan:
    """The plan for a store that is open, from sizes and the sample alone.

    `done`: up to where every side has all of the log.
    """
    feed = LogFeed(store)
    log = store.log
    start, end = log.start_offset, log.appended_offset
    sample = measure(_feed_runs(feed, start, store.flushed_offset))
    waiting = state is not None and state.phase is Phase.FILES
    phase = None if state is None else state.phase.value
    topics = queues = 0
    after: str | None = None
    while page := store.list_topics("", after, 1000):
        topics += len(page)
        queues += sum(each.queue_count for each in page)
        after = page[-1].name
    return _plan(
        "ours",
        phase,
        len(segment_files(store.config.root / "commitlog")),
        end - start,
        end - start if waiting else max(0, end - max(done, start)),
        sample,
        None,
        topics,
        queues,
        store.config.root,
        following=NO_MIGRATION if state is None else next_step(state),
    )


def _plan(
    kind: str,
    phase: str | None,
    segments: int,
    log_bytes: int,
    replay: int,
    sample: Sample,
    counted: tuple[int, int] | None,
    topics: int,
    queues: int,
    root: Path,
    *,
    following: NextStep,
    findings: tuple[Finding, ...] = (),
    blocking: tuple[str, ...] = (),
) -> Plan:
    if counted is None:
        share = log_bytes / sample.log_bytes if sample.log_bytes else 0.0
        counted = round(sample.records * share), round(sample.units * share)
        estimated = True
    else:
        estimated = False
    records, units = counted
    to_write = units * replay / log_bytes if log_bytes else 0.0
    per_unit = sample.database_bytes / sample.units if sample.units else 0.0
    rate = sample.units / sample.seconds if sample.seconds else 0.0
    free = shutil.disk_usage(root).free
    # Compaction holds old and new files for a while.
    needed = round(2 * per_unit * to_write)
    if needed > free:
        blocking = (*blocking, f"disk: {needed} bytes are needed, {free} are free")
    if blocking:
        following = NextStep("plan", hint="first remove what blocks the start")
    measured = sample.units >= _MEASURABLE
    return Plan(
        kind,
        phase,
        segments,
        log_bytes,
        replay,
        records,
        estimated,
        topics,
        queues,
        per_unit if measured else None,
        needed,
        free,
        rate if measured else None,
        to_write / rate if measured else None,
        findings,
        blocking,
        following,
    )


def _feed_runs(feed: LogFeed, at: int, end: int) -> Iterator[list[DispatchRequest]]:
    while at < end:
        requests, at = feed.read(at, end, _BATCH)
        yield requests


def _runs(segments: SegmentSet) -> Iterator[list[DispatchRequest]]:
    """Runs from the first segment on, for the sample."""
    for step in walk(segments, segments.first_offset, parser=FastParser(), count=_BATCH):
        if isinstance(step, Run):
            yield step.requests
