"""The store: one commit log, what is derived from it, behind one set of calls.

`append` is where data enters, the flush services make it durable, reput derives queues and index
from it, and the reader is where it leaves. `opening.py` puts a store together.
"""

from __future__ import annotations

from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from store.base import Lock
from store.config import StoreConfig
from store.errors import (
    DamagedQueueError,
    GroupKindError,
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetBehindError,
    OffsetOutOfRangeError,
    StoreBusyError,
    StoreClosedError,
    StoreFailedError,
)
from store.format import ITEM_END, check_group
from store.groups import SharedGroups
from store.held import Halves, Inherited, RolledHalves, Rolling, Timers
from store.light_queue import LMQ_PREFIX, is_light
from store.lite import LiteTopics
from store.metadata import MessageType, Retention
from store.puts import NumberedBatches
from store.reads import TagFilter
from store.setting import live_names
from store.state import Committed, GroupEnded, GroupMade, Tables, unpack_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from store.base import Counted
    from store.consume_queue import Boundary, Bounds, ConsumeQueueStore, DispatchRequest
    from store.derive import Rebuilt
    from store.format import BatchMark
    from store.log import LogHold, StoreTimes
    from store.message import Appended, KeyQueryPage, Message
    from store.metadata import TopicConfig
    from store.notes import Notes
    from store.puts import AppendPath
    from store.reads import Filter, LatestKept, LatestMessages, Pulled, PullPlan, Reader
    from store.state import Entry, StateStore
    from store.topics import Admission, End, Topics
    from store.upkeep import Services, Upkeep

#: No watermark reaches it: a callback that waits for it gets the failure.
_NEVER = 1 << 63
#: Each is looked up under the append lock: so many take about 10 ms.
_DELETED_TOGETHER = 1000

T = TypeVar("T")


class _EndedMeanwhileError(Exception):
    """A queue that was looked at has ended."""


class MessageStore:
    """One open store directory. `kvcq.opening` and `migration.opening` make one.

    Thread: any, for every method. Locks: see docs/threads.md.
    """

    def __init__(
        self,
        appends: AppendPath,
        reader: Reader,
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
        self._reader = reader
        self._topics = topics
        self._upkeep = upkeep
        self._services = services
        self._repair = services.repair
        self._latest = latest
        self._times = times
        self.snapshots = services.snapshots
        #: Groups that share their work.
        self.groups = SharedGroups(appends, topics, queues, self.tables, times, self)
        #: Messages that wait for their time, and those of transactions.
        self.timers = Timers(appends, topics, queues, self.tables, times, self)
        self.halves = Halves(appends, topics, state, times, self)
        #: What another program kept of these becomes the store's own.
        self.inherited = Inherited(appends, topics, times)
        rolled_halves = RolledHalves(appends, topics, state, self.tables, self)
        #: What keeps them when their segment goes.
        self.rolling = Rolling(
            queues, self, [self.groups.keeping, self.timers.keeping, rolled_halves]
        )
        #: Lite topics: light queues of a parent topic, to which clients subscribe.
        self.lite = LiteTopics(appends, topics, queues, self.tables, times, self, self.groups)
        services.reput.add_listener(self.lite.dispatched)
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

    def make_segments_aside(self) -> None:
        """From now on no append makes a segment itself, also with `preallocate` off. Repeatable.

        For a service, which would stand still meanwhile; an append raises SegmentNotReadyError.
        """
        self.log.make_segments_aside()

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
        return self.read_planned(
            self.plan_pull(
                topic,
                queue_id,
                offset,
                max_messages=max_messages,
                max_bytes=max_bytes,
                tag_filter=tag_filter,
            )
        )

    def plan_pull(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        *,
        max_messages: int,
        max_bytes: int,
        tag_filter: str | Filter | None,
        given_at: int | None = None,
    ) -> PullPlan:
        """The first half of `pull`: what it is to read of the log. Reads no record.

        `given_at`: that of the answer that `offset` is from, see `with_given_at`. Raises what
        `pull` raises, but for what is found in records; and RecreatedQueueError.
        """
        if max_messages < 1:
            raise InvalidArgumentError("max_messages", f"{max_messages} is below 1")
        if max_bytes < 1:
            raise InvalidArgumentError("max_bytes", f"{max_bytes} is below 1")
        self._appends.check_open()
        if isinstance(tag_filter, str):
            tag_filter = TagFilter.parse(tag_filter)
        try:
            return self._reader.plan(
                topic, queue_id, offset, max_messages, max_bytes, tag_filter, given_at
            )
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def read_planned(self, plan: PullPlan) -> Pulled:
        """The second half of `pull`, soon after the first. Raises what `pull` raises."""
        self._appends.check_open()
        try:
            return self._reader.read(plan)
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def _repair_queue_of(self, error: DamagedQueueError) -> None:
        """Rebuild its queue in the background; if that has not helped, say where to read on."""
        place = error.topic, error.queue_id, error.queue_offset
        if self._repair.has_failed(*place):
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
        Raises UnknownTopicError, InvalidArgumentError; CorruptHitError when the next message cannot
        be read: its `next_cursor` goes on behind that one.
        """
        if not key:
            raise InvalidArgumentError("key", "is empty")
        if ITEM_END in key:
            raise InvalidArgumentError("key", "has a control separator in it")
        if limit < 1:
            raise InvalidArgumentError("limit", f"{limit} is below 1")
        if begin_ms < 0 or end_ms < 0:
            raise InvalidArgumentError("begin_ms" if begin_ms < 0 else "end_ms", "is below 0")
        self._appends.check_open()
        return self._reader.query(topic, key, begin_ms, end_ms, limit, cursor, max_bytes)

    def get(self, physical_offset: int) -> bytes:
        """The whole record at the offset. Raises MessageNotFoundError, DamagedQueueError."""
        self._appends.check_open()
        try:
            return self._reader.get(physical_offset)
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def batch_records(self, producer_id: str, sequence: int) -> list[bytes | None] | None:
        """Records of the numbered batch, in order; None in it: one that has left the log, or that
        its topic does not keep.

        None when no batch of the log begins with that number. What a later message of its key
        hides is there. Raises CorruptRecordError, DamagedQueueError.
        """
        self._appends.check_open()
        while True:
            start = self.log.start_offset
            found = self.batches.find(producer_id, sequence)
            if found is None:
                return None
            try:
                records = [
                    one if one is None else self.log.read(one.physical_offset, one.record_size)
                    for one in found.messages
                ]
                begins: dict[tuple[str, int], int] = {}
                return [
                    one if one is not None and self._reader.is_kept(one, begins) else None
                    for one in records
                ]
            except DamagedQueueError as error:
                self._repair_queue_of(error)
                raise
            except MessageNotFoundError:
                if self.log.start_offset == start:
                    raise
                # Its segment was dropped meanwhile.

    def bounds(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """Min and max of each queue.

        Raises UnknownTopicError, UnknownQueueError, DamagedQueueError as `pull` does.
        """
        self._appends.check_open()
        try:
            return [self._reader.bounds(topic, queue_id) for topic, queue_id in queues]
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def with_given_at(self, topics: Sequence[str], read: Callable[[], T]) -> tuple[T, int]:
        """What `read` returns, and `given_at`: the end of the log when its offsets were given.

        `topics`: those of the queues it reads, light queues by their names. An offset above 0 that
        was given at or below the place in the log where its topic begins is of an earlier topic of
        the name. `read` is repeated when one was made meanwhile.
        """
        return self._reader.with_given_at(topics, read)

    def bounds_in_log(self, queues: Sequence[tuple[str, int]]) -> list[Bounds]:
        """The same with all that is in the log, also what its topic does not keep any more."""
        self._appends.check_open()
        try:
            return [self._reader.bounds_in_log(topic, queue_id) for topic, queue_id in queues]
        except DamagedQueueError as error:
            self._repair_queue_of(error)
            raise

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Offset by store time; the table is in kvcq/tables/time_search.py.

        Raises as `pull` does. What is missing after a rebuild from the log is passed over.
        """
        self._appends.check_open()
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
        for index, (name, _) in enumerate(topics):
            if (retention := (retentions or {}).get(name)) is not None:
                self._check_retention(f"topics[{index}].retention.", retention)
        self._appends.wait_durable(
            self._appends.decide(lambda: self._topics.create(topics, retentions or {}, types or {}))
        )
        return [self._topics.get(name) for name, _ in topics]

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

        def change(kept: Retention) -> Retention:
            changed = Retention(
                kept.time_ms if time_ms is None else time_ms,
                kept.bytes if size_bytes is None else size_bytes,
                kept.messages if messages is None else messages,
                kept.latest if latest is None else latest,
            )
            self._check_retention("retention_", changed)
            return changed

        self._appends.wait_durable(self._appends.decide(lambda: self._topics.keep(name, change)))
        return self._topics.get(name)

    def take(self, name: str, message_type: MessageType) -> TopicConfig:
        """The topic is for messages of that type from now on, durably. Those that it has stay.

        Raises UnknownTopicError.
        """
        self._appends.wait_durable(
            self._appends.decide(lambda: self._topics.take(name, message_type))
        )
        return self._topics.get(name)

    def _check_retention(self, prefix: str, retention: Retention) -> None:
        for field, value in retention._asdict().items():
            if value < 0:
                raise InvalidArgumentError(f"{prefix}{field}", f"{value} is below 0")
        hours = self.config.reserved_hours
        if retention.time_ms > hours * 3_600_000:
            raise InvalidArgumentError(
                f"{prefix}time_ms",
                f"{retention.time_ms} ms is longer than the log keeps any message: "
                f"store.reserved_hours is {hours:g}, {hours * 3_600_000:.0f} ms",
            )

    def delete_topic(self, name: str) -> None:
        """The topic, or light queue, and every row of it are gone, durably; so are offsets on it.

        Its records stay in the log, dead. A message that is appended behind the deletion makes a
        new one of that name. Raises UnknownTopicError, and what an append raises.
        """
        self.delete_topics([name])

    def delete_topics(self, names: Sequence[str]) -> None:
        """The same of several, of a thousand at once: light queues of sessions, for example. What
        is raised for one of a thousand leaves all of these and those behind them as they were.
        """
        different = list(dict.fromkeys(names))
        for first in range(0, len(different), _DELETED_TOGETHER):
            some = different[first : first + _DELETED_TOGETHER]
            self.wait_visible()  # a light queue is there once its first message is dispatched
            self._appends.wait_durable(self._appends.decide(partial(self._topics.end, some)))
            for name in some:
                self._latest.superseded.forget(name)

    def delete_idle(self, ends: Mapping[str, int]) -> int:
        """Those of these light queues are gone whose next offset is still the one given; returns
        how many. Raises what an append raises."""
        deleted = 0

        def decide(some: Sequence[str]) -> Sequence[Entry]:
            nonlocal deleted
            next_offsets = self.log.next_light_offsets(some)
            still = [
                name
                for name, offset in zip(some, next_offsets, strict=True)
                if offset == ends[name] and not self._topics.view.has_ended(name)
            ]
            entries = self._topics.end(still)
            deleted += len(entries)
            return entries

        names = list(ends)
        for first in range(0, len(names), _DELETED_TOGETHER // 4):
            some = names[first : first + _DELETED_TOGETHER // 4]
            self.wait_visible()
            self._appends.wait_durable(self._appends.decide(partial(decide, some)))
            for name in some:
                self._latest.superseded.forget(name)
        return deleted

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
        check_group(group)
        wanted, given = list(offsets), list(given_at)
        end: int | None = None
        while end is None:  # again when a queue ended between the look and the record
            self._appends.check_open()
            ends = {topic: self._topics.ends.get(topic) for topic, _, _ in wanted}
            for place, at in zip(wanted, given, strict=False):
                self._reader.check_given(*place, at)
            for topic, queue_id, offset in wanted:
                low, high = self._reader.bounds(topic, queue_id)
                if not 0 <= offset <= high:
                    raise OffsetOutOfRangeError(topic, queue_id, offset, low, high)
            with suppress(_EndedMeanwhileError):
                end = self._appends.decide(
                    partial(self._commit, group, wanted, ends, allow_back=allow_back)
                )
        self._appends.wait_acknowledged(end)

    def _commit(
        self,
        group: str,
        wanted: Sequence[tuple[str, int, int]],
        ends: Mapping[str, End],
        *,
        allow_back: bool,
    ) -> Sequence[Entry]:
        """Under the append lock."""
        if self._topics.have_ended(ends):
            raise _EndedMeanwhileError
        found = self._topics.view.tables.group(group)
        if found is not None and unpack_group(found) is not None:
            raise GroupKindError(group, is_shared=True)
        if not allow_back:
            self._check_not_behind(group, wanted)
        entries: list[Entry] = [Committed(group, *each) for each in wanted]
        if wanted and found is None:
            entries.insert(0, GroupMade(group, b""))
        return entries

    def _check_not_behind(self, group: str, wanted: Sequence[tuple[str, int, int]]) -> None:
        """Under the append lock."""
        committed = self._topics.view.tables.committed_offsets(group, [one[:2] for one in wanted])
        for (topic, queue_id, offset), before in zip(wanted, committed, strict=True):
            if before is not None and offset < before:
                raise OffsetBehindError(group, topic, queue_id, offset, before)

    def committed_offsets(self, group: str, queues: Sequence[tuple[str, int]]) -> list[int | None]:
        """None: the group has committed nothing there. Raises GroupKindError of a shared group."""
        check_group(group)
        self._appends.check_open()
        if self.tables.shared_group(group) is not None:
            raise GroupKindError(group, is_shared=True)
        return self.tables.committed_offsets(group, queues)

    def list_committed(
        self, group: str, after: tuple[str, int] | None, limit: int
    ) -> list[tuple[str, int, int]]:
        check_group(group)
        self._appends.check_open()
        return self.tables.list_committed(group, after, limit)

    def delete_group(self, group: str) -> None:
        check_group(group)
        self._appends.check_open()

        def end() -> Sequence[Entry]:
            return [GroupEnded(group)] if self._topics.view.tables.group(group) is not None else []

        self._appends.wait_durable(self._appends.decide(end))

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

    def compact(
        self,
        progress: Callable[[float], None],
        *,
        family: str | None = None,
        topic: str | None = None,
    ) -> None:
        """Rows of what is expired or deleted give their space back: see ConsumeQueueStore. Slow.

        Raises StoreClosedError, and what `progress` raises.
        """

        def told(share: float) -> None:
            # Between pieces: closing does not wait for all of it.
            self._appends.check_open()
            progress(share)

        self._appends.check_open()
        self.queues.compact(told, family=family, topic=topic)

    def rebuild(
        self, topic: str, queue_id: int | None, progress: Callable[[int, int, int], None]
    ) -> Rebuilt:
        """Units of the topic, or of one of its queues, are written again from the log; none is
        removed. Slow: it reads all of the log.

        `progress`: see QueueRepair.rebuild. Raises UnknownTopicError, UnknownQueueError, and what
        `progress` raises.
        """
        self.check_queue(topic, queue_id or 0)

        def told(start: int, at: int, end: int) -> None:
            self._appends.check_open()
            progress(start, at, end)

        return self._repair.rebuild(topic, queue_id, told)

    def keep_latest(
        self, topic: str, queue_id: int, progress: Callable[[int, int], None]
    ) -> LatestKept:
        """Of messages with the same key in the queue, all but the latest are hidden. Slow.

        As far as they are durable now. One call at a time; see LatestMessages.keep.
        """
        self.check_queue(topic, queue_id)
        self.flush()
        durable_end = min(self.flushed_offset, self.queues.dispatched_offset)

        def told(done: int, total: int) -> None:
            self._appends.check_open()
            progress(done, total)

        return self._latest.keep(topic, queue_id, durable_end, told)

    def hidden_messages(self, topic: str, queue_id: int) -> int:
        """How many were hidden when `keep_latest` last went through the queue."""
        hidden = self._latest.superseded.get(topic, queue_id)
        return 0 if hidden is None else hidden.count

    def expire(self) -> int:
        """Segments whose messages have expired go now, whatever the hour; returns how many went.

        At most `retention.MANY`: 0 says that no more can go. Raises as RetentionService.run_once.
        """
        self._appends.check_open()
        return self._services.retention.run_once(now=True)

    def maintain(self) -> None:
        """What a job does every second, at once: see Upkeep."""
        self._upkeep.maintain()

    def hold_log(self) -> LogHold:
        """A context: retention drops nothing until it ends, or the hold is moved.

        Blocks while a run of retention works. What expires meanwhile goes with a later run.
        """
        return self._services.retention.hold()

    @contextmanager
    def at_one_point(self) -> Iterator[None]:
        """Begins when all that was appended before is durable and dispatched. Until it ends, no
        checkpoint is written; puts and reads go on. For copies of the database.

        Raises what `flush` raises, StoreBusyError.
        """
        self._appends.check_open()
        self._appends.drain(self.log.appended_offset)
        with self._upkeep.checkpoints.lock:
            self._upkeep.checkpoints.flush()
            yield

    def when_failed(self, callback: Callable[[], None]) -> None:
        """Call back, on a store thread, once or twice, when no more writes are taken for good.

        Not when the store is closed.
        """

        def ended(error: BaseException | None) -> None:
            if isinstance(error, StoreFailedError):
                callback()

        for watermark in (self._appends.flushed, self._appends.dispatched):
            watermark.call_when(_NEVER, ended)

    def why_not_writable(self) -> str | None:
        """Why puts are refused, for a reason that does not pass by itself in a moment; None: they
        are taken. A failed fsync, a file that is gone, a full disk, one that cannot be written to.

        Any thread. Waits for nothing; the disk is looked at every `clean_interval_s`.
        """
        return self._appends.why_not_writable()

    @property
    def admission(self) -> Admission:
        """What of a record read from the log belongs to topics that exist."""
        return self._topics.admission

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name; units in the names."""
        retention = self._services.retention
        return {
            **self._appends.statistics(),
            "store.dropped_segments": retention.dropped_segments,
            "store.retention_read_errors": retention.read_errors,
            **self._clock_statistics(),
            "store.queue_repairs": self._repair.done,
            "store.filter_errors": self._reader.filter_errors,
            **self.groups.statistics(),
            **self.timers.statistics(),
            **self.halves.statistics(),
            **self.lite.statistics(),
            **{f"store.{name}": value for name, value in self.snapshots.statistics().items()},
            **{f"kvcq.{name}": value for name, value in self.queues.statistics().items()},
        }

    def _clock_statistics(self) -> dict[str, float]:
        return {
            "store.clock_jumped_s": self._times.jumped_ms() / 1000,
            "store.clock_behind_s": self._times.behind_ms(self.log.last_store_time_ms) / 1000,
            "store.time_falls": len(self._times.falls),
        }

    def lease_time_ms(self) -> int:
        """The time that leases and delays of shared groups go by, ms since 1970; it never falls."""
        return self._times.steady_ms()

    def what_about_the_clock(self) -> str | None:
        """What is wrong with the machine's clock, a sentence; None: nothing that is known."""
        return self._times.what_is_wrong(self.log.last_store_time_ms)

    @property
    def flush_seconds(self) -> Counted:
        """How long flushes of the log took, since it was opened."""
        return self._appends.flush_seconds

    def first_store_time_ms(self) -> int | None:
        """When the oldest message of the log was stored, ms since 1970; None: there is none."""
        while True:
            self._appends.check_open()
            with suppress(StoreClosedError):  # its segment was dropped meanwhile
                found = self.log.first_time_from(self.log.start_offset)
                return None if found is None else found[1]

    def backlog_since_ms(self, topic: str, queue_id: int, offset: int) -> int | None:
        """When the message at that offset was stored, ms since 1970; None: there is none."""
        self._appends.check_open()
        unit = self._reader.first_unit(topic, queue_id, offset)
        return None if unit is None else unit.store_time_ms

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
