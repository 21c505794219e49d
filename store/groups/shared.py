"""The calls of shared groups."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from store.base import check_time_within, check_within
from store.errors import (
    AppendWouldWaitError,
    GroupExistsError,
    GroupKindError,
    InvalidArgumentError,
    StoreError,
    UnknownGroupError,
)
from store.format import check_group, check_queue_name
from store.groups.damage import Damages
from store.groups.deliveries import Received
from store.groups.handles import unpack_handles
from store.groups.keeping import Keeping
from store.groups.leases import Answered, Part, acknowledge_lease, bury_lease, change_leases
from store.groups.letter_box import LetterBox
from store.groups.letters import Letters
from store.groups.limits import (
    MOST_ATTEMPT_ID,
    MOST_DELAY_MS,
    MOST_DESCRIBED,
    MOST_INVISIBLE_MS,
    MOST_RECEIVED,
    check_fixed,
    checked,
)
from store.groups.order import hash_of
from store.groups.positions import ResetDone, described, list_queues, offset_of
from store.groups.receiving import Receiving, Wish
from store.groups.rounds import Rounds
from store.groups.turns import Turns
from store.metadata import SharedGroup
from store.reads import Filter, TagFilter
from store.state import NOBODY, GroupMade, Held, Reset, pack_group, unpack_group

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups.dead_letters import DeadLetter
    from store.groups.deliveries import Outcome
    from store.groups.letters import Redriven
    from store.groups.positions import SharedQueue, Where
    from store.groups.turn import Turn
    from store.log import StoreTimes
    from store.puts import AppendPath
    from store.reads import ReadPath
    from store.state import Entry, Tables, Window
    from store.topics import Topics

T = TypeVar("T")

#: Queues that a reset moves in one turn.
_MOVED_TOGETHER = 1000


class SharedGroups:
    """Groups whose members share the messages of topics and light queues: see store/docs/groups.md.

    Every message is delivered at least once, until it is acknowledged, or becomes a dead letter
    after its group's maximum number of deliveries. An acknowledged message is not delivered again.
    Thread: any. Locks: that of Turns. Memory: that of the calls in progress.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        tables: Tables,
        times: StoreTimes,
        reads: ReadPath,
    ) -> None:
        """`tables`: the state at the dispatch point. `reads`: of the same store."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._queues = queues
        self._tables = tables
        self._now_ms = times.steady_ms
        self._reads = reads
        self._damages = Damages()
        self._turns = Turns(appends, topics, times.steady_ms)
        self._rounds = Rounds()  # guarded by the turn's lock
        self._box = LetterBox(appends, tables, times, reads)
        self._letters = Letters(appends, self._box, self._turns)
        #: Keeps dead letters when segments are dropped; its `look` is a job of the store.
        self.keeping = Keeping(appends, tables, self._box, self._turns)

    # --- groups ----------------------------------------------------------------------------

    def create(self, group: str, settings: SharedGroup | None = None) -> SharedGroup:
        """Create a shared group durably, and return its settings. Repeatable.

        Raises InvalidArgumentError, and GroupExistsError if it exists with other settings or of
        another kind.
        """
        check_group(group)
        wanted = checked(settings or SharedGroup())

        def make() -> Sequence[Entry]:
            found = self._topics.view.tables.group(group)
            if found is None:
                return [GroupMade(group, pack_group(wanted))]
            if unpack_group(found) != wanted:
                raise GroupExistsError(group)
            return []

        self._appends.wait_durable(self._appends.decide(make))
        return wanted

    def update(self, group: str, settings: SharedGroup) -> SharedGroup:
        """Replace the settings of the shared group, durably. Messages in flight keep their leases.

        `in_order` and `from_latest` cannot be changed. A paused group delivers nothing. Raises
        InvalidArgumentError, UnknownGroupError, GroupKindError.
        """
        check_group(group)
        wanted = checked(settings)

        def change() -> Sequence[Entry]:
            tables = self._topics.view.tables
            if tables.group(group) is None:
                raise UnknownGroupError(group)
            before = tables.shared_group(group)
            if before is None:
                raise GroupKindError(group, is_shared=False)
            check_fixed(before, wanted)
            return [GroupMade(group, pack_group(wanted))]

        self._appends.wait_durable(self._appends.decide(change))
        return wanted

    def describe(self, group: str) -> SharedGroup | None:
        """Settings of the group; None for a reader group. Raises UnknownGroupError."""
        check_group(group)
        self._appends.check_open()
        if self._tables.group(group) is None:
            raise UnknownGroupError(group)
        return self._tables.shared_group(group)

    def describe_queues(
        self, group: str, limit: int = 1000, after: tuple[str, int] | None = None
    ) -> list[SharedQueue]:
        """The group's position in up to `limit` queues behind `after` (topic, queue id): all queues
        of the topics that it has received from. Ordered by length of the topic's name, its bytes,
        and queue id.

        A page is shorter than `limit` only if it is the last one, or a topic was deleted meanwhile.
        Raises InvalidArgumentError, UnknownGroupError, GroupKindError, DamagedQueueError.
        """
        check_within("limit", limit, 1, MOST_DESCRIBED)
        if self.describe(group) is None:
            raise GroupKindError(group, is_shared=False)
        windows = [*islice(list_queues(self._tables, self._queues, group, after, limit), limit)]
        return described(self._reads, self._queues, windows, self._now_ms())

    def every_window(self, group: str) -> Iterator[tuple[str, int, Window]]:
        """The group's windows on all queues of the topics that it has received from; on a queue
        that it has not received from, where it would begin. Raises DamagedQueueError."""
        after: tuple[str, int] | None = None
        most = MOST_DESCRIBED
        while page := [*islice(list_queues(self._tables, self._queues, group, after, most), most)]:
            yield from page
            after = page[-1][:2]

    def held(self, group: str, queues: Iterable[tuple[str, int]]) -> dict[int, int]:
        """Number of messages of these queues in flight, by the nonce of their lease."""
        by_topic = defaultdict[str, list[int]](list)
        for topic, queue_id in queues:
            by_topic[topic].append(queue_id)
        now_ms = self._now_ms()
        return {
            lease.nonce: lease.message_count
            for topic, queue_ids in by_topic.items()
            for window in self._tables.windows(group, topic, queue_ids)
            for lease in window.leases
            if lease.nonce != NOBODY and not lease.is_over(now_ms)
        }

    def reset(
        self, group: str, topic: str, queue_ids: Sequence[int] | None, where: Where
    ) -> ResetDone:
        """Set the group's position in these queues of the topic or light queue, durably; None for
        all queues. Messages in flight there are ended, and their handles become invalid.

        Queues are moved a thousand at a time, so after an error some may already be moved. Raises
        InvalidArgumentError, UnknownGroupError, GroupKindError, UnknownTopicError,
        UnknownQueueError, OffsetOutOfRangeError, DamagedQueueError.
        """
        check_group(group)
        check_queue_name(topic, "topic")
        self._appends.check_open()
        if queue_ids is None:
            queue_ids = range(self._topics.queue_count(topic))
        elif not queue_ids:
            raise InvalidArgumentError("queue_ids", "is empty")
        ids = list(dict.fromkeys(queue_ids))
        for queue_id in ids:
            self._topics.require_queue(topic, queue_id)

        def move(some: Sequence[int], turn: Turn) -> int:
            turn.place(topic)
            settings = turn.shared(group)
            # Resolve all first: if one raises, no queue is moved.
            moved = [
                Reset(group, topic, each, offset_of(self._reads, topic, each, where))
                for each in some
            ]
            if settings.from_latest:
                turn.begun(group, settings.begins_with(topic))
            ended = sum(window.in_flight for window in turn.windows(group, topic, some))
            for entry in moved:
                turn.add(entry)
            turn.free(group, topic)
            return ended

        total, end = 0, 0
        for first in range(0, len(ids), _MOVED_TOGETHER):
            ended, end = self._turns.run(partial(move, ids[first : first + _MOVED_TOGETHER]))
            total += ended
        self._appends.wait_durable(end)
        found = zip(ids, self._tables.windows(group, topic, ids), strict=True)
        windows = [(topic, queue_id, window) for queue_id, window in found]
        return ResetDone(described(self._reads, self._queues, windows, self._now_ms()), total)

    def on_change(self, listener: Callable[[str, str], None]) -> Callable[[], None]:
        """Call `listener(group, topic or light queue)` when the result of a receive may differ
        without a new message. Returns a function that removes the listener.

        Topic "" means all topics: the group was changed or deleted. Group "" means all groups: the
        topic was deleted. Runs after the change, on the thread that made it or on the dispatching
        thread, and must be short.
        """
        return self._turns.add_listener(listener)

    # --- messages --------------------------------------------------------------------------

    def receive(
        self,
        group: str,
        topic: str,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        invisible_ms: int | None = None,
        tag_filter: str | Filter | None = "",
        attempt_id: str = "",
        skip_damaged: bool = False,
        acknowledge: Sequence[str] = (),
        wait: bool = True,
        at_once: bool = False,
    ) -> Received:
        """Receive messages of the topic or light queue. No other receive gets them for
        `invisible_ms`.

        Redeliveries come first. Respects both limits, but returns at least one message if one is
        available. Does not wait for messages: see `on_change`. Messages that the filter excludes
        are done for the whole group. A power loss may end leases early, so messages may be
        delivered again. A group in order has at most one message of each ordering key in flight. A
        repeated call with the same `attempt_id` (at most 64 characters) returns what is still in
        flight of the first call, with the same handles; with `max_messages` 0 it returns nothing
        else. A missing group is created if `auto_create_groups` is on.

        Raises InvalidArgumentError, UnknownGroupError, GroupKindError, UnknownTopicError, and what
        an append raises. Raises CorruptMessageError or DamagedQueueError if an unreadable message
        blocks a queue and no other queue has messages. With `skip_damaged`, the group finishes the
        unreadable message if the error has a next offset; it is logged and counted.

        `acknowledge`: handles of the group, acknowledged first, in the same turn and record. With
        `wait` the acknowledgements are durable on return, as with `acknowledge`. If the call
        raises, none is acknowledged. So an error of receiving is not raised if there are handles:
        nothing is received, and the next call without handles raises it.

        `at_once` is for an event loop: see `acknowledge`.
        """
        check_group(group)
        check_queue_name(topic, "topic")
        check_within("max_messages", max_messages, 0 if attempt_id else 1, MOST_RECEIVED)
        check_within("max_bytes", max_bytes, 1, 1 << 40)
        if invisible_ms is not None:
            check_time_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
        check_within("attempt_id", len(attempt_id), 0, MOST_ATTEMPT_ID)
        named = unpack_handles(group, acknowledge, "acknowledge") if acknowledge else ()
        if isinstance(tag_filter, str):
            tag_filter = TagFilter.parse(tag_filter)
        wish = Wish(
            group,
            topic,
            max_messages,
            max_bytes,
            invisible_ms,
            tag_filter,
            self._appends.config.auto_create_groups,
            skip_damaged,
            hash_of(attempt_id),
        )

        def plan(turn: Turn) -> Received:
            outcomes: Sequence[Outcome] = ()
            if named:
                outcomes = change_leases(group, named, len(acknowledge), acknowledge_lease, turn)
            taken = wish._replace(first_queue=self._rounds.take(group, topic))
            receiving = self.receiving(turn, taken, self._now_ms())
            try:
                deliveries = receiving.run()
            except AppendWouldWaitError:
                self._rounds.give_back(group, topic)  # it is made again where it may wait
                raise
            except StoreError:
                if not named:
                    raise
                deliveries = []  # the handles are acknowledged nevertheless
            return Received(
                deliveries, receiving.next_look_ms, nonces=receiving.nonces, outcomes=outcomes
            )

        received, end = self._run(plan, at_once=at_once)
        if not named:
            return received
        if wait:
            self._appends.wait_acknowledged(end)
        return received._replace(end_offset=end)

    def receiving(self, turn: Turn, wish: Wish, now_ms: int) -> Receiving:
        """One checked receive, for callers that decide in `turns` themselves."""
        return Receiving(turn, wish, now_ms, self._queues, self._reads, self._damages)

    @property
    def turns(self) -> Turns:
        """The only writer of what groups have in flight."""
        return self._turns

    def _run(self, plan: Callable[[Turn], T], *, at_once: bool) -> tuple[T, int]:
        return self._turns.run_at_once(plan) if at_once else self._turns.run(plan)

    def acknowledge(
        self, group: str, handles: Sequence[str], *, wait: bool = True, at_once: bool = False
    ) -> Answered:
        """Acknowledge messages: they are done and are not delivered again.

        Returns an outcome for each handle. With `wait` they are as durable on return as a put.
        Raises InvalidArgumentError naming a handle that this group was not given, GroupKindError,
        UnknownGroupError, and what an append raises; nothing is acknowledged then. With `at_once`
        raises AppendWouldWaitError, and does nothing, if it would wait for another call, a lock or
        the disk, or take long.
        """
        return self._for_each(group, handles, acknowledge_lease, wait=wait, at_once=at_once)

    def bury(self, group: str, handle: str, *, wait: bool = True) -> Answered:
        """Make the message a dead letter now, however often it was delivered. Raises like
        `acknowledge`; CorruptRecordError, DamagedQueueError if the message cannot be read."""
        return self._for_each(group, [handle], partial(bury_lease, self._reads), wait=wait)

    def change_invisible(
        self,
        group: str,
        handles: Sequence[str],
        invisible_ms: int,
        *,
        wait: bool = True,
        at_once: bool = False,
    ) -> Answered:
        """Keep the messages for `invisible_ms` from now on. Their handles stay valid.

        Raises like `acknowledge`.
        """
        check_time_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
        until_ms = self._now_ms() + invisible_ms

        def extend(part: Part) -> None:
            part.add(part.lease._replace(until_ms=until_ms, lease_ms=invisible_ms), Held.EXTENDED)
            if until_ms < part.lease.until_ms:
                part.turn.free(part.group, part.topic)

        return self._for_each(group, handles, extend, wait=wait, at_once=at_once)

    def give_back(
        self,
        group: str,
        handles: Sequence[str],
        delay_ms: int | None = None,
        *,
        not_begun: bool = False,
        wait: bool = True,
        at_once: bool = False,
    ) -> Answered:
        """Make the messages available again after `delay_ms`; None for the group's backoff, by each
        message's number of deliveries. The handles become invalid. With `not_begun` this delivery
        does not count.

        Raises like `acknowledge`.
        """
        if delay_ms is not None:
            check_time_within("delay_ms", delay_ms, 0, MOST_DELAY_MS)
        now_ms = self._now_ms()

        def free(part: Part) -> None:
            lease, wait_ms = part.lease, delay_ms
            if wait_ms is None:
                wait_ms = part.settings.backoff_of(lease.deliveries)
            until_ms = now_ms + wait_ms
            freed = lease._replace(
                deliveries=lease.deliveries - not_begun,
                nonce=NOBODY,
                until_ms=until_ms,
                lease_ms=wait_ms,
                attempt=0,
            )
            part.add(freed, Held.GIVEN_BACK)
            part.turn.free(part.group, part.topic)

        return self._for_each(group, handles, free, wait=wait, at_once=at_once)

    def _for_each(
        self,
        group: str,
        handles: Sequence[str],
        change: Callable[[Part], None],
        *,
        wait: bool,
        at_once: bool = False,
    ) -> Answered:
        """Apply `change` to the in-flight messages of these handles, lease by lease."""
        check_group(group)
        named = unpack_handles(group, handles, "handles")
        plan = partial(change_leases, group, named, len(handles), change)
        outcomes, end = self._run(plan, at_once=at_once)
        if wait:
            self._appends.wait_acknowledged(end)
        return Answered(outcomes, end)

    # --- dead letters ----------------------------------------------------------------------

    def dead_letters(self, group: str) -> int:
        """Number of kept dead letters that are neither redriven nor deleted.

        Works for any group that has a dead-letter topic: also a reader group, or a deleted group.
        Raises InvalidArgumentError, UnknownGroupError.
        """
        return self._box.count(group)

    def list_dead_letters(self, group: str, after: int = -1, limit: int = 100) -> list[DeadLetter]:
        """Up to `limit` (1 to 1000) dead letters with offsets above `after`, the oldest first.

        Raises InvalidArgumentError, UnknownGroupError, GroupKindError; CorruptRecordError,
        DamagedQueueError.
        """
        return self._box.page(group, after, limit)

    def redrive(
        self,
        group: str,
        offsets: Sequence[int] = (),
        max_messages: int = 1000,
        *,
        after: int = -1,
        may: Callable[[str], bool] = lambda _: True,
        wait: bool = True,
    ) -> Redriven:
        """Put dead letters into their original topic or light queue, each exactly once, as new
        messages with their old id, ordering key and queue.

        Redrives the letters at `offsets`, or, if empty, all above `after`, oldest first; at most
        `max_messages` (1 to 1000) are redriven or left. With `wait` they are as durable on return
        as a put. A letter from a light queue only goes back to that light queue, not to its topic.
        Offsets that are not live dead letters are ignored. `may` says whether a message may go to a
        topic or light queue; the first refusal ends the call. It is called on any thread, within a
        turn, so it must be short and must not raise. Raises InvalidArgumentError,
        UnknownGroupError, CorruptRecordError, DamagedQueueError, and what an append raises; some
        letters may then be redriven already.
        """
        return self._letters.redrive(group, offsets, max_messages, after, may, wait=wait)

    def delete_dead_letters(
        self, group: str, offsets: Sequence[int], *, wait: bool = True
    ) -> tuple[int, int]:
        """Delete these dead letters. Returns how many existed, and `end_offset`: the deletion is
        durable once the log is durable up to there. With `wait` it is durable on return.

        Raises InvalidArgumentError, UnknownGroupError, and what an append raises.
        """
        return self._letters.delete(group, offsets, wait=wait)

    def statistics(self) -> dict[str, float]:
        """Metrics for operators since the store was opened, by name."""
        return {
            **self._damages.statistics(),
            "store.shared_expired": self._turns.expired,
            "store.shared_gone": self._turns.gone,
            "store.dead_letters_moved": self.keeping.moved,
            "store.dead_letters_expired": self.keeping.expired,
            "store.dead_letters_given_up": self.keeping.lost,
        }
