"""The calls of shared groups."""

from __future__ import annotations

import secrets
from collections import defaultdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, TypeVar

from store.errors import (
    AppendWouldWaitError,
    GroupExistsError,
    GroupKindError,
    InvalidArgumentError,
    StoreError,
    UnknownGroupError,
)
from store.format import check_group, check_queue_name
from store.groups.burying import bury
from store.groups.damage import Damages
from store.groups.deliveries import Received
from store.groups.handles import unpack_handles
from store.groups.keeping import Keeping
from store.groups.leases import Answered, Part, acknowledge_lease, change_leases
from store.groups.letter_box import LetterBox
from store.groups.letters import Letters
from store.groups.limits import (
    MOST_ATTEMPT_ID,
    MOST_DELAY_MS,
    MOST_DESCRIBED,
    MOST_INVISIBLE_MS,
    MOST_RECEIVED,
    check_fixed,
    check_within,
    checked,
)
from store.groups.order import hash_of
from store.groups.positions import ResetDone, described, offset_of
from store.groups.receiving import Receiving, Wish
from store.groups.turns import Turns
from store.metadata import SharedGroup
from store.reads import Filter, TagFilter
from store.state import (
    NOBODY,
    GroupMade,
    Held,
    Reset,
    pack_group,
    unpack_group,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups.dead_letters import DeadLetter
    from store.groups.deliveries import Outcome
    from store.groups.letters import Redriven
    from store.groups.positions import Reads, SharedQueue, Where
    from store.groups.turn import Turn
    from store.log import StoreTimes
    from store.puts import AppendPath
    from store.state import Entry, Tables
    from store.topics import Topics

T = TypeVar("T")

#: Queues that a reset moves in one turn.
_MOVED_TOGETHER = 1000


class SharedGroups:
    """Groups whose members share the messages of topics and light queues: see store/docs/groups.md.

    Every message is delivered at least once: until it is acknowledged, or was delivered as often as
    its group allows and is a dead letter. What is acknowledged is not delivered again.
    Thread: any. Locks: that of Turns. Memory: that of the calls under way.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        tables: Tables,
        times: StoreTimes,
        reads: Reads,
        new_nonce: Callable[[], int] = lambda: secrets.randbits(63) or 1,
    ) -> None:
        """`tables`: at the dispatch point. `reads`: of the same store."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._queues = queues
        self._tables = tables
        self._now_ms = times.steady_ms
        self._reads = reads
        self._new_nonce = new_nonce
        self._first_queue = count()
        self._damages = Damages()
        self._turns = Turns(appends, topics, times.steady_ms)
        self._box = LetterBox(appends, tables, times, reads)
        self._letters = Letters(appends, self._box, self._turns)
        #: Of dead letters; a job of the store's.
        self.keeping = Keeping(appends, tables, self._box, self._turns)

    # --- groups ----------------------------------------------------------------------------

    def create(self, group: str, settings: SharedGroup | None = None) -> SharedGroup:
        """The group exists and is shared, durably; returns its settings.

        Raises InvalidArgumentError, GroupExistsError when it exists and is not so.
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
        """The shared group has these settings, durably. What is in flight stays so, until its time.

        `in_order` and `from_latest` cannot be changed. A group that is paused hands nothing over.
        Raises InvalidArgumentError, UnknownGroupError, GroupKindError.
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
        """Its settings; None: it reads by offsets. Raises UnknownGroupError."""
        check_group(group)
        self._appends.check_open()
        if self._tables.group(group) is None:
            raise UnknownGroupError(group)
        return self._tables.shared_group(group)

    def describe_queues(
        self, group: str, limit: int = 1000, after: tuple[str, int] | None = None
    ) -> list[SharedQueue]:
        """Where it is in the queues that it has received from, in the order of their names' length
        and bytes and their ids; those above `after`, a topic and queue id.

        A page may be shorter than `limit` only when it is the last, or a topic on it ended
        meanwhile. Raises InvalidArgumentError, UnknownGroupError, GroupKindError,
        DamagedQueueError.
        """
        check_within("limit", limit, 1, MOST_DESCRIBED)
        if self.describe(group) is None:
            raise GroupKindError(group, is_shared=False)
        windows = self._tables.list_windows(group, after, limit)
        return described(self._reads, self._queues, windows, self._now_ms())

    def held(self, group: str, queues: Iterable[tuple[str, int]]) -> dict[int, int]:
        """Messages that receivers have of these queues now, by the nonces of their leases."""
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
        """The group goes on there in these queues of the topic or light queue, durably; None: in
        all of them. What it has in flight there ends: its handles are of no use any more.

        More than a thousand queues are moved one thousand after the other: an error leaves the
        first of them moved. Raises InvalidArgumentError, UnknownGroupError, GroupKindError,
        UnknownTopicError, UnknownQueueError, OffsetOutOfRangeError, DamagedQueueError.
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
            # All of them first: where one is refused, none is moved.
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
        """Call `listener` with a group and a topic, or light queue, when the group may have more to
        receive there without a new message, or another answer; returns how to end that.

        "" for the topic: all of them, for the group was changed or deleted. "" for the group: all
        of them, for the topic was deleted. Called after the change, on the thread that made it or
        the dispatching one: be short.
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
        """Messages of the topic, or light queue, that are the caller's for `invisible_ms`.

        Those whose time with others is over come first. Up to both limits, but at least one if
        there is one. Waits for no message: see `on_change`. A message that the filter does not want
        is done for the whole group. When the power fails soon after, they may be delivered again at
        once. In a group in order, of messages of a queue with the same ordering key one at a time
        is handed over, in their order. A call that is made again with the same `attempt_id`, of 64
        characters at most, is given what the first one was, with the same handles, as far as that
        is in flight; with `max_messages` 0 it is given nothing else. A group that does not exist is
        made, where `auto_create_groups` says so.
        Raises InvalidArgumentError, UnknownGroupError, GroupKindError, UnknownTopicError;
        CorruptMessageError, DamagedQueueError when no other queue has messages and one has a
        message that cannot be read, and holds up what is behind it; and what an append raises.
        With `skip_damaged` what cannot be read is done for the whole group, as soon as the error
        says where to read on; the log and the statistics tell of it.

        `acknowledge`: handles of the group, acknowledged first, in the same turn and record; with
        `wait` they are durable on return, as with the call of that name. If it raises, none of
        them is acknowledged. So an error of receiving is not raised when there are handles: nothing
        is received, and the next call without handles raises it.
        `at_once` is for an event loop: see `acknowledge`.
        """
        check_group(group)
        check_queue_name(topic, "topic")
        check_within("max_messages", max_messages, 0 if attempt_id else 1, MOST_RECEIVED)
        check_within("max_bytes", max_bytes, 1, 1 << 40)
        if invisible_ms is not None:
            check_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
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
            next(self._first_queue),
        )

        def plan(turn: Turn) -> Received:
            outcomes: Sequence[Outcome] = ()
            if named:
                outcomes = change_leases(group, named, len(acknowledge), acknowledge_lease, turn)
            receiving = self.receiving(turn, wish, self._now_ms())
            try:
                deliveries = receiving.run()
            except AppendWouldWaitError:
                raise
            except StoreError:
                if not named:
                    raise
                deliveries = []  # what was acknowledged stays so
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
        """For others that decide in `turns`: one receive, which is checked."""
        return Receiving(
            turn, wish, now_ms, self._queues, self._reads, self._damages, self._new_nonce
        )

    @property
    def turns(self) -> Turns:
        """The one writer of what groups have in flight."""
        return self._turns

    def _run(self, plan: Callable[[Turn], T], *, at_once: bool) -> tuple[T, int]:
        return self._turns.run_at_once(plan) if at_once else self._turns.run(plan)

    def acknowledge(
        self, group: str, handles: Sequence[str], *, wait: bool = True, at_once: bool = False
    ) -> Answered:
        """The messages are done: they are not delivered again.

        An outcome for each handle. With `wait` they are as durable on return as a put.
        Raises InvalidArgumentError naming a handle that this group was not given, GroupKindError,
        UnknownGroupError, and what an append raises: nothing was acknowledged then.
        With `at_once` it raises AppendWouldWaitError, and nothing is done, when it would wait for
        another call, a lock or a disk, or take long.
        """

        return self._for_each(group, handles, acknowledge_lease, wait=wait, at_once=at_once)

    def bury(self, group: str, handle: str, *, wait: bool = True) -> Answered:
        """The message is a dead letter, however often it was delivered: its receiver gave it up.
        Raises as `acknowledge`; CorruptRecordError, DamagedQueueError when it cannot be read."""

        def end(part: Part) -> None:
            turn, _, group, topic, queue_id, lease, was_full = part
            bury(turn, self._reads, group, topic, queue_id, lease)
            if was_full:
                turn.free(group, topic)

        return self._for_each(group, [handle], end, wait=wait)

    def change_invisible(
        self,
        group: str,
        handles: Sequence[str],
        invisible_ms: int,
        *,
        wait: bool = True,
        at_once: bool = False,
    ) -> Answered:
        """The messages stay the caller's for so long from now on; the handles stay good.

        Raises as `acknowledge`.
        """
        check_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
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
        """The messages may be delivered again after `delay_ms`; None: as the group's backoff says,
        by how often each was delivered. The handles are of no use any more. With `not_begun` this
        delivery does not count: its receiver did not begin to work on them.

        Raises as `acknowledge`.
        """
        if delay_ms is not None:
            check_within("delay_ms", delay_ms, 0, MOST_DELAY_MS)
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
        """`change` for what is in flight of these, lease by lease."""
        check_group(group)
        named = unpack_handles(group, handles, "handles")
        plan = partial(change_leases, group, named, len(handles), change)
        outcomes, end = self._run(plan, at_once=at_once)
        if wait:
            self._appends.wait_acknowledged(end)
        return Answered(outcomes, end)

    # --- dead letters ----------------------------------------------------------------------

    def dead_letters(self, group: str) -> int:
        """How many there are: neither redriven nor deleted, and kept.

        Also of a group by offsets, and of one that is not there any more, while there is a topic of
        its dead letters. Raises InvalidArgumentError, UnknownGroupError.
        """
        return self._box.count(group)

    def list_dead_letters(self, group: str, after: int = -1, limit: int = 100) -> list[DeadLetter]:
        """Dead letters with offsets above `after`, the oldest first, 1 to 1000 of them at most.

        Raises InvalidArgumentError, UnknownGroupError; CorruptRecordError, DamagedQueueError.
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
        """Dead letters are messages again where they came from: each of them once, whatever
        happens. As new ones, with the ordering key, the queue and the id that they had.

        Those of these offsets; or, without any, all above `after`, the oldest first. At most
        `max_messages` are put again or left, 1 to 1000. With `wait` they are as durable on return
        as a put. A letter that came from a light queue goes to that, and not again to the topic
        that it stood in beside. What is no dead letter, or not any more, counts nowhere.
        `may` says whether a message may go to a topic, or light queue; the first that may not ends
        the call. It is called on any thread, within a turn: be short, and raise nothing.
        Raises InvalidArgumentError, UnknownGroupError, CorruptRecordError, DamagedQueueError, and
        what an append raises: some may have been put again then, and each of them has ended.
        """
        return self._letters.redrive(group, offsets, max_messages, after, may, wait=wait)

    def delete_dead_letters(
        self, group: str, offsets: Sequence[int], *, wait: bool = True
    ) -> tuple[int, int]:
        """These dead letters are done; how many of them there were, and `end_offset`: it is certain
        once the log is durable up to that. With `wait` it is so on return.

        Raises InvalidArgumentError, UnknownGroupError, and what an append raises.
        """
        return self._letters.delete(group, offsets, wait=wait)

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name, since the store was opened."""
        return {
            **self._damages.statistics(),
            "store.shared_expired": self._turns.expired,
            "store.shared_gone": self._turns.gone,
            "store.dead_letters_moved": self.keeping.moved,
            "store.dead_letters_expired": self.keeping.expired,
            "store.dead_letters_given_up": self.keeping.lost,
        }
