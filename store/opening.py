"""Put a store together, in the one order that is safe, and bring it to one dispatch point.

lock → checkpoint → segments → cut queues that are ahead → cut the torn tail → deletions that were
lost → topics that were lost → ends of queues that the log does not know → replay up to the end →
ends that nothing kept yet → only then writers, services and jobs.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack
from typing import TYPE_CHECKING

from store.config import FlushMode
from store.derive import EndsReserve, QueueEnds, ReputService, read_time_fall
from store.errors import CorruptRecordError, FlushError, StoreFormatError
from store.format import Checkpoint, read_checkpoint
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
from store.reader import Reader
from store.topics import LostTopics, Topics, cut_committed

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.clock import Clock
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import Segment
    from store.metadata import Metadata
    from store.store_dir import StoreDir

    #: Called with what is being done, and how much of it, from 0 to 1.
    Progress = Callable[[str, float], None]

logger = logging.getLogger(__name__)

_MAINTAIN_S = 1.0
_RECLAIM_S = 30.0


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
    with ExitStack() as undo:
        undo.callback(directory.close)
        undo.callback(metadata.close)
        undo.callback(queues.close)
        found_checkpoint = _checkpoint(directory.checkpoint)
        checkpoint = found_checkpoint or Checkpoint()
        source = DirectSource(directory.commitlog, config.segment_bytes, warm_up=config.warm_up)
        preallocator = Preallocator(
            source, config.segment_bytes, ahead=None if config.preallocate else 0
        )
        segments = SegmentSet.load(directory.commitlog, config.segment_bytes, preallocator)
        undo.callback(segments.close)
        span = max(1, segments.end_offset - checkpoint.flushed_offset)
        recovered = recover_log(
            segments,
            checkpoint.flushed_offset,
            lambda at: progress("checking the log", (at - checkpoint.flushed_offset) / span),
            clean=directory.was_closed_cleanly,
            dispatched_offset=queues.dispatched_offset,
            before_cut=lambda at: _cut_queues(queues, at),
        )
        end = segments.end_offset
        if config.preallocate and segments.last is not None:
            preallocator.start()
            preallocator.prepare(segments.last.start_offset + config.segment_bytes)
        if directory.was_closed_cleanly and 0 < queues.dispatched_offset < end:
            logger.error(
                "the store was closed in order at %d, but its queues are of a time when the log "
                "ended at %d, a copy perhaps: they are brought up to date, but may hold rows of "
                "topics deleted since. `kvcq repair %s --queues` makes them anew",
                end,
                queues.dispatched_offset,
                directory.root,
            )

        flushed = Watermark("flushed", end)
        dispatched = Watermark("dispatched", queues.dispatched_offset)
        # Replay below goes to memory only.
        kv_flushed_at = queues.dispatched_offset
        topics = Topics(config, metadata, queues, clock)
        topics.redo_deletions()
        lost_topics: LostTopics | None = None
        if not directory.was_closed_cleanly:
            topics.after_cut(end)
            # Without a checkpoint nobody can tell them from topics that were deleted long ago.
            if found_checkpoint is not None:
                lost_topics = LostTopics(segments, checkpoint.flushed_offset, topics)
                lost_topics.look_through(queues.dispatched_offset)
        reserve = EndsReserve(directory.ends, config.segment_bytes)
        queue_ends = QueueEnds(queues, metadata, topics, reserve)
        queue_ends.look_at_start(segments.first_offset)
        if queues.dispatched_offset < segments.first_offset:
            # Lost, or older than the log is: what is not in the log any more comes first.
            queue_ends.restore(segments.first_offset)
        encoder = BatchEncoder(config.store_host, crc_item=config.crc_item)
        log = CommitLog(
            segments,
            QueueOffsets(
                config.hot_queue_limit, topics.load, encoder.hot_queue, lambda: dispatched.value
            ),
            encoder,
            clock,
            hot_read_bytes=config.hot_read_bytes,
            before_flush=metadata.sync,
            last_store_time_ms=recovered.last_store_time_ms or checkpoint.log_time_ms,
        )
        sync = config.flush_mode is FlushMode.SYNC
        reput = ReputService(
            log,
            queues,
            dispatched,
            (lambda: flushed.value) if sync else (lambda: log.appended_offset),
            topics.admission,
            inline=not sync,
            skip_damaged=config.skip_damaged_records,
        )
        replay_start = max(dispatched.value, segments.first_offset)
        replay_span = max(1, end - replay_start)
        reput.catch_up(
            lambda at: progress("replaying the log", (at - replay_start) / replay_span),
            look=None if lost_topics is None else lost_topics.look,
        )
        # Now that the queues know all of the log: who ends below its start has nothing in it.
        queue_ends.keep_earlier(segments.first_offset)
        queue_ends.settle()
        if not directory.was_closed_cleanly:
            cut_committed(metadata, queues)

        flush_service = (
            GroupCommitService(log, flushed, config.group_commit_gather_ms / 1000)
            if sync
            else IntervalFlushService(log, flushed, config, clock)
        )
        _follow_flush(flushed, dispatched, reput)
        time_fall = read_time_fall(metadata)
        guard = DiskGuard(directory.root, config)
        retention = RetentionService(
            segments,
            guard,
            config,
            clock,
            last_store_time_ms=lambda segment: _newest_time_ms(log, segment),
            # A queue whose only records are dropped is known to the queues alone: those must be
            # durable, or its offsets would begin again after a crash.
            safe_end=lambda: min(
                store.queues_flushed_offset,
                dispatched.value if still_needed is None else still_needed(),
            ),
            before_drop=queue_ends.keep,
            before_run=queue_ends.settle,
            on_dropped=lambda start, time_ms: store.segments_dropped(
                start, None if time_ms is None else time_fall.expired_before_ms(start, time_ms)
            ),
        )
        jobs = Jobs()
        page_ahead = PageAhead(lambda: segments.last if config.preallocate else None)
        store = MessageStore(
            config,
            clock,
            directory,
            log,
            queues,
            metadata,
            topics,
            Reader(log, queues, topics),
            reput,
            flush_service,
            flushed,
            guard,
            retention,
            jobs,
            page_ahead,
            kv_flushed_at=kv_flushed_at,
            # What is made again from here on is not durable yet.
            queue_time_ms=checkpoint.queue_time_ms
            if kv_flushed_at >= checkpoint.flushed_offset
            else 0,
            last_record_offset=_last_record(recovered, checkpoint),
        )
        first_time_ms = _oldest_time_ms(log)
        if segments.first_offset > 0 and first_time_ms is not None:
            queues.expire(
                segments.first_offset,
                time_fall.expired_before_ms(segments.first_offset, first_time_ms),
            )
        if found_checkpoint is None:
            store.write_checkpoint()  # before anything is appended, so that a crash finds one
        directory.mark_open()
        guard.measure()
        flush_service.start()
        page_ahead.start()
        reput.start()
        retention.schedule(jobs)
        jobs.add("maintain", _MAINTAIN_S, store.maintain)
        jobs.add("reclaim", _RECLAIM_S, store.reclaim)
        jobs.start()
        undo.pop_all()
        return store


def _checkpoint(path: Path) -> Checkpoint | None:
    """The checkpoint; None when there is none, or a damaged one: the whole log is then checked."""
    try:
        return read_checkpoint(path)
    except StoreFormatError as error:
        logger.warning("%s: the whole log is checked instead", error)
        return None


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


def _follow_flush(flushed: Watermark, dispatched: Watermark, reput: ReputService) -> None:
    """Each time more is durable, more may be dispatched; a failed fsync fails the waiters too."""

    def risen(error: BaseException | None) -> None:
        if error is None:
            reput.wake()
            flushed.call_when(flushed.value + 1, risen)
        elif isinstance(error, FlushError):
            dispatched.fail(error)

    flushed.call_when(flushed.value + 1, risen)
