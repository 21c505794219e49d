"""Writes: the checks, the append, and the waits until it is acknowledged."""

from __future__ import annotations

from collections import Counter
from contextlib import contextmanager
from operator import attrgetter
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from store.derive import SLICE_ROWS
from store.errors import (
    AppendWouldWaitError,
    FlushTimeoutError,
    InvalidArgumentError,
    SegmentNotReadyError,
    StoreBusyError,
    StoreClosedError,
    StoreError,
    StoreFailedError,
)
from store.format import (
    MAX_LIGHT_QUEUES,
    MAX_MESSAGES,
    PLAIN,
    check_no_group_topics,
    is_system_topic,
    prepare_all,
)
from store.message import Appended, Message, PlainMessages
from store.puts.naming import check_fit, placed_in_batch
from store.state import STATE_TOPIC, LookedRows, TopicEnded, changes_of, pack_entries
from store.topics import TopicsNeededError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from store.config import StoreConfig
    from store.derive import ReputService, StateApplier
    from store.format import BatchMark, Prepared
    from store.log import Acknowledgement, CommitLog, DiskGuard, FlushService, LogAppend
    from store.state import Changes, Entry, Rows, StateView
    from store.topics import End, Topics

T = TypeVar("T")

#: How long closing waits for the last flush, and deletion for dispatch.
DRAIN_TIMEOUT_S = 60.0
#: Moved messages were accepted once, so the current setting does not apply to them.
MOST_BODY_BYTES = (1 << 31) - 1
#: Creating more topics takes too long for a caller that must not wait; this many take 4 ms.
_FEW_TOPICS = 256
_topic_of = attrgetter("topic")


class Step(NamedTuple):
    """A decision, with messages that are in the log with it or not at all."""

    entries: Sequence[Entry]  # of one record, if there are messages
    messages: Sequence[Message] = ()  # messages of a system topic go to its queue 0
    changes: Changes | None = None  # the changes of the entries, if known
    prepared: Sequence[Prepared] | None = None  # the result of `prepare_all` for the messages
    rows: LookedRows | None = None  # what the changes were computed from, if their place matters:
    # they are those of a record at the log's end


class _Deciding(NamedTuple):
    """A record of the state on its way into the log."""

    entries: Sequence[Entry]
    changes: Changes  # their changes, if the record begins at log_end
    rows: Rows  # the rows from which the changes were computed
    log_end: int  # before it
    following: Mapping[str, int]  # the next offsets of the queues of system topics after it
    ended: Sequence[tuple[str, int] | str]  # the hot queues that end with it
    is_anywhere: bool  # the changes are the same wherever it begins


class AppendPath:
    """The log, the dispatch of its records, and the service that flushes it.

    Its methods are those of MessageStore, where they are documented. Thread: any. Locks: the log's.
    """

    def __init__(
        self,
        config: StoreConfig,
        log: CommitLog,
        acknowledged: Acknowledgement,
        reput: ReputService,
        flush_service: FlushService,
        guard: DiskGuard,
        topics: Topics,
        view: StateView,
        applier: StateApplier,
    ) -> None:
        # Constant after construction.
        self.log = log
        self._topics = topics
        self._view = view
        self.applier = applier
        self.acknowledged = acknowledged
        self.flushed = acknowledged.flushed
        self.dispatched = acknowledged.dispatched
        self._reput = reput
        self._flush_service = flush_service
        self._guard = guard
        # Replaced as a whole.
        self._config = config
        # Guarded by the append lock: the record of the state that is appended.
        self._deciding: _Deciding | None = None
        # Guarded by the append lock; read freely.
        self.closed = False

    @property
    def config(self) -> StoreConfig:
        """The current settings."""
        return self._config

    def reconfigure(self, config: StoreConfig) -> None:
        self._config = config
        self._guard.reconfigure(config)
        self._flush_service.reconfigure(config)

    def append(
        self,
        messages: Sequence[Message],
        *,
        separate: bool = False,
        wait: bool = True,
        dispatch: bool = True,
        mark: BatchMark | None = None,
    ) -> Appended:
        config = self._config
        _check_topics(messages)
        prepared = prepare_all(
            messages,
            config.max_body_bytes,
            MAX_LIGHT_QUEUES,
            is_batch=mark is not None or (len(messages) > 1 and not separate),
            mark=mark,
        )
        if not 0 < len(messages) <= MAX_MESSAGES:
            raise InvalidArgumentError(
                "messages",
                f"{len(messages)} messages, not 1 to {MAX_MESSAGES}" if messages else "is empty",
            )
        log = self.log
        publish = self._reput.dispatch_or_queue if dispatch else self._reput.defer
        if not wait and log.lock.locked():
            raise AppendWouldWaitError("another append is in progress")
        with log.lock:  # an interrupt cannot leave it held, as it could after `acquire`
            done = self._append(
                messages, prepared, publish, separate=separate, wait=wait, mark=mark
            )
        if done.row_count > SLICE_ROWS and self.acknowledged.at_append:
            # Not under the lock: others append meanwhile.
            self._reput.dispatch_to(done.end_offset)
        return Appended(done.requests, done.end_offset, done.store_time_ms)

    def _append(
        self,
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        publish: Callable[[LogAppend], None],
        *,
        separate: bool,
        wait: bool,
        mark: BatchMark | None,
    ) -> LogAppend:
        """Must hold the append lock."""
        if self._deciding is not None:
            self._settle()
        self._check_writable()
        try:
            try:
                done = self.log.append(
                    messages, prepared, publish, separate=separate, wait=wait, mark=mark
                )
            except TopicsNeededError as needed:
                if not wait and len(needed.names) > _FEW_TOPICS:
                    raise AppendWouldWaitError(f"{len(needed.names)} topics are made") from None
                check_fit(messages, prepared, self.log.segment_bytes)
                topics = self._topics.automatic(needed.names)
                self._append_state(Step(topics), publish)
                self._topics.made(topics, self.log.appended_offset)
                done = self.log.append(
                    messages, prepared, publish, separate=separate, wait=wait, mark=mark
                )
            if not self.acknowledged.at_append:
                self._flush_service.request(done.end_offset, len(messages))
        except InvalidArgumentError as error:
            raise placed_in_batch(error, messages) from None
        except BaseException:
            self._finish_interrupted()
            raise
        return done

    def _finish_interrupted(self) -> None:
        """After an interrupted append, make what is in the log visible all the same."""
        self._reput.wake()
        if not self.acknowledged.at_append:
            self._flush_service.request(self.log.appended_offset, 0)

    def _append_state(
        self,
        step: Step,
        publish: Callable[[LogAppend], None],
    ) -> None:
        """Append records with the step's entries. With messages it is a single record, followed by
        them, and a crash leaves all or nothing. Must hold the append lock."""
        entries, messages, changes, prepared, looked = step
        details: Sequence[Prepared] = ()
        records = list(pack_entries(entries, together=bool(messages)))
        if len(records) > 1:
            changes = looked = None
        if messages:
            # Not as columns: dispatch looks for the state's record.
            if prepared is None:
                prepared = prepare_all(messages, MOST_BODY_BYTES, MAX_LIGHT_QUEUES, is_batch=True)
            details = [*prepared]
        own = Counter(each.topic for each in messages if is_system_topic(each.topic))
        own[STATE_TOPIC] = 1
        for taken, body in records:
            end = self.log.appended_offset
            # Noted first: an interrupt may come anywhere, and the next one here does the rest.
            # Also looked up first: once the record is in the log, dispatch may have it in the rows.
            rows = LookedRows(self._view) if looked is None else looked
            made = changes_of(taken, end, rows) if changes is None else changes
            following = {topic: self._topics.next_own(topic) + own[topic] for topic in own}
            names = [entry.topic for entry in taken if isinstance(entry, TopicEnded)]
            ended = [key for name in names for key in self._topics.hot_keys(name)]
            self._deciding = _Deciding(
                *(taken, made, rows, end, following, ended),
                is_anywhere=changes is not None and looked is None,
            )
            self._topics.deciding(taken, end)

            def publish_state(done: LogAppend) -> None:
                record = done.requests[0]
                self._settle_state((record.physical_offset, record.record_size))
                publish(done)

            try:
                self.log.append(
                    [Message(STATE_TOPIC, body), *messages], [PLAIN, *details], publish_state
                )
            finally:
                self._settle()

    def _settle_state(self, place: tuple[int, int] | None = None) -> None:
        """Put a decided record into the view if it is in the log. Must hold the append lock, with
        no append half done. Repeatable; may itself be interrupted.

        `place`: its physical offset and size, if it was just appended."""
        deciding = self._deciding
        if deciding is None:
            return
        entries, changes, rows, log_end, following, ended, is_anywhere = deciding
        end = self.log.appended_offset
        if end > log_end:
            if place is None:
                found = self.log.first_time_from(log_end)
                assert found is not None, "the record is the first one there"
                place = found[0], len(self.log.read_at(found[0]))
            at, size = place
            end = at + size
            if at != log_end and not is_anywhere:  # it is in the next segment
                changes = changes_of(entries, at, rows)
            self._topics.own_appended(following)
            self.log.hot_queues.forget(ended)
            self.applier.appended(at, self._view.append(entries, at, end, changes))
        self._topics.decided(is_appended=end > log_end)
        self.log.hot_queues.forget([(topic, 0) for topic in following])
        self._deciding = None

    def decide(self, decide: Callable[[], Sequence[Entry]]) -> int:
        """Append what `decide` returns; returns the physical offset behind it.

        `decide` is called under the append lock, so nothing is appended between its reads and the
        record. Raises what it raises, and what an append raises.
        """

        def steps() -> Sequence[Step]:
            entries = decide()
            return [Step(entries)] if entries else []

        return self.decide_steps(steps)

    def decide_steps(self, decide: Callable[[], Sequence[Step]], *, wait: bool = True) -> int:
        """Like `decide`, in several non-empty steps: each may build on earlier ones, and a crash
        may leave only the first ones.

        Unless it may `wait`, raises AppendWouldWaitError if there is no segment yet.
        """

        def append() -> int:
            with self.held():
                steps = decide()
                try:
                    for step in steps:
                        self._append_state(step, self._reput.dispatch_or_queue)
                    end = self.log.appended_offset
                    if steps and not self.acknowledged.at_append:
                        self._flush_service.request(end, 1)
                    return end
                except BaseException:
                    self._finish_interrupted()
                    raise

        if wait:
            return self._with_segment(append)
        try:
            return append()
        except SegmentNotReadyError as error:
            raise AppendWouldWaitError(str(error)) from None

    def append_entries(
        self, entries: Sequence[Entry], ends: Mapping[str, End] = MappingProxyType({})
    ) -> None:
        """Append entries; on return they are in the state, as durable as a put.

        `ends`: of topics and light queues, as they were before the data behind the entries was
        read. Raises UnknownTopicError if one of them was deleted since.
        """
        self.wait_acknowledged(self.decide(lambda: self._topics.unless_ended(ends, entries)))

    def wait_acknowledged(self, end: int) -> None:
        """Block until everything appended below `end` is as durable as a put, and visible.

        Raises FlushTimeoutError, and the error if it can never happen.
        """
        timeout_s = self._config.sync_flush_timeout_s
        if not self.acknowledged.at_append:
            # An interrupt may have stopped the thread that should request it.
            self._flush_service.request(end)
        if not self.dispatched.wait_for(end, timeout_s):
            raise FlushTimeoutError(end, timeout_s)

    def wait_durable(self, end: int) -> None:
        """Block until everything appended below `end` is flushed and visible, also in ASYNC mode.
        Raises like `wait_acknowledged`."""
        timeout_s = self._config.sync_flush_timeout_s
        self._flush_service.request(end)
        if not self.flushed.wait_for(end, timeout_s):
            raise FlushTimeoutError(end, timeout_s)
        self.wait_acknowledged(end)

    def dispatch_appended(self) -> None:
        self._reput.dispatch_due()

    def put(self, messages: Sequence[Message]) -> Appended:
        timeout_s = self._config.sync_flush_timeout_s
        excess = self.acknowledged.lag() - self._config.max_dispatch_lag_bytes
        if excess > 0:
            self.dispatched.wait_for(self.dispatched.value + excess, timeout_s)
        appended = self._with_segment(lambda: self.append(messages))
        if not self.acknowledged.wait(appended.end_offset, timeout_s):
            raise FlushTimeoutError(appended.end_offset, timeout_s)
        return appended

    def _with_segment(self, append: Callable[[], T]) -> T:
        """Run `append`; wait for a missing segment without the append lock, so that others can
        append."""
        while True:
            try:
                return append()
            except SegmentNotReadyError as error:
                timeout_s = self._config.sync_flush_timeout_s
                if not self.log.wait_for_segment(error.start_offset, timeout_s):
                    raise

    def fail(self, error: StoreFailedError) -> None:
        """Reject all further writes."""
        self.flushed.fail(error)
        self.dispatched.fail(error)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the append lock, with no append half done. Raises what `append` raises first."""
        with self.log.lock:
            self._settle()
            self._check_writable()
            yield

    def ask_flush(self, end: int) -> None:
        """Request a flush up to `end`. Does not wait."""
        self._flush_service.request(end)

    def flush(self) -> None:
        """Make the log durable up to what was appended before. Raises FlushError."""
        end = self.log.appended_offset
        self._flush_service.request(end)
        if not self.flushed.wait_for(end, DRAIN_TIMEOUT_S):
            raise FlushTimeoutError(end, DRAIN_TIMEOUT_S)

    def drain(self, end: int) -> None:
        """Block until everything below `end` is dispatched. Raises StoreBusyError if that takes too
        long."""
        self._flush_service.request(end)
        if not self.dispatched.wait_for(end, DRAIN_TIMEOUT_S):
            raise StoreBusyError(f"dispatch did not reach {end} in {DRAIN_TIMEOUT_S:g} s")

    def close(self) -> None:
        """Reject further appends."""
        with self.log.lock:
            self._settle()
            self.closed = True

    def _settle(self) -> None:
        """Undo or complete what an interrupt left half done. Must hold the append lock."""
        self.log.settle()
        if self._deciding is not None:
            self._settle_state()

    def check_open(self) -> None:
        if self.closed:
            raise StoreClosedError("the store is closed")

    def why_not_writable(self) -> str | None:
        """Why puts are rejected, if the reason does not pass on its own in a moment; None if they
        are accepted.

        Thread-safe. Never blocks.
        """
        try:
            self._check_lasting()
        except StoreError as error:
            return str(error)
        fault = self._guard.fault
        return None if fault is None else f"no file can be written: {fault.strerror}"

    def _check_writable(self) -> None:
        self._check_lasting()
        lag = self.acknowledged.lag()
        if lag > self._config.max_dispatch_lag_bytes:
            raise StoreBusyError(f"dispatch is {lag} bytes behind the log")

    def _check_lasting(self) -> None:
        if self.closed:
            self.check_open()
        failure = self.flushed.failure or self.dispatched.failure
        if failure is not None:
            raise StoreFailedError(f"the store rejects writes: {failure}") from failure
        if self._guard.refuses_puts:
            self._guard.check_put()
        lack = self._reput.waits_for
        if lack is not None:
            # Messages that are stored now could not be read until there is room again.
            raise type(lack)(f"the queues cannot be written to: {lack}")

    def statistics(self) -> dict[str, float]:
        flushes = self._flush_service.seconds.read()
        return {
            "store.log_start_offset": self.log.start_offset,
            "store.log_appended_offset": self.log.appended_offset,
            "store.log_flushed_offset": self.flushed.value,
            "store.log_dispatched_offset": self.dispatched.value,
            "store.flush_behind_bytes": self.log.appended_offset - self.flushed.value,
            "store.dispatch_behind_bytes": self.log.appended_offset - self.dispatched.value,
            "store.flush_count": flushes.times,
            "store.flush_seconds": flushes.total,
            "store.failed": float((self.flushed.failure or self.dispatched.failure) is not None),
            "store.hot_queues": len(self.log.hot_queues),
            "store.poison_records": self._reput.poison_count,
            "store.disk_used_ratio": self._guard.ratio,
            "store.disk_free_bytes": self._guard.free_bytes,
            "store.puts_refused_for_space": self._guard.refuses_puts,
        }


def _check_topics(messages: Sequence[Message]) -> None:
    """Raises InvalidArgumentError for the first message whose topic only the store writes."""
    if len(messages) == 1 and messages[0].topic[:1] != "%":
        return  # the common case
    # By type, because isinstance with an abstract class takes ten times as long.
    columns = messages if type(messages) is PlainMessages else None
    check_no_group_topics([*map(_topic_of, messages)] if columns is None else columns.topics)
