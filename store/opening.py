"""Assembles a store, in the only safe order, and brings it to one dispatch point.

recover: checkpoint → segments → cut the torn tail.
settle: databases that are not ahead of the log.
derive: replay what state and queues lack of the log.
start: only then writers, services and jobs.
"""

from __future__ import annotations

import logging
import math
from contextlib import ExitStack, suppress
from functools import partial
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.derive import (
    KeptBytes,
    QueueRepair,
    ReputService,
    StateApplier,
    Superseded,
)
from store.errors import StoreFormatError
from store.format import Checkpoint, FastParser, read_noted
from store.jobs import Jobs
from store.log import (
    GATHER_S,
    Acknowledgement,
    BatchEncoder,
    CommitLog,
    DiskGuard,
    FallFinder,
    GroupCommitService,
    IntervalFlushService,
    PageAhead,
    Preallocator,
    QueueOffsets,
    Recovered,
    RetentionService,
    Run,
    SegmentSet,
    SegmentSource,
    StoreTimes,
    Watermark,
    first_time,
    read_falls,
    read_left,
    read_log_start,
    recover_log,
    walk,
    write_falls,
    write_kept_again,
    write_log_start,
)
from store.message_store import MessageStore
from store.puts import AppendPath
from store.reads import LatestMessages, Lookups, Reader, ReadPath, TimeSearch, TopicRetention
from store.state import REPLAY_BYTES_S, StateView, Tables
from store.topics import Topics
from store.upkeep import Checkpoints, DurableState, Services, Upkeep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.consume_queue import ConsumeQueueStore
    from store.log import Falls, Segment
    from store.notes import Notes
    from store.state import Snapshots, StateStore
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)

#: Intervals of looking for idle lite topics, and for expired dead letters, s.
_LITE_S = 1.0
_LETTERS_S = 10.0
#: Interval of forgetting old outcomes of transactions.
_FORGET_S = 60.0


def assemble(
    config: StoreConfig,
    clock: Clock,
    directory: StoreDir,
    databases: Databases,
    progress: Progress,
    *,
    still_needed: Callable[[], int] | None = None,
) -> MessageStore:
    """Open the store in `directory`, which must be locked; takes over `directory` and `databases`.

    `still_needed`: physical offset at and above which other code still has to read the log;
    retention stays below it. Raises StoreFormatError, CorruptRecordError, DiskFullError; everything
    is closed then. Durability: on return everything a crash left is recovered, and the recovered
    state is durable.
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
    """The open databases derived from the log: queues and state."""

    @property
    def queues(self) -> ConsumeQueueStore: ...

    @property
    def state(self) -> StateStore: ...

    @property
    def rebuilt(self) -> str:
        """Which database this opening rebuilds, why, and from what; "" for none."""
        ...

    @property
    def reach(self) -> int:
        """Highest physical offset of the log that any of the databases has seen."""
        ...

    def before_cut(self, end: int) -> None:
        """Prepare for a cut of the log to `end`: set aside databases that are ahead of it first, so
        that a crash in between leaves none that refers to removed files. Repeatable."""
        ...

    def settle(self, segments: SegmentSet) -> None:
        """Called once the log is recovered and ends where `segments` say. Replaces databases that
        are ahead of it.

        `queues` and `state` may be other objects afterwards. Raises StoreFormatError if the log
        alone is not enough, and no database or snapshot at or before its end has the rest.
        """
        ...

    def replayed(self, segments: SegmentSet) -> None:
        """Called once queues and state are at the log's end, all of which is durable."""
        ...

    def snapshots(self, segments: SegmentSet, flush_log: Callable[[], None]) -> Snapshots:
        """The snapshots of the store that is opened; `flush_log` makes appended bytes durable."""
        ...

    def close(self) -> None: ...


class Parts(NamedTuple):
    """The parts that a store is assembled from."""

    config: StoreConfig
    clock: Clock
    directory: StoreDir
    databases: Databases
    progress: Progress


class RecoveredLog(NamedTuple):
    """The log, whole up to its end."""

    segments: SegmentSet
    last_store_time_ms: int
    durable: DurableState


class Derived(NamedTuple):
    """The append path and the data derived from the log, up to its end."""

    log: CommitLog
    topics: Topics
    view: StateView
    applier: StateApplier
    reput: ReputService
    acknowledged: Acknowledgement
    times: StoreTimes


def recover(parts: Parts, undo: ExitStack) -> RecoveredLog:
    """Find where the log ends, and cut the torn tail."""
    config, _, directory, databases, progress = parts
    noted = read_noted(directory.checkpoint, directory.previous_checkpoint)
    for fault in noted.faults:
        logger.warning("%s", fault)
    checkpoint = noted.checkpoint or Checkpoint()
    flushed = checkpoint.flushed_offset
    source = SegmentSource(directory.commitlog, config.segment_bytes)
    preallocator = Preallocator(source, ahead=None if config.preallocate else 0)
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
        before_cut=databases.before_cut,
    )
    databases.settle(segments)
    if config.preallocate and segments.last is not None:
        preallocator.start()
        preallocator.prepare(segments.last.start_offset + config.segment_bytes)
    queues_end = databases.queues.dispatched_offset
    durable = DurableState(
        queues_end,
        # Data that is derived again from here on is not durable yet.
        checkpoint.queue_time_ms if queues_end >= flushed else 0,
        _last_record(recovered, checkpoint),
    )
    last_time_ms = recovered.last_store_time_ms or checkpoint.log_time_ms
    return RecoveredLog(segments, last_time_ms, durable)


def derive(parts: Parts, recovered: RecoveredLog) -> Derived:
    """Bring state and queues to the end of the log."""
    config, clock, directory, databases, progress = parts
    queues, state = databases.queues, databases.state
    segments = recovered.segments
    end = segments.end_offset
    assert queues.dispatched_offset <= end, "queues ahead of the log are replaced"
    assert state.point <= end, "a state ahead of the log is replaced"
    flushed = Watermark("flushed", end)
    # The state may be ahead of the queues: records that it already has are skipped.
    dispatched = Watermark("dispatched", min(queues.dispatched_offset, state.point))
    view = StateView(state, lambda: dispatched.value)
    topics = Topics(config, state, view, queues, clock, end)
    notes = directory.notes
    times = StoreTimes(
        clock, _falls(notes, segments), lambda falls: _note(parts, falls), read_left(notes)
    )
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
        last_store_time_ms=recovered.last_store_time_ms,
    )
    acknowledged = Acknowledgement(
        config.flush_mode, lambda: log.appended_offset, flushed, dispatched
    )
    applier = StateApplier(log, state, queues, directory.base_offset)
    applier.add_listener(topics.changed)
    reput = ReputService(
        log,
        queues,
        acknowledged,
        topics.admission,
        applier,
        skip_damaged=config.skip_damaged_records,
    )
    _tell_of_start(notes, segments.first_offset)
    first = max(dispatched.value, segments.first_offset)
    span = max(1, end - first)
    if databases.rebuilt:
        seconds = math.ceil((end - first) / REPLAY_BYTES_S)
        logger.warning("%s: %s bytes, about %d s", databases.rebuilt, f"{end - first:,}", seconds)
    reput.catch_up(lambda at: progress("replaying the log", (at - first) / span))
    assert dispatched.value == end, f"dispatched {dispatched.value} of {end}"
    state.advance(end)
    databases.replayed(segments)
    return Derived(log, topics, view, applier, reput, acknowledged, times)


def start(
    parts: Parts,
    recovered: RecoveredLog,
    derived: Derived,
    still_needed: Callable[[], int] | None,
) -> MessageStore:
    """Start writers, services and jobs; the directory counts as open from here on."""
    config, clock, directory, databases, _ = parts
    queues, state, notes = databases.queues, databases.state, directory.notes
    log, topics, view, applier, reput, acknowledged, times = derived
    flushed = acknowledged.flushed
    segments = recovered.segments
    flush_service = (
        IntervalFlushService(log, flushed, config, clock)
        if acknowledged.at_append
        else GroupCommitService(log, flushed, GATHER_S)
    )
    reput.follow(flushed)
    guard = DiskGuard(directory.root, config)
    appends = AppendPath(
        config, log, acknowledged, reput, flush_service, guard, topics, view, applier
    )
    kept_bytes = KeptBytes(queues, state)
    superseded = Superseded(state, appends.append_entries)
    retained = TopicRetention(queues, kept_bytes, times)
    reader = Reader(log, queues, topics, retained, superseded)
    is_made_again = bool(databases.rebuilt) or recovered.durable.queues_end <= segments.first_offset
    if not directory.was_closed_cleanly or is_made_again:
        kept_bytes.catch_up(_counted(Tables(state), all_topics=is_made_again), reader.bounds)
    repair = QueueRepair(log, queues, topics, reader.begins_at, times, reput.paused, applier)
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
    upkeep = Upkeep(directory, appends, queues, state, notes, repair, checkpoints, times, snapshots)
    retention = RetentionService(
        segments,
        guard,
        config,
        times,
        newest_time_ms=lambda segment: _newest_time_ms(log, times, segment),
        # If all records of a queue are dropped, only the database has its end. That must be
        # durable, or the queue's offsets would begin again after a crash.
        safe_end=lambda: min(
            checkpoints.queues_end,
            reput.dispatched.value if still_needed is None else still_needed(),
        ),
        before_drop=lambda start, end: _cover(snapshots, appends, notes, end),
        on_dropped=lambda at: _dropped(upkeep, notes, at, _oldest_time_ms(log, times)),
    )
    page_ahead = PageAhead(lambda: segments.last if config.preallocate else None)
    services = Services(
        flush_service, reput, retention, Jobs(), page_ahead, repair, kept_bytes, snapshots
    )
    oldest_ms = _oldest_time_ms(log, times)
    if segments.first_offset > 0 and oldest_ms is not None:
        queues.expire(segments.first_offset, oldest_ms)
    checkpoints.write_both()  # before anything is appended, so that a crash finds them
    upkeep.leave_time()
    directory.mark_open()
    guard.measure()
    latest = LatestMessages(log, queues, reader, superseded, times)
    reads = ReadPath(
        log,
        reader,
        Lookups(log, queues, topics, superseded, reader),
        TimeSearch(log, queues, times, reader),
        repair,
        appends.check_open,
    )
    store = MessageStore(
        appends, reads, topics, queues, state, notes, upkeep, services, latest, times
    )
    retention.add_keeper(partial(_keep, store, notes))
    services.jobs.add("dead letters", _LETTERS_S, store.groups.keeping.look)
    services.jobs.add("transactions", _FORGET_S, store.halves.forget)
    services.jobs.add("lite topics", _LITE_S, store.lite.look)
    services.start(upkeep)
    store.timers.firing.start()
    return store


def _counted(tables: Tables, *, all_topics: bool) -> Iterator[tuple[str, int]]:
    """Queues limited by bytes whose start readers may have seen."""
    yield from tables.counted_queues()
    if all_topics:  # rows may be lost
        for topic in tables.every_topic():
            if topic.retention.bytes:
                yield from ((topic.name, queue_id) for queue_id in range(topic.queue_count))


def _last_record(recovered: Recovered, checkpoint: Checkpoint) -> int:
    """Start of the last record of the recovered log; 0 if unknown."""
    last = recovered.last_offset
    if last is not None and last < recovered.end_offset:
        return last
    # Either nothing was scanned, or the scanned part is cut and the part before it was not checked.
    known = checkpoint.confirmed_offset
    return known if last is None and known < checkpoint.flushed_offset else 0


def _keep(store: MessageStore, notes: Notes, end: int, *, is_pressed: bool) -> int:
    """See Rolling.keep_below. Also notes where records were appended again."""
    before = store.rolling.moved
    try:
        return store.rolling.keep_below(end, is_pressed=is_pressed)
    finally:
        if store.rolling.moved > before:
            with suppress(OSError):  # on a full disk a restore does not tell of it
                write_kept_again(notes, store.log.appended_offset)


def _cover(snapshots: Snapshots, appends: AppendPath, notes: Notes, end: int) -> None:
    """Call before segments below `end` are dropped. Raises what Snapshots.cover raises, and
    FlushError."""
    snapshots.cover(end)
    with suppress(OSError):  # on a full disk it is noted once they are gone
        write_log_start(notes, end)
    # The snapshot has no end for a queue that continues in the log. A power loss must not take the
    # queue's next message, or its offsets would begin again.
    appends.flush()


def _dropped(upkeep: Upkeep, notes: Notes, at: int, oldest_ms: int | None) -> None:
    """Call after segments below `at` were dropped. Raises OSError."""
    upkeep.segments_dropped(at, oldest_ms)
    write_log_start(notes, at)


def _falls(notes: Notes, segments: SegmentSet) -> Falls:
    """The falls of store times; if their note is damaged, those in the log, which are noted."""
    oldest = first_time(segments, segments.first_offset)
    try:
        return read_falls(notes, 0 if oldest is None else oldest[1])
    except StoreFormatError as error:
        logger.warning("%s is damaged: falls of store times are found in the log", error.path)
    finder = FallFinder()
    for step in walk(segments, segments.first_offset, parser=FastParser()):
        if isinstance(step, Run):
            finder.look(step.requests)
    write_falls(notes, finder.found)
    return finder.found


def _tell_of_start(notes: Notes, start: int) -> None:
    noted = read_log_start(notes)
    if noted is None:
        write_log_start(notes, start)
    elif noted < start:
        logger.error(
            "the log begins at %d, but nothing below %d was removed by this program: the "
            "segments between are missing, and their messages count as expired. Bring them "
            "back from a copy while the store is stopped",
            *(start, noted),
        )


def _newest_time_ms(log: CommitLog, times: StoreTimes, segment: Segment) -> int:
    """The judged time of the segment's last record, or a later one.

    Taken from the first whole record after the segment, otherwise from the log's last record:
    judged times never fall along the log. A time in the future is not evidence; the file's
    modification time is used then. Raises OSError.
    """
    behind = log.first_time_from(segment.start_offset + segment.size)
    found = log.appended_offset, log.last_store_time_ms
    newest_ms = times.of(*(behind or found))
    if newest_ms > times.now_ms():
        newest_ms = min(newest_ms, segment.path.stat().st_mtime_ns // 1_000_000)
    return newest_ms


def _oldest_time_ms(log: CommitLog, times: StoreTimes) -> int | None:
    """A lower bound of the store times of the log's records; None if it has no readable one."""
    try:
        first = log.first_time_from(log.start_offset)
    except OSError as error:
        logger.error("what expired is not compacted away: the log cannot be read: %s", error)
        return None
    return None if first is None else times.oldest_from(*first)


def _note(parts: Parts, falls: Falls) -> None:
    """Make falls of store times durable, and keep live units with earlier store times."""
    write_falls(parts.directory.notes, falls)
    parts.databases.queues.keep_from(falls[-1].after_ms)
