"""The store: one commit log, what is derived from it, behind one set of calls.

`append` is where data enters, the flush services make it durable, reput derives queues and index
from it, and the reader is where it leaves. `opening.py` puts a store together.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from store.base import Lock
from store.config import StoreConfig
from store.errors import StoreBusyError
from store.format import check_group
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
    """One open store directory. `kvcq.opening` and `migration.opening` make one.

    Thread: any, for every method. Locks: see docs/threads.md.
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
        #: Pulls in two halves.
        self.reads = reads
        self._topics = topics
        self._topic_changes = TopicChanges(appends, topics, latest.superseded, self.wait_visible)
        self._committed = CommittedOffsets(appends, topics, reads.reader, self.tables)
        self._upkeep = upkeep
        self._services = services
        self._times = times
        self.snapshots = services.snapshots
        #: Groups that share their work.
        self.groups = SharedGroups(appends, topics, queues, self.tables, times, self)
        #: Messages that wait for their time, and those of transactions.
        self.timers = Timers(appends, topics, queues, self.tables, times, self)
        self.halves = Halves(appends, topics, state, times, self)
        #: From another program, and to it.
        self.inherited = Inherited(appends, topics, times)
        self.handing_back = HandBack(appends, topics, state, times, self)
        rolled_halves = RolledHalves(appends, topics, state, self.tables, self)
        #: What keeps them when their segment goes.
        self.rolling = Rolling(
            queues, self, [self.groups.keeping, self.timers.keeping, rolled_halves]
        )
        #: Lite topics: light queues of a parent topic, to which clients subscribe.
        self.lite = LiteTopics(appends, topics, queues, self.tables, times, self, self.groups)
        services.reput.add_listener(self.lite.dispatched)
        others = (self.groups, self.timers, self.halves, self.lite)
        #: For operators.
        self.maintenance = Maintenance(appends, topics, queues, latest, upkeep, services)
        self.health = Health(
            *(appends, reads.reader, queues, times, services),
            [each.statistics for each in others],
        )
        #: What became of a message.
        self.traces = Traces(
            *(appends.log, queues, state, self.tables, self, self.reads.find),
            *(topics.begins_at, times.steady_ms),
        )
        self._closing = Lock()

    @property
    def config(self) -> StoreConfig:
        """The settings that count now. See `reconfigure`."""
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
        """All messages are in the log, in order, or none is.

        After a crash too, unless they are `separate` puts that only share the append: then the
        first of them may be left, as each would be by itself. With a `mark` it is a numbered batch,
        which `batches` finds again. A message of a transaction is appended alone, or `separate`,
        and is not numbered.
        Not acknowledged in SYNC mode before `end_offset` is durable (`when_durable`). In ASYNC
        mode they are visible on return, unless dispatch lags. When Ctrl-C ends it, or whatever else
        a signal handler raises, they may be in the log all the same: all of them, or none.
        `wait` off is for an event loop: AppendWouldWaitError is raised when another thread
        appends, or many queues must be looked up. The same call is then made in a thread.
        `dispatch` off is for an event loop, too: the caller answers first, and then calls
        `dispatch_appended`, before any other call is taken.
        Raises InvalidArgumentError naming the field (`messages[3].body`), UnknownTopicError,
        UnknownQueueError; DiskFullError, StoreBusyError, StoreClosedError, StoreFailedError.
        SegmentNotReadyError, a StoreBusyError, when the log's next segment is still being made:
        this waits for no disk.
        """
        return self._appends.append(
            messages, separate=separate, wait=wait, dispatch=dispatch, mark=mark
        )

    def dispatch_appended(self) -> None:
        """What was appended with `dispatch` off is visible on return, unless dispatch lags.

        Waits for nothing, and raises nothing: a failure is that of the next append.
        """
        self._appends.dispatch_appended()

    @property
    def acknowledges_at_append(self) -> bool:
        """Whether a put is acknowledged as soon as it is appended: ASYNC."""
        return self._appends.acknowledged.at_append

    def is_durable(self, end_offset: int) -> bool:
        """Whether a put that ends there is acknowledged: flushed and visible in SYNC mode."""
        return self._appends.acknowledged.is_acknowledged(end_offset)

    def when_durable(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call back once, on a store thread, when a put that ends there is acknowledged.

        With the error when it never will be. In ASYNC mode at once, on the caller's thread.
        """
        self._appends.acknowledged.when_acknowledged(end_offset, callback)

    def wait_visible(self) -> None:
        """What was appended before is in the queues and the index. Blocks.

        Raises StoreBusyError when that takes too long, and the error when it never will be.
        """
        timeout_s = self.config.sync_flush_timeout_s
        if not self._appends.dispatched.wait_for(self.log.appended_offset, timeout_s):
            raise StoreBusyError(f"what was appended is not visible within {timeout_s:g} s")

    def when_visible(self, callback: Callable[[BaseException | None], None]) -> None:
        """Call back once what was appended before is in the queues and the index.

        Or with the error when it never will be. At once when it is so already; otherwise on the
        thread that dispatches, so it must be short.
        """
        self._appends.dispatched.call_when(self.log.appended_offset, callback)

    def put(self, messages: Sequence[Message]) -> Appended:
        """`append`, and wait until it is acknowledged.

        Waits also for a dispatch that lags, and for a segment that is being made, each for
        `sync_flush_timeout_s` at most. Raises what `append` raises, FlushTimeoutError, FlushError.
        Durability: SYNC: survives power loss on return. ASYNC: survives a kill of the
        process on return, power loss after the next flush.
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
        """Messages from `offset` on, up to both limits, but at least one if there is one.

        `tag_filter`: tags, or a filter that is parsed already, which may be an SqlFilter.
        For a light queue: its name as topic, queue 0. Raises UnknownTopicError,
        UnknownQueueError, OffsetOutOfRangeError outside min..max, CorruptRecordError, and
        DamagedQueueError; the damaged queue is then rebuilt from the log in the background.
        """
        plan = self.reads.plan_pull(
            topic,
            queue_id,
            offset,
            max_messages=max_messages,
            max_bytes=max_bytes,
            tag_filter=tag_filter,
        )
        return self.reads.read_planned(plan)

    def is_cold(self, topic: str, queue_id: int, offset: int) -> bool:
        """Whether a pull there would read far behind the end of the log, from disk."""
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
        """Messages of the topic with exactly this key, oldest first; times inclusive, 0 is open.

        A page has `limit` messages at most, and at least one whatever `max_bytes` says.
        Raises UnknownTopicError, InvalidArgumentError; CorruptHitError when the next message cannot
        be read: its `next_cursor` goes on behind that one.
        """
        wanted = (topic, key, begin_ms, end_ms, limit, cursor, max_bytes)
        return self.reads.repairing(lambda: self.reads.lookups.query(*wanted))

    def get(self, physical_offset: int) -> bytes:
        """The whole record at the offset. Raises MessageNotFoundError, DamagedQueueError."""
        return self.reads.get(physical_offset)

    def batch_records(self, producer_id: str, sequence: int) -> list[bytes | None] | None:
        """Records of the numbered batch, in order; None in it: one that has left the log, or that
        its topic does not keep.

        None when no batch of the log begins with that number. What a later message of its key
        hides is there. Raises CorruptRecordError, DamagedQueueError.
        """
        is_kept = partial(self.reads.lookups.is_kept, begins={})
        return self.reads.repairing(lambda: self.batches.records(producer_id, sequence, is_kept))

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """Min and max of each queue.

        Raises UnknownTopicError, UnknownQueueError, DamagedQueueError as `pull` does.
        """
        return self.reads.bounds(queues)

    def with_given_at(self, topics: Sequence[str], read: Callable[[], T]) -> tuple[T, int]:
        """What `read` returns, and `given_at`: the end of the log when its offsets were given.

        `topics`: those of the queues it reads, light queues by their names. An offset above 0 that
        was given at or below the place in the log where its topic begins is of an earlier topic of
        the name. `read` is repeated when one was made meanwhile.
        """
        return self.reads.reader.with_given_at(topics, read)

    def bounds_in_log(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """The same with all that is in the log, also what its topic does not keep any more."""
        return self.reads.bounds_in_log(queues)

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Offset by store time; the table is in kvcq/tables/time_search.py.

        Raises as `pull` does. What is missing after a rebuild from the log is passed over.
        """
        return self.reads.search_time(topic, queue_id, time_ms, boundary)

    def on_dispatch(
        self, listener: Callable[[Sequence[DispatchRequest]], None]
    ) -> Callable[[], None]:
        """Call `listener` with what was dispatched, once visible; returns how to end that.

        On a store thread or the appending one: be short.
        """
        return self._services.reput.add_listener(listener)

    # --- topics and groups -----------------------------------------------------------------

    def create_topics(
        self,
        topics: Sequence[tuple[str, int]],
        retentions: Mapping[str, Retention] | None = None,
        types: Mapping[str, MessageType] | None = None,
    ) -> list[TopicConfig]:
        """The topics exist, durably; a count of 0 means the default.

        `retentions`: of topics that keep less than the log does, by name; one that exists keeps
        what it keeps, if it has none here. `types`: of topics that are for messages of one type;
        likewise. Raises InvalidArgumentError, TopicExistsError when one has another count, another
        retention or another type: none is made then. What waiting for the flush raises: they may be
        made then.
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
        """The topic keeps so much from now on, durably: see Retention. What is None stays.

        A smaller limit hides messages at once; one of bytes once they are counted. A larger limit
        of time or messages shows again what is still in the log; one of bytes lets queues grow from
        where they begin. Raises UnknownTopicError, InvalidArgumentError.
        """
        return self._topic_changes.keep(name, time_ms, size_bytes, messages, latest=latest)

    def take(self, name: str, message_type: MessageType) -> TopicConfig:
        """The topic is for messages of that type from now on, durably. Those that it has stay.

        Raises UnknownTopicError.
        """
        return self._topic_changes.take(name, message_type)

    def delete_topic(self, name: str) -> None:
        """The topic, or light queue, and every row of it are gone, durably; so are offsets on it.

        Its records stay in the log, dead. A message that is appended behind the deletion makes a
        new one of that name. Raises UnknownTopicError, and what an append raises.
        """
        self._topic_changes.delete([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """The same of several, some at a time: light queues of sessions, for example. What is
        raised for one of them leaves it, those behind it and some before it as they were.
        """
        self._topic_changes.delete(names)

    def delete_light(self, names: Sequence[str]) -> int:
        """Those of these light queues are gone that there were, as by `delete_topic`, some at a
        time; returns how many. Raises what an append raises."""
        return self._topic_changes.delete_light(names)

    def delete_idle(self, ends: Mapping[str, int]) -> int:
        """Those of these light queues are gone whose next offset is still the one given; returns
        how many. Raises what an append raises."""
        return self._topic_changes.delete_idle(ends)

    def check_queue(self, topic: str, queue_id: int) -> None:
        """Raises UnknownTopicError, UnknownQueueError where there is no such queue."""
        self._appends.check_open()
        self._topics.require_queue(topic, queue_id)

    def describe_topic(self, name: str) -> TopicConfig:
        """Raises UnknownTopicError."""
        self._appends.check_open()
        return self._topics.get(name)

    def describe_topics(self, names: Sequence[str]) -> list[TopicConfig | None]:
        """Of each of them; None: there is none of that name."""
        self._appends.check_open()
        return self._topics.find(names)

    def list_topics(self, prefix: str, after: str | None, limit: int) -> list[TopicConfig]:
        """In name order, names above `after`."""
        self._appends.check_open()
        return self._topics.list_topics(prefix, after, limit)

    def list_light_queues(self, prefix: str, after: str | None, limit: int) -> list[str]:
        """Names of light queues with messages, by length, then by bytes; names above `after`."""
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
        """Store (topic, queue id, next offset) for the group, as durably as a put. All or none.

        `given_at`: of the answer that each of the first offsets is from, see `with_given_at`.
        Raises InvalidArgumentError, UnknownTopicError, UnknownQueueError; GroupKindError of a
        shared group; OffsetOutOfRangeError above the queue's max, RecreatedQueueError, and, unless
        `allow_back`, OffsetBehindError below what the group committed before.
        """
        self._committed.commit(group, offsets, given_at, allow_back=allow_back)

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        """None: the group has committed nothing there. Raises GroupKindError of a shared group."""
        return self._committed.of(group, queues)

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        check_group(group)
        self._appends.check_open()
        return self.tables.list_committed(group, after, limit)

    def delete_group(self, group: str) -> None:
        """The group by offsets, and what it committed, are gone, durably. Repeatable."""
        self._committed.delete_group(group)

    def has_group(self, group: str) -> bool:
        """Of either kind."""
        return self.tables.group(group) is not None

    def list_groups(self, after: str | None, limit: int) -> list[str]:
        self._appends.check_open()
        return self.tables.list_groups(after, limit)

    # --- durability and end of life --------------------------------------------------------

    @property
    def flushed_offset(self) -> int:
        """Below this the log is known to be durable."""
        return self._appends.flushed.value

    def flush(self) -> None:
        """Log and consume queue are durable up to what was appended before. Raises FlushError."""
        checkpoints = self._upkeep.checkpoints
        with checkpoints.lock:
            checkpoints.flush()

    def reconfigure(self, config: StoreConfig) -> None:
        """Take those of the settings that may change at run time; the others stay. Any thread.

        `reclaim_unexpired` of None stays as it is too: only an opening finds what that is.
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
        """The log is flushed soon, up to what is appended now. Waits for nothing."""
        self._appends.ask_flush(self.log.appended_offset)

    def expire(self) -> int:
        """Segments whose messages have expired go now, whatever the hour; returns how many went.

        At most `retention.MANY`: 0 says that no more can go. Raises as RetentionService.run_once.
        """
        self._appends.check_open()
        return self._services.retention.run_once(now=True)

    def maintain(self) -> None:
        """What a job does every second, at once: see Upkeep."""
        self._upkeep.maintain()

    @property
    def admission(self) -> Admission:
        """What of a record read from the log belongs to topics that exist."""
        return self._topics.admission

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name; units in the names."""
        return self.health.statistics()

    def lease_time_ms(self) -> int:
        """The time that leases and delays of shared groups go by, ms since 1970; it never falls."""
        return self._times.steady_ms()

    def backlog_since_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message at that offset was stored, ms since 1970; None: there is none."""
        return self.reads.backlog_since_ms(topic, queue_id, offset)

    def close(self) -> None:
        """Drain, flush, and let go of the directory. Repeatable.

        Durability: everything appended, unless the log failed before; the abort marker stays then.
        It also stays when the disk is full: the next opening makes the rest of the queues again.
        Raises StoreFailedError when the directory is gone, and what closing its parts raises: all
        of it is let go of nevertheless.
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
