"""Put a store together, in the one order that is safe, and bring it to one dispatch point.

recover: checkpoint → segments → cut the torn tail.
settle: databases that are not ahead of the log.
derive: replay what they do not have of the log, state and queues.
start: only then writers, services and jobs.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.config import FlushMode
from store.derive import (
    KeptBytes,
    QueueRepair,
    ReputService,
    StateApplier,
    Superseded,
    read_time_fall,
)
from store.errors import CorruptRecordError, FlushError
from store.format import Checkpoint, read_noted
from store.jobs import Jobs
from store.log import (
    BatchEncoder,
    CommitLog,
    DirectSource,
    DiskGuard,
    GroupCommitService,
    IntervalFlushService,
    PageAhead,
    Preallocator,
    QueueOffsets,
    Recovered,
    RetentionService,
    SegmentSet,
    Watermark,
    recover_log,
)
from store.message_store import MessageStore
from store.puts import AppendPath
from store.reads import LatestMessages, Reader, TopicRetention
from store.state import StateView
from store.topics import Topics
from store.upkeep import Checkpoints, DurableState, Services, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import Segment
    from store.state import Snapshots, StateStore
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


def assemble(
    config: StoreConfig,
    clock: Clock,
    directory: StoreDir,
    databases: Databases,
    progress: Progress,
    *,
    still_needed: Callable[[], int] | None = None,
) -> MessageStore:
    """A running store in `directory`, which is open; takes over `directory` and `databases`.

    `still_needed` is a physical offset at and above which somebody has to read the log yet:
    retention stays below it.
    Raises StoreFormatError, CorruptRecordError, DiskFullError; everything is closed then.
    Durability: what a crash left is recovered, and the recovered state is durable, on return.
    """
    parts = Parts(config, clock, directory, databases, progress)
    with ExitStack() as undo:
        undo.callback(directory.close)
        undo.callback(databases.close)
        log = recover(parts, undo)
        store = start(parts, log, derive(parts, log), still_needed)
        undo.pop_all()
        return store


class Databases(Protocol):
    """What is derived from the log: queues and state, open."""

    @property
    def queues(self) -> ConsumeQueueStore: ...

    @property
    def state(self) -> StateStore: ...

    @property
    def reach(self) -> int:
        """Physical offset up to which the one that has come farthest has seen the log."""
        ...

    def settle(self, segments: SegmentSet) -> None:
        """The log is recovered, and ends where `segments` say. What is ahead of it is replaced.

        `queues` and `state` may be others from here on. Raises StoreFormatError when nothing that
        is not ahead has what the log alone cannot give.
        """
        ...

    def replayed(self, segments: SegmentSet) -> None:
        """Queues and state are at the log's end, all of which is durable."""
        ...

    def snapshots(self, segments: SegmentSet, flush_log: Callable[[], None]) -> Snapshots:
        """Those of the store that is opened; `flush_log` makes what was appended durable."""
        ...

    def close(self) -> None: ...


class Parts(NamedTuple):
    """What a store is put together from."""

    config: StoreConfig
    clock: Clock
    directory: StoreDir
    databases: Databases
    progress: Progress


class RecoveredLog(NamedTuple):
    """The log, whole up to its end."""

    segments: SegmentSet
    checkpoint: Checkpoint | None  # the newest that could be read
    flushed_offset: int  # what the checkpoint says, 0 without one
    last_store_time_ms: int
    durable: DurableState


class Derived(NamedTuple):
    """The append path and what is derived from the log, level with its end."""

    log: CommitLog
    topics: Topics
    view: StateView
    applier: StateApplier
    reput: ReputService
    flushed: Watermark


def recover(parts: Parts, undo: ExitStack) -> RecoveredLog:
    """Find where the log ends, and cut the torn tail."""
    config, _, directory, databases, progress = parts
    noted = read_noted(directory.checkpoint, directory.previous_checkpoint)
    for fault in noted.faults:
        logger.warning("%s", fault)
    checkpoint = noted.checkpoint or Checkpoint()
    flushed = checkpoint.flushed_offset
    source = DirectSource(directory.commitlog, config.segment_bytes, warm_up=config.warm_up)
    preallocator = Preallocator(
        source, config.segment_bytes, ahead=None if config.preallocate else 0
    )
    segments = SegmentSet.load(directory.commitlog, config.segment_bytes, preallocator)
    undo.callback(segments.close)
    span = max(1, segments.end_offset - flushed)
    recovered = recover_log(
        segments,
        flushed,
        lambda at: progress("checking the log", (at - flushed) / span),
        clean=directory.was_closed_cleanly,
        is_newest=noted.is_newest,
        skip_damaged=config.skip_damaged_records,
        dispatched_offset=databases.reach,
    )
    databases.settle(segments)
    if config.preallocate and segments.last is not None:
        preallocator.start()
        preallocator.prepare(segments.last.start_offset + config.segment_bytes)
    queues_end = databases.queues.dispatched_offset
    durable = DurableState(
        queues_end,
        # What is derived again from here on is not durable yet.
        checkpoint.queue_time_ms if queues_end >= flushed else 0,
        _last_record(recovered, checkpoint),
    )
    last_time_ms = recovered.last_store_time_ms or checkpoint.log_time_ms
    return RecoveredLog(segments, noted.checkpoint, flushed, last_time_ms, durable)


def derive(parts: Parts, recovered: RecoveredLog) -> Derived:
    """Bring topics and queues to the end of the log."""
    config, clock, directory, databases, progress = parts
    queues, state = databases.queues, databases.state
    segments = recovered.segments
    end = segments.end_offset
    assert queues.dispatched_offset <= end, "queues ahead of the log are replaced"
    assert state.point <= end, "a state ahead of the log is replaced"
    flushed = Watermark("flushed", end)
    # The state may be ahead of the queues: what it has is passed over.
    dispatched = Watermark("dispatched", min(queues.dispatched_offset, state.point))
    view = StateView(state, lambda: dispatched.value)
    topics = Topics(config, state, view, queues, clock)
    encoder = BatchEncoder(config.store_host, crc_item=config.crc_item)
    log = CommitLog(
        segments,
        QueueOffsets(
            config.hot_queue_limit,
            config.light_offset_bytes,
            topics.load,
            lambda: dispatched.value,
        ),
        encoder,
        clock,
        hot_read_bytes=config.hot_read_bytes,
        last_store_time_ms=recovered.last_store_time_ms,
    )
    sync = config.flush_mode is FlushMode.SYNC
    applier = StateApplier(log, state, queues)
    applier.add_listener(topics.changed)
    reput = ReputService(
        log,
        queues,
        dispatched,
        (lambda: flushed.value) if sync else (lambda: log.appended_offset),
        topics.admission,
        applier,
        inline=not sync,
        skip_damaged=config.skip_damaged_records,
    )
    first = max(dispatched.value, segments.first_offset)
    span = max(1, end - first)
    reput.catch_up(
        lambda at: progress("replaying the log", (at - first) / span)
    )
    assert dispatched.value == end, f"dispatched {dispatched.value} of {end}"
    state.advance(end)
    databases.replayed(segments)
    return Derived(log, topics, view, applier, reput, flushed)


def start(
    parts: Parts,
    recovered: RecoveredLog,
    derived: Derived,
    still_needed: Callable[[], int] | None,
) -> MessageStore:
    """Writers, services and jobs; the directory counts as open from here on."""
    config, clock, directory, databases, _ = parts
    queues, state, notes = databases.queues, databases.state, directory.notes
    log, topics, view, applier, reput, flushed = derived
    segments = recovered.segments
    flush_service = (
        GroupCommitService(log, flushed, config.group_commit_gather_ms / 1000)
        if config.flush_mode is FlushMode.SYNC
        else IntervalFlushService(log, flushed, config, clock)
    )
    _follow_flush(flushed, reput)
    guard = DiskGuard(directory.root, config)
    appends = AppendPath(config, log, reput, flush_service, guard, topics, view, applier)
    kept_bytes = KeptBytes(queues, state)
    superseded = Superseded(state, appends.append_entries)
    retained = TopicRetention(queues, kept_bytes, clock)
    reader = Reader(log, queues, topics, retained, superseded)
    repair = QueueRepair(log, queues, topics, reader.begins_at, reput.paused, applier)
    checkpoints = Checkpoints(
        config,
        clock,
        directory,
        appends,
        queues,
        state,
        recovered.durable,
    )
    snapshots = databases.snapshots(segments, appends.flush)
    upkeep = Upkeep(directory, appends, queues, state, notes, repair, checkpoints, snapshots)
    time_fall = read_time_fall(notes)
    retention = RetentionService(
        segments,
        guard,
        config,
        clock,
        last_store_time_ms=lambda segment: _newest_time_ms(log, segment),
        # A queue whose only records are dropped is known to the queues alone: those must be
        # durable, or its offsets would begin again after a crash.
        safe_end=lambda: min(
            checkpoints.queues_end,
            reput.dispatched.value if still_needed is None else still_needed(),
        ),
        before_drop=lambda _start, end: snapshots.cover(end),
        on_dropped=lambda at, time_ms: upkeep.segments_dropped(
            at, None if time_ms is None else time_fall.expired_before_ms(at, time_ms)
        ),
    )
    page_ahead = PageAhead(lambda: segments.last if config.preallocate else None)
    services = Services(
        flush_service, reput, retention, Jobs(), page_ahead, repair, kept_bytes, snapshots
    )
    first_time_ms = _oldest_time_ms(log)
    if segments.first_offset > 0 and first_time_ms is not None:
        expired_ms = time_fall.expired_before_ms(segments.first_offset, first_time_ms)
        queues.expire(segments.first_offset, expired_ms)
    checkpoints.write_both()  # before anything is appended, so that a crash finds them
    directory.mark_open()
    guard.measure()
    services.start(upkeep)
    latest = LatestMessages(log, queues, reader, superseded, clock)
    return MessageStore(appends, reader, topics, queues, state, notes, upkeep, services, latest)


def _last_record(recovered: Recovered, checkpoint: Checkpoint) -> int:
    """Where the last record of the recovered log begins; 0 when that is not known."""
    last = recovered.last_offset
    if last is not None and last < recovered.end_offset:
        return last
    # Nothing was scanned; or what was is cut, and nobody looked at what is before it.
    known = checkpoint.confirmed_offset
    return known if last is None and known < checkpoint.flushed_offset else 0


def _newest_time_ms(log: CommitLog, segment: Segment) -> int:
    """A store time no record of the segment is above: that of the first record behind it.

    Times never fall along the log, so this is exact enough, and one read instead of a scan. With
    nothing behind it yet, the log's last record is the bound. Raises CorruptRecordError.
    """
    behind = log.first_store_time_ms(segment.start_offset + segment.size)
    return log.last_store_time_ms if behind is None else behind


def _oldest_time_ms(log: CommitLog) -> int | None:
    """Store time of the first record of the log, when it can be read."""
    try:
        return log.first_store_time_ms(log.start_offset)
    except CorruptRecordError as error:
        logger.error("what expired is not compacted away: the log begins with damage: %s", error)
        return None


def _follow_flush(flushed: Watermark, reput: ReputService) -> None:
    """Each time more is durable, more may be dispatched; a failed fsync fails the waiters too."""

    def risen(error: BaseException | None) -> None:
        if error is None:
            try:
                reput.follow()
            finally:
                flushed.call_when(flushed.value + 1, risen)
        elif isinstance(error, FlushError):
            reput.dispatched.fail(error)

    flushed.call_when(flushed.value + 1, risen)
