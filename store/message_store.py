"""The store: a commit log and everything derived from it, behind one set of calls.

`append` is where data enters, the flush services make it durable, reput derives queues and index
from it, and the reader returns it. `opening.py` assembles a store.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from store.base import Lock
from store.config import StoreConfig
from store.errors import StoreBusyError
from store.format import check_group, is_system_group
from store.groups import SharedGroups
from store.held import Halves, HandBack, Inherited, RolledHalves, Rolling, Timers
from store.light_queue import LMQ_PREFIX, is_light
from store.lite import LiteTopics
from store.puts import CommittedOffsets, NumberedBatches, TopicChanges
from store.setting import live_names
from store.state import Tables
from store.trace import Traces
from store.upkeep import Health, Maintenance

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from store.consume_queue import Boundary, Bounds, ConsumeQueueStore, DispatchRequest
    from store.format import BatchMark
    from store.log import StoreTimes
    from store.message import Appended, KeyQueryPage, Message
    from store.metadata import MessageType, Retention, TopicConfig
    from store.notes import Notes
    from store.puts import AppendPath
    from store.reads import Filter, LatestMessages, Pulled, ReadPath
    from store.state import StateStore
    from store.topics import Admission, Topics
    from store.upkeep import Services, Upkeep

T = TypeVar("T")


class MessageStore:
    """One open store directory. `kvcq.opening` and `migration.opening` create it.

    Thread: any, for all methods. Locks: see docs/threads.md.
    """

    def __init__(
        self,
        appends: AppendPath,
        reads: ReadPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        state: StateStore,
        notes: Notes,
        upkeep: Upkeep,
        services: Services,
        latest: LatestMessages,
        times: StoreTimes,
    ) -> None:
        # Constant after construction.
        self.log = appends.log
        self.applier = appends.applier
        self.queues = queues
        self.state = state
        self.notes = notes
        self.tables = Tables(state)
        self.batches = NumberedBatches(appends.log, queues, topics)
        self._appends = appends
        #: Plans pulls, and reads planned ones.
        self.reads = reads
        self._topics = topics
        self._topic_changes = TopicChanges(appends, topics, latest.superseded, self.wait_visible)
        self._committed = CommittedOffsets(appends, topics, reads.reader, self.tables)
        self._upkeep = upkeep
        self._services = services
        self._times = times
        self.snapshots = services.snapshots
        #: Groups that share their work.
        self.groups = SharedGroups(appends, topics, queues, self.tables, times, reads)
        #: Messages that wait for their time, and those of transactions.
        self.timers = Timers(appends, topics, queues, self.tables, times, reads)
        self.halves = Halves(appends, topics, state, times, reads)
        #: From another program, and to it.
        self.inherited = Inherited(appends, topics, times)
        self.handing_back = HandBack(appends, topics, state, times, reads)
        rolled_halves = RolledHalves(appends, topics, state, self.tables, reads)
        #: Keeps held messages when their segment is dropped. What comes last is lost first if the
        #: disk is too full: dead letters, of which there may be a flood.
        self.rolling = Rolling(
            queues, reads, [rolled_halves, self.timers.keeping, self.groups.keeping]
        )
        #: Lite topics: light queues of a parent topic, to which clients subscribe.
        self.lite = LiteTopics(
            *(appends, topics, queues, self.tables, times, reads),
            *(self._topic_changes, self.groups),
        )
        services.reput.add_listener(self.lite.subscriptions.dispatched)
        others = (self.groups, self.timers, self.halves, self.lite)
        #: For operators.
        self.maintenance = Maintenance(appends, topics, queues, latest, upkeep, services)
        self.health = Health(
            *(appends, reads.reader, queues, times, services),
            [each.statistics for each in others],
        )
        #: Finds out what became of a message.
        self.traces = Traces(
            *(appends.log, queues, state, self.tables, reads),
            *(topics.begins_at, times.steady_ms),
        )
        self._closing = Lock()

    @property
    def config(self) -> StoreConfig:
        """The current settings. See `reconfigure`."""
        return self._appends.config

    # --- where data enters -----------------------------------------------------------------

    def append(
        self,
        messages: Sequence[Message],
        *,
        separate: bool = False,
        wait: bool = True,
        dispatch: bool = True,
        mark: BatchMark | None = None,
    ) -> Appended:
        """Append all messages in order, or none.

        That also holds after a crash, unless they are `separate` puts that only share the append:
        then only the first of them may be left. With a `mark` it is a numbered batch, which
        `batches` finds again. A message of a transaction is appended alone, or `separate`, and
        cannot be numbered. In SYNC mode it is not acknowledged before `end_offset` is durable
        (`when_durable`). In ASYNC mode messages are visible on return, unless dispatch lags. If a
        signal handler raises (Ctrl-C), all or none of them may be in the log. For an event loop,
        set `wait` off: it raises AppendWouldWaitError if another thread is appending, or many
        queues must be looked up; then repeat the call in a thread. With `dispatch` off, which is
        also for an event loop, the caller answers first, and then calls `dispatch_appended` before
        any other call. Raises InvalidArgumentError naming the field (`messages[3].body`),
        UnknownTopicError, UnknownQueueError; DiskFullError, StoreBusyError, StoreClosedError,
        StoreFailedError; SegmentNotReadyError, a StoreBusyError, while the log's next segment is
        being created, since this never waits for the disk.
        """
        return self._appends.append(
            messages, separate=separate, wait=wait, dispatch=dispatch, mark=mark
        )

    def dispatch_appended(self) -> None:
        """Make messages appended with `dispatch` off visible, unless dispatch lags.

        Never blocks or raises: a failure is raised by the next append.
        """
        self._appends.dispatch_appended()

    @property
    def acknowledges_at_append(self) -> bool:
        """Whether a put is acknowledged as soon as it is appended (ASYNC)."""
        return self._appends.acknowledged.at_append

    def is_durable(self, end_offset: int) -> bool:
        """Whether a put that ends at this physical offset is acknowledged; in SYNC mode that means
        flushed and visible."""
        return self._appends.acknowledged.is_acknowledged(end_offset)

    def when_durable(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback` once, on a store thread, when a put that ends at this physical offset is
        acknowledged.

        It gets None, or the error if the put can never be acknowledged. In ASYNC mode it is called
        immediately, on this thread.
        """
        self._appends.acknowledged.when_acknowledged(end_offset, callback)

    def wait_visible(self) -> None:
        """Block until everything appended before is in the queues and the index.

        Raises StoreBusyError if that takes too long, and the error if it can never happen.
        """
        timeout_s = self.config.sync_flush_timeout_s
        if not self._appends.dispatched.wait_for(self.log.appended_offset, timeout_s):
            raise StoreBusyError(f"what was appended is not visible within {timeout_s:g} s")

    def when_visible(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call `callback` once everything appended before is in the queues and the index.

        It gets None, or the error if that can never happen. Called immediately if it is so already,
        otherwise on the dispatching thread, so it must be short.
        """
        self._appends.dispatched.call_when(self.log.appended_offset, callback)

    def put(self, messages: Sequence[Message]) -> Appended:
        """Append, and block until the put is acknowledged.

        Also waits for a lagging dispatch, and for a segment that is being created, each for at most
        `sync_flush_timeout_s`. Raises what `append` raises, FlushTimeoutError, FlushError.
        Durability on return: SYNC survives power loss; ASYNC survives a kill of the process, and
        power loss after the next flush.
        """
        return self._appends.put(messages)

    # --- where it leaves -------------------------------------------------------------------

    def pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        tag_filter: str | Filter | None = "",
    ) -> Pulled:
        """Messages from `offset` on, within both limits, but at least one if there is one.

        `tag_filter`: tags, or a parsed filter, which may be an SqlFilter. For a light queue pass
        its name as topic, and queue 0. Raises UnknownTopicError, UnknownQueueError,
        OffsetOutOfRangeError outside min..max, CorruptRecordError, and DamagedQueueError; a damaged
        queue is then rebuilt from the log in the background.
        """
        return self.reads.pull(
            *(topic, queue_id, offset),
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_filter=tag_filter,
        )

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a pull there would read from disk, far behind the end of the log."""
        return self.reads.is_cold(topic, queue_id, offset)

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
        """Messages of the topic with exactly this key, oldest first. Times are ms since 1970,
        inclusive; 0 is unbounded.

        A page has at most `limit` messages, and at least one whatever `max_bytes` says. Raises
        UnknownTopicError, InvalidArgumentError; CorruptHitError if the next message cannot be read,
        and a query with its `next_cursor` continues behind it.
        """
        wanted = (topic, key, begin_ms, end_ms, limit, cursor, max_bytes)
        return self.reads.repairing(lambda: self.reads.lookups.query(*wanted))

    def get(self, physical_offset: int) -> bytes:
        """The whole record at the physical offset. Raises MessageNotFoundError,
        DamagedQueueError."""
        return self.reads.get(physical_offset)

    def batch_records(self, producer_id: str, sequence: int) -> list[bytes | None] | None:
        """Records of the numbered batch, in order; None in place of one that left the log, or that
        its topic no longer keeps.

        Returns None if no batch of the log begins with that number. Includes messages hidden by a
        later one with their key. Raises CorruptRecordError, DamagedQueueError.
        """
        is_kept = partial(self.reads.lookups.is_kept, begins={})
        return self.reads.repairing(lambda: self.batches.records(producer_id, sequence, is_kept))

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """Min and max of each queue.

        Raises UnknownTopicError, UnknownQueueError, DamagedQueueError like `pull`.
        """
        return self.reads.bounds(queues)

    def with_given_at(self, topics: Sequence[str], read: Callable[[], T]) -> tuple[T, int]:
        """Run `read`. Returns its result and `given_at`: the end of the log when its offsets were
        given.

        `topics`: those of the queues it reads, light queues by name. An offset above 0 that was
        given at or below the position where its topic begins belongs to an earlier topic of the
        name. `read` is repeated if a topic was created meanwhile.
        """
        return self.reads.reader.with_given_at(topics, read)

    def bounds_in_log(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """Like `bounds`, but for everything in the log, including what its topic no longer
        keeps."""
        return self.reads.bounds_in_log(queues)

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Offset by store time; the table is in kvcq/tables/time_search.py.

        Raises like `pull`. Messages that are missing after a rebuild from the log are skipped.
        """
        return self.reads.search_time(topic, queue_id, time_ms, boundary)

    def on_dispatch(
        self, listener: Callable[[Sequence[DispatchRequest]], None]
    ) -> Callable[[], None]:
        """Call `listener` with each dispatched batch once it is visible. Returns a function that
        removes it.

        Runs on a store thread or the appending thread, and must be short.
        """
        return self._services.reput.add_listener(listener)

    # --- topics and groups -----------------------------------------------------------------

    def create_topics(
        self,
        topics: Sequence[tuple[str, int]],
        retentions: Mapping[str, Retention] | None = None,
        types: Mapping[str, MessageType] | None = None,
    ) -> list[TopicConfig]:
        """Create these topics durably; a queue count of 0 means the default. Repeatable.

        `retentions`: of topics that keep less than the log, by name; an existing topic without an
        entry keeps its retention. `types`: of topics for messages of one type; likewise. Raises
        InvalidArgumentError, and TopicExistsError if one has another count, retention or type; none
        is created then. If waiting for the flush raises, they may have been created.
        """
        return self._topic_changes.create(topics, retentions or {}, types or {})

    def keep(
        self,
        name: str,
        *,
        time_ms: int | None = None,
        size_bytes: int | None = None,
        messages: int | None = None,
        latest: bool | None = None,
    ) -> TopicConfig:
        """Set what the topic keeps, durably: see Retention. None leaves a limit unchanged.

        A smaller limit hides messages at once; one of bytes after they are counted. A larger limit
        of time or messages shows messages again that are still in the log; one of bytes lets queues
        grow from their current start. Raises UnknownTopicError, InvalidArgumentError.
        """
        return self._topic_changes.keep(name, time_ms, size_bytes, messages, latest=latest)

    def take(self, name: str, message_type: MessageType) -> TopicConfig:
        """Set the type of messages of the topic, durably. Existing messages stay.

        Raises UnknownTopicError.
        """
        return self._topic_changes.take(name, message_type)

    def delete_topic(self, name: str) -> None:
        """Delete the topic or light queue with all its rows and committed offsets, durably.

        Its records stay in the log, dead. A message appended after the deletion creates a new one
        of that name. Raises UnknownTopicError, and what an append raises.
        """
        self._topic_changes.delete([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete several topics or light queues, such as sessions, in chunks. On an error some of
        the earlier ones are deleted; the failed one and later ones are not."""
        self._topic_changes.delete(names)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Raises UnknownTopicError or UnknownQueueError if the queue does not exist."""
        self._appends.check_open()
        self._topics.require_queue(topic, queue_id)

    def describe_topic(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        self._appends.check_open()
        return self._topics.get(name)

    def describe_topics(self, names: Sequence[str]) -> list[TopicConfig | None]:
        """The settings of each topic; None if there is none of that name."""
        self._appends.check_open()
        return self.tables.topics(names)

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        """Up to `limit` topics in name order, with names above `after`."""
        self._appends.check_open()
        return self.tables.list_topics(prefix, after, limit)

    def list_light_queues(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Up to `limit` names of light queues with messages, by length, then by bytes; names above
        `after`."""
        self._appends.check_open()
        whole = prefix if is_light(prefix) else LMQ_PREFIX + prefix
        return self.queues.list_names(whole, after, limit)

    def commit_offsets(
        self,
        group: str,
        offsets: Iterable[tuple[str, int, int]],
        given_at: Iterable[int | None] = (),
        *,
        allow_back: bool = False,
    ) -> None:
        """Commit (topic, queue id, next offset) for the group, as durably as a put. All or none.

        `given_at`: of the response that each offset comes from, in order, see `with_given_at`.
        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError; GroupKindError for a
        shared group; OffsetOutOfRangeError above the queue's max, RecreatedQueueError, and, unless
        `allow_back`, OffsetBehindError below what the group committed before.
        """
        self._committed.commit(group, offsets, given_at, allow_back=allow_back)

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        """The committed offset of each queue; None if the group committed none. Raises
        GroupKindError for a shared group."""
        return self._committed.of(group, queues)

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        check_group(group)
        self._appends.check_open()
        return self.tables.list_committed(group, after, limit)

    def delete_group(self, group: str) -> None:
        """Delete the group with its offsets, durably. Repeatable. Raises InvalidArgumentError, also
        for a system group."""
        self._committed.delete_group(group)

    def has_group(self, group: str) -> bool:
        """Whether a group of either kind has that name."""
        return self.tables.group(group) is not None

    def list_groups(self, after: str | None, limit: int) -> list[str]:
        """Groups of either kind, in name order, without system groups."""
        self._appends.check_open()
        found: list[str] = []
        while len(found) < limit:
            page = self.tables.list_groups(after, limit)
            found += [group for group in page if not is_system_group(group)]
            if len(page) < limit:
                break
            after = page[-1]
        return found[:limit]

    # --- durability and end of life --------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Physical offset below which the log is known to be durable."""
        return self._appends.flushed.value

    def flush(self) -> None:
        """Make log and consume queue durable up to what was appended before. Raises FlushError."""
        checkpoints = self._upkeep.checkpoints
        with checkpoints.lock:
            checkpoints.flush()

    def reconfigure(self, config: StoreConfig) -> None:
        """Apply the settings that may change at run time; others stay. Thread-safe.

        A `reclaim_unexpired` of None does not change it either; only opening resolves that.
        """
        taken = {name: getattr(config, name) for name in live_names(StoreConfig)}
        if config.reclaim_unexpired is None:
            del taken["reclaim_unexpired"]
        config = replace(self.config, **taken)
        for part in (
            self._appends,
            self._topics,
            self._upkeep.checkpoints,
            self._services.retention,
        ):
            part.reconfigure(config)

    def ask_flush(self) -> None:
        """Request a flush up to what is appended now. Does not wait."""
        self._appends.ask_flush(self.log.appended_offset)

    def expire(self) -> int:
        """Drop expired segments now, whatever the hour. Returns how many were dropped.

        At most `retention.MANY`; 0 means that no more can be dropped. Raises like
        RetentionService.run_once.
        """
        self._appends.check_open()
        return self._services.retention.run_once(now=True)

    def maintain(self) -> None:
        """Run at once what a job does every second: see Upkeep."""
        self._upkeep.maintain()

    @property
    def admission(self) -> Admission:
        """Decides which parts of a record from the log belong to existing topics."""
        return self._topics.admission

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name; units are in the names."""
        return self.health.statistics()

    def lease_time_ms(self) -> int:
        """The time that leases and delays of shared groups use, ms since 1970; never falls."""
        return self._times.steady_ms()

    def backlog_since_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """Store time of the message at that offset, ms since 1970; None if there is none."""
        return self.reads.backlog_since_ms(topic, queue_id, offset)

    def close(self) -> None:
        """Drain, flush, and release the directory. Repeatable.

        Durability: everything appended, unless the log failed before; the abort marker then stays.
        It also stays if the disk is full: the next open rebuilds the rest of the queues. Raises
        StoreFailedError if the directory is gone, and what closing its parts raises; everything is
        released nevertheless.
        """
        self.timers.firing.stop()
        with self._closing:
            if not self._appends.closed:
                self._appends.close()
                self._upkeep.close(self._services.stop)

    def __enter__(self) -> MessageStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
