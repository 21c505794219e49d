"""Put a store together, in the one order that is safe, and bring it to one dispatch point.

recover: checkpoint → segments → cut queues that are ahead → cut the torn tail.
derive: deletions that a crash cut short → topics that were lost → restore end offsets of emptied
queues → replay up to the end → save end offsets that older versions did not save.
start: only then writers, services and jobs.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from store.derive import (
    EndsReserve,
    KeptBytes,
    QueueEnds,
    QueueRepair,
    ReputService,
    Superseded,
)
from store.errors import FlushError
from store.format import Checkpoint, read_noted
from store.jobs import Jobs
from store.log import (
    GATHER_S,
    Acknowledgement,
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
    StoreTimes,
    Watermark,
    first_time,
    read_falls,
    read_left,
    recover_log,
    write_falls,
)
from store.message_store import MessageStore
from store.puts import AppendPath
from store.reads import LatestMessages, Reader, TopicRetention
from store.topics import LostTopics, Topics, cut_committed
from store.upkeep import Checkpoints, DurableState, Services, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import Falls, Segment
    from store.metadata import Metadata
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


def assemble(
    config: StoreConfig,
    clock: Clock,
    directory: StoreDir,
    queues: ConsumeQueueStore,
    metadata: Metadata,
    progress: Progress,
    *,
    still_needed: Callable[[], int] | None = None,
) -> MessageStore:
    """A running store in `directory`, which is open; takes over `directory`, `queues`, `metadata`.

    `still_needed` is a physical offset at and above which somebody has to read the log yet:
    retention stays below it.
    Raises StoreFormatError, CorruptRecordError, DiskFullError; everything is closed then.
    Durability: what a crash left is recovered, and the recovered state is durable, on return.
    """
    parts = Parts(config, clock, directory, queues, metadata, progress)
    with ExitStack() as undo:
        undo.callback(directory.close)
        undo.callback(metadata.close)
        undo.callback(queues.close)
        log = recover(parts, undo)
        store = start(parts, log, derive(parts, log), still_needed)
        undo.pop_all()
        return store


class Parts(NamedTuple):
    """What a store is put together from."""

    config: StoreConfig
    clock: Clock
    directory: StoreDir
    queues: ConsumeQueueStore
    metadata: Metadata
    progress: Progress


class RecoveredLog(NamedTuple):
    """The log, whole up to its end, and the queues cut to it."""

    segments: SegmentSet
    checkpoint: Checkpoint | None  # the newest that could be read
    flushed_offset: int  # what the checkpoint says, 0 without one
    last_store_time_ms: int
    durable: DurableState


class Derived(NamedTuple):
    """The append path and what is derived from the log, level with its end."""

    log: CommitLog
    topics: Topics
    reput: ReputService
    acknowledged: Acknowledgement
    queue_ends: QueueEnds
    times: StoreTimes


def recover(parts: Parts, undo: ExitStack) -> RecoveredLog:
    """Find where the log ends; cut queues that are ahead, then the torn tail."""
    config, _, directory, queues, _, progress = parts
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
        dispatched_offset=queues.dispatched_offset,
        before_cut=lambda at: _cut_queues(queues, at),
    )
    if config.preallocate and segments.last is not None:
        preallocator.start()
        preallocator.prepare(segments.last.start_offset + config.segment_bytes)
    queues_end = queues.dispatched_offset
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
    config, clock, directory, queues, metadata, progress = parts
    segments = recovered.segments
    end = segments.end_offset
    assert queues.dispatched_offset <= end, "recovery cuts queues that are ahead of the log"
    _tell_of_old_queues(directory, queues, end)
    flushed = Watermark("flushed", end)
    dispatched = Watermark("dispatched", queues.dispatched_offset)
    topics = Topics(config, metadata, queues, clock)
    lost_topics = _mend_topics(parts, recovered, topics)
    reserve = EndsReserve(directory.ends, config.segment_bytes)
    queue_ends = QueueEnds(queues, metadata, topics, reserve)
    queue_ends.look_at_start(segments.first_offset)
    if queues.dispatched_offset < segments.first_offset:
        # Lost, or older than the log is: what is not in the log any more comes first.
        queue_ends.restore(segments.first_offset)
    oldest = first_time(segments, segments.first_offset)
    falls = read_falls(metadata, 0 if oldest is None else oldest[1])
    times = StoreTimes(clock, falls, lambda falls: _note(parts, falls), read_left(metadata))
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
        times=times,
        before_flush=metadata.sync,
        last_store_time_ms=recovered.last_store_time_ms,
    )
    acknowledged = Acknowledgement(
        config.flush_mode, lambda: log.appended_offset, flushed, dispatched
    )
    reput = ReputService(
        log,
        queues,
        acknowledged,
        topics.admission,
        skip_damaged=config.skip_damaged_records,
    )
    first = max(dispatched.value, segments.first_offset)
    span = max(1, end - first)
    reput.catch_up(
        lambda at: progress("replaying the log", (at - first) / span),
        look=None if lost_topics is None else lost_topics.look,
    )
    assert dispatched.value == end, f"dispatched {dispatched.value} of {end}"
    # Now that the queues know all of the log: a queue that ends below its start has nothing in it.
    queue_ends.keep_earlier(segments.first_offset)
    queue_ends.settle()
    if not directory.was_closed_cleanly:
        cut_committed(metadata, queues)
    return Derived(log, topics, reput, acknowledged, queue_ends, times)


def start(
    parts: Parts,
    recovered: RecoveredLog,
    derived: Derived,
    still_needed: Callable[[], int] | None,
) -> MessageStore:
    """Writers, services and jobs; the directory counts as open from here on."""
    config, clock, directory, queues, metadata, _ = parts
    log, topics, reput, acknowledged, queue_ends, times = derived
    flushed = acknowledged.flushed
    segments = recovered.segments
    flush_service = (
        IntervalFlushService(log, flushed, config, clock)
        if acknowledged.at_append
        else GroupCommitService(log, flushed, GATHER_S)
    )
    _follow_flush(flushed, reput)
    guard = DiskGuard(directory.root, config)
    appends = AppendPath(config, log, acknowledged, reput, flush_service, guard)
    kept_bytes = KeptBytes(queues, metadata)
    superseded = Superseded(metadata, log.appended_offset)
    retained = TopicRetention(queues, kept_bytes, times)
    reader = Reader(log, queues, topics, retained, superseded, times)
    repair = QueueRepair(log, queues, topics, reader.begins_at, times)
    checkpoints = Checkpoints(
        config,
        clock,
        directory,
        appends,
        queues,
        topics.deletions,
        recovered.durable,
    )
    upkeep = Upkeep(directory, appends, queues, metadata, repair, checkpoints, times)
    retention = RetentionService(
        segments,
        guard,
        config,
        times,
        newest_time_ms=lambda segment: _newest_time_ms(log, times, segment),
        # A queue whose only records are dropped is known to the queues alone: those must be
        # durable, or its offsets would begin again after a crash.
        safe_end=lambda: min(
            checkpoints.queues_end,
            reput.dispatched.value if still_needed is None else still_needed(),
        ),
        before_drop=lambda at, end: _keep_ends(queue_ends, appends, at, end),
        before_run=queue_ends.settle,
        on_dropped=lambda at: upkeep.segments_dropped(at, _oldest_time_ms(log, times)),
    )
    page_ahead = PageAhead(lambda: segments.last if config.preallocate else None)
    services = Services(flush_service, reput, retention, Jobs(), page_ahead, repair, kept_bytes)
    oldest_ms = _oldest_time_ms(log, times)
    if segments.first_offset > 0 and oldest_ms is not None:
        queues.expire(segments.first_offset, oldest_ms)
    checkpoints.write_both()  # before anything is appended, so that a crash finds them
    upkeep.leave_time()
    directory.mark_open()
    guard.measure()
    services.start(upkeep)
    latest = LatestMessages(log, queues, reader, superseded, times)
    return MessageStore(appends, reader, topics, queues, metadata, upkeep, services, latest, times)


def _tell_of_old_queues(directory: StoreDir, queues: ConsumeQueueStore, log_end: int) -> None:
    if directory.was_closed_cleanly and 0 < queues.dispatched_offset < log_end:
        logger.error(
            "the store was closed in order at %d, but its queues are of a time when the log "
            "ended at %d, a copy perhaps: they are brought up to date, but may hold rows of "
            "topics deleted since. `kvcq repair %s --queues` rebuilds them",
            log_end,
            queues.dispatched_offset,
            directory.root,
        )


def _mend_topics(parts: Parts, recovered: RecoveredLog, topics: Topics) -> LostTopics | None:
    """Deletions that the queues lost, and topics that a crash took; those of the replay are left
    for it to look for."""
    topics.deletions.finish_marked()
    if parts.directory.was_closed_cleanly:
        return None
    topics.after_cut(recovered.segments.end_offset)
    # Without a checkpoint nobody can tell them from topics that were deleted long ago.
    if recovered.checkpoint is None:
        return None
    lost_topics = LostTopics(recovered.segments, recovered.flushed_offset, topics)
    lost_topics.look_through(parts.queues.dispatched_offset)
    return lost_topics


def _last_record(recovered: Recovered, checkpoint: Checkpoint) -> int:
    """Where the last record of the recovered log begins; 0 when that is not known."""
    last = recovered.last_offset
    if last is not None and last < recovered.end_offset:
        return last
    # Nothing was scanned; or what was is cut, and nobody looked at what is before it.
    known = checkpoint.confirmed_offset
    return known if last is None and known < checkpoint.flushed_offset else 0


def _cut_queues(queues: ConsumeQueueStore, end: int) -> None:
    if queues.dispatched_offset > end:
        logger.warning(
            "queues reach to %d, the log to %d: they are cut", queues.dispatched_offset, end
        )
    # Also when that end is within the log: a store of two parts may have one that is ahead.
    queues.truncate(end)


def _keep_ends(queue_ends: QueueEnds, appends: AppendPath, start: int, end: int) -> None:
    """Before segments go. Raises as QueueEnds.keep does, and FlushError."""
    queue_ends.keep(start, end)
    # Behind the look: a queue whose last message was appended by then has no row of its end.
    appends.flush()


def _newest_time_ms(log: CommitLog, times: StoreTimes, segment: Segment) -> int:
    """The time that the last record of the segment counts as stored at, or a later one.

    That of the first whole record behind it, or of the log's last one when none is there: judged
    times never fall along the log. In the future it is no evidence: then the time counts at which
    the file was changed last. Raises OSError.
    """
    behind = log.first_time_from(segment.start_offset + segment.size)
    found = log.appended_offset, log.last_store_time_ms
    newest_ms = times.of(*(behind or found))
    if newest_ms > times.now_ms():
        newest_ms = min(newest_ms, segment.path.stat().st_mtime_ns // 1_000_000)
    return newest_ms


def _oldest_time_ms(log: CommitLog, times: StoreTimes) -> int | None:
    """A stamp that none of the log's records is below; None: it has none that can be read."""
    try:
        first = log.first_time_from(log.start_offset)
    except OSError as error:
        logger.error("what expired is not compacted away: the log cannot be read: %s", error)
        return None
    return None if first is None else times.oldest_from(*first)


def _note(parts: Parts, falls: Falls) -> None:
    """Falls of store times are durable, and live units with the earlier stamps stay."""
    write_falls(parts.metadata, falls)
    parts.queues.keep_from(falls[-1].after_ms)


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
