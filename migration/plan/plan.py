"""A dry run: what a migration would read, write and need, and faults found before it begins.

Changes nothing in the store's directory. Speed and size are measured by writing a sample into a
database in a temporary directory.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.inspect import Remedy
from migration.fill import LogFeed
from migration.next_step import NO_MIGRATION, NextStep
from migration.plan.layouts import refuse_other_layouts
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
    from migration.plan.held_back import HeldBack
    from migration.state import FileLayout, MigrationState
    from store.base import Progress
    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore

#: Records of the sample; writing them takes about 0.1 s.
_SAMPLE = 20_000
_BATCH = 2048
#: With fewer units, neither speed nor size can be extrapolated.
_MEASURABLE = 1000


class Sample(NamedTuple):
    """Measurements of a sample of the log."""

    records: int
    units: int
    log_bytes: int
    database_bytes: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `start` would do. Estimates are based on the sample."""

    kind: str  # "rocketmq" or "ours"
    phase: str | None = None  # None: not a kvcq store, or one without a migration
    segments: int
    log_bytes: int
    bytes_to_replay: int
    messages: int = 0
    messages_are_estimated: bool = False
    topics: int
    queues: int
    bytes_per_unit: float | None = None  # from the sample; None: too few messages to measure
    disk_needed_bytes: int = 0
    disk_free_bytes: int = 0
    units_per_s: float | None = None
    expected_s: float | None = None
    findings: tuple[Finding, ...] = ()
    blocking: tuple[str, ...] = ()  # reasons for which `start` would be refused
    next_step: NextStep
    config: tuple[ConfigFound, ...] = ()  # tables of the broker's own directory
    queues_in_rocksdb: int = 0  # without files in RocketMQ; built from the log
    dead: tuple[DeadRecords, ...] = ()  # of deleted topics; not taken over
    held_back: tuple[HeldBack, ...] = ()  # messages that the broker would deliver later

    @property
    def faults(self) -> list[Finding]:
        """Findings that will be repaired. Others are only information."""
        return [each for each in self.findings if each.remedy is not Remedy.IGNORE]

    @property
    def is_clean(self) -> bool:
        return not self.faults and not self.blocking


def measure(runs: Iterator[list[DispatchRequest]]) -> Sample:
    """Write a sample of the log into a separate database, with the usual compaction."""
    records = units = log_bytes = 0
    with tempfile.TemporaryDirectory(prefix="kvcq-plan-") as name:
        path = Path(name) / "kvcq"
        with closing(KvConsumeQueueStore(RocksEngine.open(path, DERIVED))) as store:
            began_s = time.perf_counter()
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
        size = sum(each.stat().st_size for each in path.iterdir() if each.suffix == ".sst")
    return Sample(records, units, log_bytes, size, seconds)


def plan_directory(root: Path, layout: FileLayout | None, progress: Progress) -> Plan:
    """The plan for a closed directory. Raises StoreFormatError."""
    kind, identity = inspect(root)
    state = read_state(root)
    if kind is DirKind.ROCKETMQ or (state is not None and state.phase is Phase.ADOPTING):
        return _plan_legacy(root, layout, progress)
    if identity is None:
        refuse_other_layouts(root)
        raise StoreFormatError(root, "is not a store: there is nothing to plan")
    with closing(
        SegmentSet.load(root / "commitlog", identity.segment_bytes, read_only=True)
    ) as segments:
        progress("measuring", 0.0)
        sample = measure(_runs(segments))
        log = survey_log(segments, lambda share: progress("reading the log", share))
        count, log_bytes = len(segments), log.end - log.start
    plan = Plan(
        kind="ours",
        phase=None if state is None else state.phase.value,
        segments=count,
        log_bytes=log_bytes,
        bytes_to_replay=log_bytes if state is not None and state.phase is Phase.FILES else 0,
        messages=log.records,
        topics=len(log.topics),
        queues=len(log.queues),
        next_step=NO_MIGRATION if state is None else next_step(state),
    )
    return _estimated(plan, sample, log.units, root)


def _plan_legacy(root: Path, layout: FileLayout | None, progress: Progress) -> Plan:
    refuse_other_layouts(root)
    inventory = take_noted_inventory(root, layout, progress)
    progress("measuring", 0.0)
    with closing(
        SegmentSet.load(root / "commitlog", inventory.segment_bytes, read_only=True)
    ) as segments:
        sample = measure(_runs(segments))
    log = inventory.log
    plan = Plan(
        kind="rocketmq",
        segments=inventory.segment_count,
        log_bytes=log.end - log.start,
        bytes_to_replay=log.end - log.start,
        messages=log.records,
        topics=len(inventory.topics),
        queues=len(inventory.generations.live),
        findings=tuple(inventory.findings),
        blocking=tuple(inventory.refusals),
        next_step=NextStep("start"),
        config=inventory.config.found,
        queues_in_rocksdb=inventory.queues_in_rocksdb,
        dead=tuple(inventory.generations.dead),
        held_back=inventory.held_back,
    )
    return _estimated(plan, sample, log.units, root)


def plan_live(store: MessageStore, state: MigrationState | None, done: int) -> Plan:
    """The plan for an open store, from sizes and the sample only.

    `done`: physical offset up to which every side has the log.
    """
    feed = LogFeed(store)
    log = store.log
    start, end = log.start_offset, log.appended_offset
    sample = measure(_feed_runs(feed, start, store.flushed_offset))
    waiting = state is not None and state.phase is Phase.FILES
    counts = [topic.queue_count for topic in store.tables.every_topic()]
    share = (end - start) / sample.log_bytes if sample.log_bytes else 0.0
    plan = Plan(
        kind="ours",
        phase=None if state is None else state.phase.value,
        segments=len(segment_files(store.config.root / "commitlog")),
        log_bytes=end - start,
        bytes_to_replay=end - start if waiting else max(0, end - max(done, start)),
        messages=round(sample.records * share),
        messages_are_estimated=True,
        topics=len(counts),
        queues=sum(counts),
        next_step=NO_MIGRATION if state is None else next_step(state),
    )
    return _estimated(plan, sample, round(sample.units * share), store.config.root)


def _estimated(plan: Plan, sample: Sample, units: int, root: Path) -> Plan:
    """The plan with estimates from the sample, for a log with that many units."""
    to_write = units * plan.bytes_to_replay / plan.log_bytes if plan.log_bytes else 0.0
    per_unit = sample.database_bytes / sample.units if sample.units else 0.0
    rate = sample.units / sample.seconds if sample.seconds else 0.0
    free = shutil.disk_usage(root).free
    # During compaction old and new files exist.
    needed = round(2 * per_unit * to_write)
    blocking, following = plan.blocking, plan.next_step
    if needed > free:
        blocking = (*blocking, f"disk: {needed} bytes are needed, {free} are free")
    if blocking:
        following = NextStep("plan", hint="first remove what blocks the start")
    measured = sample.units >= _MEASURABLE
    return replace(
        plan,
        bytes_per_unit=per_unit if measured else None,
        disk_needed_bytes=needed,
        disk_free_bytes=free,
        units_per_s=rate if measured else None,
        expected_s=to_write / rate if measured else None,
        blocking=blocking,
        next_step=following,
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
