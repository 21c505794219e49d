"""The store: one commit log, what is derived from it, and metadata, behind one set of calls.

`append` is where data enters, the flush services make it durable, reput derives queues and index
from it, and the reader is where it leaves. `opening.py` puts a store together.
"""

from __future__ import annotations

import errno
import logging
import threading
from contextlib import ExitStack
from typing import TYPE_CHECKING

from store.config import FlushMode
from store.derive import SLICE_ROWS, QueueRepair
from store.errors import (
    LACKS,
    AppendWouldWaitError,
    DamagedQueueError,
    DiskFullError,
    FlushTimeoutError,
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    SegmentNotReadyError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
)
from store.format import ITEM_END, MAX_MESSAGES, Checkpoint, check_group, prepare, write_checkpoint
from store.light_queue import LMQ_PREFIX, is_light
from store.message import Appended
from store.numbered_batches import NumberedBatches
from store.reader import TagFilter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.clock import Clock
    from store.config import StoreConfig
    from store.consume_queue import Boundary, Bounds, ConsumeQueueStore
    from store.derive import ReputService
    from store.format import BatchMark, Prepared
    from store.jobs import Jobs
    from store.log import (
        CommitLog,
        DiskGuard,
        FlushService,
        LogAppend,
        PageAhead,
        RetentionService,
        Watermark,
    )
    from store.message import KeyQueryPage, Message, Pulled
    from store.metadata import Metadata, TopicConfig
    from store.reader import Reader
    from store.store_dir import StoreDir
    from store.topics import Admission, Topics

logger = logging.getLogger(__name__)

_FULL = (errno.ENOSPC, errno.EDQUOT)

#: How long closing waits for the last flush, and deletion for dispatch.
_DRAIN_TIMEOUT_S = 60.0
#: No watermark comes to it: who waits for it is told of the failure.
_NEVER = 1 << 63


class MessageStore:
    """One open store directory. Made by `opening.open_store`.

    Thread: any, for every method. Locks: see docs/threads.md.
    """

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        directory: StoreDir,
        log: CommitLog,
        queues: ConsumeQueueStore,
        metadata: Metadata,
        topics: Topics,
        reader: Reader,
        reput: ReputService,
        flush_service: FlushService,
        flushed: Watermark,
        guard: DiskGuard,
        retention: RetentionService,
        jobs: Jobs,
        page_ahead: PageAhead,
        *,
        kv_flushed_at: int,
        queue_time_ms: int,
        last_record_offset: int,
    ) -> None:
        """`kv_flushed_at` is the physical offset up to which the queues are durable,
        `queue_time_ms` a store time up to which they are; `last_record_offset` is where the log's
        last record begins, 0 when that is not known.
        """
        # Constant after construction.
        self.config = config
        self.queues = queues
        self.metadata = metadata
        self.log = log
        self.retention = retention
        self.reput = reput
        self._clock = clock
        self._directory = directory
        self._topics = topics
        self._reader = reader
        self._flush_service = flush_service
        self._flushed = flushed
        self._guard = guard
        self._jobs = jobs
        self._page_ahead = page_ahead
        self._sync = config.flush_mode is FlushMode.SYNC
        self._dispatched = reput.dispatched
        self._repair = QueueRepair(log, queues, topics, reader.begins_at)
        self.batches = NumberedBatches(log, queues, topics)
        self._closing = threading.Lock()
        self._maintaining = threading.Lock()
        # Guarded by the append lock; read freely.
        self._closed = False
        # Held while offsets are checked and stored, and while a topic is removed with its own.
        self._committing = threading.Lock()
        # Guarded by _maintaining.
        self._kv_flushed_at = kv_flushed_at
        self._kv_flushed_s = clock.monotonic_s()
        self._queue_time_ms = queue_time_ms
        self._last_record_offset = last_record_offset
        self._checkpointed: Checkpoint | None = None
        self._lost: StoreFailedError | None = None  # the directory, or a part of it
        self._compaction_due = False
        self._lost_until_ms = 0  # units stored up to then are to be made again

    # --- where data enters -----------------------------------------------------------------

    def append(
        self,
        messages: Sequence[Message],
        *,
        separate: bool = False,
        wait: bool = True,
        mark: BatchMark | None = None,
    ) -> Appended:
        """All messages are in the log, in order, or none is.

        After a crash too, unless they are `separate` puts that only share the append: then the
        first of them may be left, as each would be by itself. With a `mark` it is a numbered batch,
        which `batches` finds again.
        Not acknowledged in SYNC mode before `end_offset` is durable (`when_durable`). In ASYNC
        mode they are visible on return, unless dispatch lags. When Ctrl-C ends it, or whatever else
        a signal handler raises, they may be in the log all the same: all of them, or none.
        `wait` off is for an event loop: AppendWouldWaitError is raised when another thread
        appends, or many queues must be looked up. The same call is then made in a thread.
        Raises InvalidArgumentError naming the field (`messages[3].body`), UnknownTopicError,
        UnknownQueueError; DiskFullError, StoreBusyError, StoreClosedError, StoreFailedError.
        SegmentNotReadyError, a StoreBusyError, when the log's next segment is still being made:
        this waits for no disk.
        """
        config = self.config
        max_body = config.max_body_bytes
        max_light = config.max_light_queues
        prepared = [
            prepare(message, index, max_body, max_light) for index, message in enumerate(messages)
        ]
        if not 0 < len(messages) <= MAX_MESSAGES:
            raise InvalidArgumentError(
                "messages",
                f"{len(messages)} messages, not 1 to {MAX_MESSAGES}" if messages else "is empty",
            )
        log = self.log
        if wait:
            with log.lock:  # no interrupt leaves it held
                done = self._append(messages, prepared, separate=separate, wait=True, mark=mark)
        elif log.lock.acquire(blocking=False):
            try:
                done = self._append(messages, prepared, separate=separate, wait=False, mark=mark)
            finally:
                log.lock.release()
        else:
            raise AppendWouldWaitError("another append is under way")
        if done.row_count > SLICE_ROWS and not self._sync:
            # Not under the lock: others append meanwhile.
            self.reput.dispatch_to(done.end_offset)
        return Appended(done.requests, done.end_offset, done.store_time_ms)

    def _append(
        self,
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        *,
        separate: bool,
        wait: bool,
        mark: BatchMark | None,
    ) -> LogAppend:
        """Under the append lock."""
        self._check_writable()
        try:
            done = self.log.append(
                messages, prepared, self.reput.offer, separate=separate, wait=wait, mark=mark
            )
            if self._sync:
                self._flush_service.request(done.end_offset, len(messages))
        except InvalidArgumentError as error:
            raise _placed_in_batch(error, messages) from None
        except BaseException:
            # Ctrl-C, say: if all of it is in the log, it is dispatched all the same.
            self.reput.wake()
            raise
        return done

    def make_segments_aside(self) -> None:
        """From now on no append makes a segment itself, also with `preallocate` off. Repeatable.

        For a service, which would stand still meanwhile: it is told SegmentNotReadyError instead.
        """
        self.log.make_segments_aside()

    def is_durable(self, end_offset: int) -> bool:
        """Whether a put that ends there is acknowledged: flushed and visible in SYNC mode."""
        return not self._sync or self._dispatched.value >= end_offset

    def when_durable(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call back once, on a store thread, when a put that ends there is acknowledged.

        With the error when it never will be. In ASYNC mode at once, on the caller's thread.
        """
        if self._sync:
            self._dispatched.call_when(end_offset, callback)
        else:
            callback(None)

    def wait_visible(self) -> None:
        """What was appended before is in the queues and the index. Blocks.

        Raises StoreBusyError when that takes too long, and the error when it never will be.
        """
        end = self.log.appended_offset
        timeout_s = self.config.sync_flush_timeout_s
        if not self._dispatched.wait_for(end, timeout_s):
            raise StoreBusyError(f"what was appended is not visible within {timeout_s:g} s")

    def when_visible(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back once what was appended before is in the queues and the index.

        Or with the error when it never will be. At once when it is so already; otherwise on the
        thread that dispatches, so it must be short.
        """
        self._dispatched.call_when(self.log.appended_offset, callback)

    def put(self, messages: Sequence[Message]) -> Appended:
        """`append`, and wait until it is acknowledged.

        Waits also for a dispatch that lags, and for a segment that is being made, each for
        `sync_flush_timeout_s` at most. Raises what `append` raises, FlushTimeoutError, FlushError.
        Durability: SYNC: survives power loss on return. ASYNC: survives a kill of the
        process on return, power loss after the next flush.
        """
        timeout_s = self.config.sync_flush_timeout_s
        excess = self._lag() - self.config.max_dispatch_lag_bytes
        if excess > 0:
            self._dispatched.wait_for(self._dispatched.value + excess, timeout_s)
        appended = self._append_patiently(messages, timeout_s)
        if self._sync and not self._dispatched.wait_for(appended.end_offset, timeout_s):
            raise FlushTimeoutError(appended.end_offset, timeout_s)
        return appended

    def _append_patiently(self, messages: Sequence[Message], timeout_s: float) -> Appended:
        """`append`, which waits for a segment without the append lock: it holds nobody up."""
        while True:
            try:
                return self.append(messages)
            except SegmentNotReadyError as error:
                if not self.log.wait_for_segment(error.start_offset, timeout_s):
                    raise

    def _check_writable(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")
        failure = self._flushed.failure or self._dispatched.failure
        if failure is not None:
            raise StoreFailedError(f"the store takes no more writes: {failure}") from failure
        self._guard.check_put()
        lack = self.reput.waits_for
        if lack is not None:
            # What is stored now could not be read before there is some again.
            raise type(lack)(f"the queues cannot be written to: {lack}")
        lag = self._lag()
        if lag > self.config.max_dispatch_lag_bytes:
            raise StoreBusyError(f"dispatch is {lag} bytes behind the log")

    def _lag(self) -> int:
        return self.log.appended_offset - self._dispatched.value

    # --- where it leaves -------------------------------------------------------------------

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        tag_filter: str | TagFilter | None = "",
    ) -> Pulled:
        """Messages from `offset` on, at most so many and so many bytes, but one if there is one.

        `tag_filter` may be parsed already, for who pulls again and again.
        For a light queue: its name as topic, queue 0. Raises UnknownTopicError,
        UnknownQueueError, OffsetOutOfRangeError outside min..max, CorruptRecordError, and
        DamagedQueueError; the damaged queue is then rebuilt from the log in the background.
        """
        if max_messages < 1:
            raise InvalidArgumentError("max_messages", f"{max_messages} is below 1")
        if max_bytes < 1:
            raise InvalidArgumentError("max_bytes", f"{max_bytes} is below 1")
        self._check_open()
        if isinstance(tag_filter, str):
            tag_filter = TagFilter.parse(tag_filter)
        try:
            return self._reader.pull(topic, queue_id, offset, max_messages, max_bytes, tag_filter)
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def _repair_queue_of(self, error: DamagedQueueError) -> None:
        """Rebuild its queue in the background; after that was in vain it says where to read on."""
        place = error.topic, error.queue_id, error.queue_offset
        if self._repair.is_hopeless(*place):
            error.next_offset = error.behind
        else:
            self._repair.start(*place)

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a pull there would read far behind the end of the log, from disk."""
        if self.log.is_hot(self.log.start_offset):
            return False
        unit = self._reader.first_unit(topic, queue_id, offset)
        return unit is not None and not self.log.is_hot(unit.physical_offset)

    def query(
        self,
        topic: str,
        key: str,
        *,
        begin_ms: int = 0,
        end_ms: int = 0,
        limit: int = 32,
        cursor: bytes | None = None,
        max_bytes: int = 1 << 62,
    ) -> KeyQueryPage:
        """Messages of the topic with exactly this key, oldest first; times inclusive, 0 is open.

        A page has `limit` messages at most, and at least one whatever `max_bytes` says.
        Raises UnknownTopicError, InvalidArgumentError, CorruptRecordError.
        """
        if not key:
            raise InvalidArgumentError("key", "is empty")
        if ITEM_END in key:
            raise InvalidArgumentError("key", "has a control separator in it")
        if limit < 1:
            raise InvalidArgumentError("limit", f"{limit} is below 1")
        if begin_ms < 0 or end_ms < 0:
            raise InvalidArgumentError("begin_ms" if begin_ms < 0 else "end_ms", "is below 0")
        self._check_open()
        return self._reader.query(topic, key, begin_ms, end_ms, limit, cursor, max_bytes)

    def get(self, physical_offset: int) -> bytes:
        """The whole record at the offset. Raises MessageNotFoundError, DamagedQueueError."""
        self._check_open()
        try:
            return self._reader.get(physical_offset)
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def batch_records(self, producer_id: str, sequence: int) -> list[bytes | None] | None:
        """Records of the numbered batch, in order; None in it: one that has left the log.

        None when no batch of the log begins with that number. Raises CorruptRecordError.
        """
        self._check_open()
        while True:
            start = self.log.start_offset
            found = self.batches.find(producer_id, sequence)
            if found is None:
                return None
            try:
                return [
                    one if one is None else self.log.read(one.physical_offset, one.record_size)
                    for one in found.messages
                ]
            except MessageNotFoundError:
                if self.log.start_offset == start:
                    raise
                # Its segment was dropped meanwhile.

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """Min and max of each queue.

        Raises UnknownTopicError, UnknownQueueError, DamagedQueueError as `pull` does.
        """
        self._check_open()
        try:
            return [self._reader.bounds(topic, queue_id) for topic, queue_id in queues]
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Offset by store time; the table is in kvcq/tables/time_search.py.

        Raises as `pull` does. What is missing after a rebuild from the log was in vain is passed
        over.
        """
        self._check_open()
        try:
            while True:
                try:
                    return self._reader.search_time(topic, queue_id, time_ms, boundary)
                except DamagedQueueError as error:
                    low, high = self._reader.bounds(topic, queue_id)
                    if low <= error.queue_offset < high:
                        raise
                    # Its unit expired, or was deleted, since the bounds were looked up.
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            if error.next_offset is None:
                raise
            return self._reader.search_time_over_holes(topic, queue_id, time_ms, boundary)

    def on_dispatch(self, listener: Callable[[set[tuple[str, int]]], None]) -> Callable[[], None]:
        """Call `listener` with the queues that grew, once visible; returns how to end that.

        On a store thread or the appending one: be short.
        """
        return self.reput.add_listener(listener)

    # --- topics and groups -----------------------------------------------------------------

    def create_topics(self, topics: Sequence[tuple[str, int]]) -> list[TopicConfig]:
        """The topics exist, durably; a count of 0 means the default. All or none.

        Raises InvalidArgumentError, TopicExistsError when one has another count; and what the
        sync raises: the topics may exist then, and the store takes no more writes.
        """
        with self.log.lock:
            self.log.settle()
            self._check_writable()
            created = self._topics.create(topics, self.log.appended_offset)
        # Not under the lock: who appends, the event loop of a service for one, would wait for the
        # disk. A message that comes first is no harm: the log's flush syncs topics before records.
        self.metadata.sync()
        return created

    def delete_topic(self, name: str) -> None:
        """The topic, or light queue, and every row of it are gone, durably; so are offsets on it.

        Waits until its last message is dispatched. Its records stay in the log, dead. Raises
        UnknownTopicError, StoreBusyError.
        """
        with self.log.lock:
            self.log.settle()
            self._check_writable()
            count = self._topics.begin_delete(name)
            keys = [name] if is_light(name) else [(name, queue_id) for queue_id in range(count)]
            self.log.hot_queues.forget(keys)
            below = self.log.appended_offset
        try:
            self._flush_service.request(below)
            if not self._dispatched.wait_for(below, _DRAIN_TIMEOUT_S):
                raise StoreBusyError(f"dispatch did not reach {below} in {_DRAIN_TIMEOUT_S:g} s")
        except BaseException:
            # Its offsets were forgotten: they can be loaded again once all of it is dispatched.
            self._dispatched.call_when(below, lambda _error: self._topics.end_delete(name))
            raise
        with self._repair.restoring, self._committing:
            self._topics.finish_delete(name, below)
        self._topics.end_delete(name)

    def describe_topic(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        self._check_open()
        return self._topics.get(name)

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        """In name order, names above `after`."""
        self._check_open()
        return self.metadata.list_topics(prefix, after, limit)

    def list_light_queues(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Names of light queues with messages, by length, then by bytes; names above `after`."""
        self._check_open()
        whole = prefix if is_light(prefix) else LMQ_PREFIX + prefix
        return self.queues.list_names(whole, after, limit)

    def commit_offsets(self, group: str, offsets: Iterable[tuple[str, int, int]]) -> None:
        """Store (topic, queue id, next offset) for the group, durably. All or none.

        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError,
        OffsetOutOfRangeError above the queue's max.
        """
        check_group(group)
        self._check_open()
        wanted = list(offsets)
        # A topic deleted in between would leave its offsets to a later one of the same name.
        with self._committing:
            for topic, queue_id, offset in wanted:
                low, high = self._reader.bounds(topic, queue_id)
                if not 0 <= offset <= high:
                    raise OffsetOutOfRangeError(topic, queue_id, offset, low, high)
            self.metadata.commit_offsets(group, wanted)

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        check_group(group)
        self._check_open()
        return self.metadata.committed_offsets(group, queues)

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        check_group(group)
        self._check_open()
        return self.metadata.list_committed(group, after, limit)

    def delete_group(self, group: str) -> None:
        check_group(group)
        self._check_open()
        self.metadata.delete_group(group)

    def list_groups(self, after: str | None, limit: int) -> list[str]:
        self._check_open()
        return self.metadata.list_groups(after, limit)

    def _check_open(self) -> None:
        if self._closed:
            raise StoreClosedError("the store is closed")

    # --- durability and end of life --------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Below this the log is known to be durable."""
        return self._flushed.value

    @property
    def queues_flushed_offset(self) -> int:
        """Queues and index are durable for what lies below; a crash takes the rest of them."""
        return self._kv_flushed_at

    def flush(self) -> None:
        """Log and consume queue are durable up to what was appended before. Raises FlushError."""
        with self._maintaining:
            self._flush_everything()

    def ask_flush(self) -> None:
        """The log is flushed soon, up to what is appended now. Waits for nothing."""
        self._flush_service.request(self.log.appended_offset)

    def _flush_everything(self) -> None:
        end = self.log.appended_offset
        # The log first: queues that are ahead of it would have to be cut after a power loss.
        self._flush_service.request(end)
        if not self._flushed.wait_for(end, _DRAIN_TIMEOUT_S):
            raise FlushTimeoutError(end, _DRAIN_TIMEOUT_S)
        dispatched = self._dispatched.value
        mark = self.log.flushed_mark
        sequence = self.queues.applied_deletions
        self.queues.flush()
        self._queues_flushed(dispatched, mark)
        self._kv_flushed_s = self._clock.monotonic_s()
        # Marks last: a record above the checkpoint whose topic is gone was deleted only if a mark
        # says so, see lost_topics.py.
        self.write_checkpoint()
        self._topics.drop_marks(sequence, self.log.start_offset, self.log.flushed_mark[0])

    def maintain(self) -> None:
        """One round of what is due: a job calls it every second.

        Keeps the checkpoint behind the flushed log, and the replay after a crash bounded. A store
        whose directory is gone takes no more writes.
        """
        with self._maintaining:
            self._look_after_directory()
            if self._flushed.failure is not None:
                return
            waiting = self._dispatched.value - self._kv_flushed_at
            due = self._clock.monotonic_s() - self._kv_flushed_s >= self.config.kv_flush_interval_s
            # Should one of these fail again and again, the others go on all the same.
            with ExitStack() as stack:
                stack.callback(self._maintain_queues)
                stack.callback(self.metadata.maintain)
                stack.callback(self.write_checkpoint)
                if waiting > 0 and (due or waiting >= self.config.kv_flush_bytes):
                    self._flush_everything()

    def _maintain_queues(self) -> None:
        self._lost_until_ms = max(self._lost_until_ms, self.queues.maintain())
        if self._lost_until_ms and self._repair.refill(self._lost_until_ms):
            self._lost_until_ms = 0

    def _look_after_directory(self) -> None:
        """Called with _maintaining held."""
        gone = self._directory.what_is_gone() or self.log.removed_file()
        if gone is None or self._lost is not None:
            return
        error = StoreFailedError(f"{gone} was removed or replaced while the store was open")
        self._lost = error
        logger.critical("%s: no more writes are taken, what was stored may be gone", error)
        self._flushed.fail(error)
        self._dispatched.fail(error)

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Call back, on a store thread, once or twice, when no more writes are taken for good.

        Not when the store is closed.
        """

        def ended(error: BaseException | None) -> None:
            if isinstance(error, StoreFailedError):
                callback()

        for watermark in (self._flushed, self._dispatched):
            watermark.call_when(_NEVER, ended)

    def segments_dropped(self, log_start: int, store_time_ms: int | None) -> None:
        """Retention removed segments below `log_start`, records stored up to that time."""
        self._compaction_due = True
        if store_time_ms is not None:
            self.queues.expire(log_start, store_time_ms)

    def reclaim(self) -> None:
        """Compact the queues if something expired since the last time; a job calls it. Slow."""
        if not self._compaction_due:
            return
        self._compaction_due = False
        try:
            self.queues.compact(self._go_on_compacting)
        except BaseException as error:
            self._compaction_due = True
            if not (self._closed and isinstance(error, StoreClosedError)):
                raise

    def _go_on_compacting(self, _share: float) -> None:
        """Called between pieces. Raises StoreClosedError: closing does not wait for all of it."""
        self._check_open()

    def write_checkpoint(self) -> None:
        """What is flushed now is in the checkpoint file, durably."""
        # Of one flush: an end and the time of the record before it.
        flushed, time_ms = self.log.flushed_mark
        checkpoint = Checkpoint(
            log_time_ms=time_ms,
            queue_time_ms=min(time_ms, self._queue_time_ms),
            confirmed_offset=self._last_record_offset,
            flushed_offset=flushed,
        )
        if checkpoint == self._checkpointed:
            return
        try:
            write_checkpoint(self._directory.checkpoint, checkpoint)
        except OSError as error:
            if error.errno in _FULL:
                raise DiskFullError(f"the checkpoint cannot be written: {error}") from error
            raise
        self._checkpointed = checkpoint

    def _queues_flushed(self, dispatched: int, mark: tuple[int, int]) -> None:
        """Queues are durable up to `dispatched`; `mark` is of an earlier flush of the log."""
        self._kv_flushed_at = dispatched
        if dispatched >= mark[0]:
            self._queue_time_ms = max(self._queue_time_ms, mark[1])

    @property
    def admission(self) -> Admission:
        """What of a record read from the log belongs to topics that exist."""
        return self._topics.admission

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name; units in the names."""
        values: dict[str, float] = {
            "store.log_start_offset": self.log.start_offset,
            "store.log_appended_offset": self.log.appended_offset,
            "store.log_flushed_offset": self._flushed.value,
            "store.log_dispatched_offset": self._dispatched.value,
            "store.flush_behind_bytes": self.log.appended_offset - self._flushed.value,
            "store.dispatch_behind_bytes": self._lag(),
            "store.flush_count": self._flush_service.flush_count,
            "store.hot_queues": len(self.log.hot_queues),
            "store.poison_records": self.reput.poison_count,
            "store.dropped_segments": self.retention.dropped_segments,
            "store.retention_read_errors": self.retention.read_errors,
            "store.disk_used_ratio": self._guard.ratio,
            "store.puts_refused_for_space": self._guard.refuses_puts,
            "store.queue_repairs": self._repair.done,
        }
        values.update({f"kvcq.{name}": value for name, value in self.queues.statistics().items()})
        return values

    def close(self) -> None:
        """Drain, flush, and let go of the directory. Repeatable.

        Durability: everything appended, unless the log failed before; the abort marker stays then.
        It also stays when the disk is full: the next opening makes the rest of the queues again.
        Raises StoreFailedError when the directory is gone, and what closing its parts raises: all
        of it is let go of nevertheless.
        """
        with self._closing:
            if self._closed:
                return
            with self.log.lock:
                self.log.settle()
                self._closed = True
            try:
                self._let_go()
            except Exception as error:
                if self._lost is None:
                    raise
                raise self._lost from error

    def _let_go(self) -> None:
        # Whatever fails on the way, the rest is let go of, and the lock last of all.
        with ExitStack() as stack:
            stack.callback(self._directory.close)
            stack.callback(self.log.close)
            stack.callback(self.metadata.close)
            self._stop_services()
            # A flush that goes on in another thread ends first: it writes the checkpoint too.
            with self._maintaining:
                drained = self._dispatched.value == self.log.appended_offset
                flushed = self._flushed.value == self.log.appended_offset
                try:
                    self.queues.close()
                    if self._lost is not None:
                        return
                    self._queues_flushed(self._dispatched.value, self.log.flushed_mark)
                    if flushed:
                        self.write_checkpoint()
                    if flushed and drained:
                        self.metadata.close()
                        self._directory.mark_clean()
                except LACKS as error:
                    logger.warning("closed, and the next start recovers: %s", str(error))

    def _stop_services(self) -> None:
        self._page_ahead.stop()
        self._jobs.stop()
        self._repair.stop()
        self._flush_service.stop()
        self.reput.stop()

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _placed_in_batch(
    error: InvalidArgumentError, messages: Sequence[Message]
) -> InvalidArgumentError:
    """Name the message whose topic or host was refused; other fields name theirs already."""
    for index, message in enumerate(messages):
        if (
            error.field == "topic" and (repr(message.topic) in error.reason or not message.topic)
        ) or (error.field == "host" and repr(message.born_host[0]) in error.reason):
            field = "born_host" if error.field == "host" else "topic"
            return InvalidArgumentError(f"messages[{index}].{field}", error.reason)
    return error
