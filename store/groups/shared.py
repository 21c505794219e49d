"""The calls of shared groups, and the writer that makes one record of many of them.

Whoever comes while a turn is under way waits for its end, and whoever is first then decides for
all that wait. So a record has as much in it as there are callers, and nobody waits for a timer.
"""

from __future__ import annotations

import secrets
from collections import defaultdict
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from store.base import Lock
from store.errors import (
    GroupExistsError,
    GroupKindError,
    InvalidArgumentError,
    StoreError,
    UnknownGroupError,
    UnknownTopicError,
)
from store.format import check_group, check_light_queue, check_topic
from store.groups.deliveries import Outcome, Received
from store.groups.handles import unpack_handle
from store.groups.letters import Letters
from store.groups.receiving import Receiving, Wish
from store.groups.turn import ChangedError, Turn
from store.light_queue import is_light
from store.metadata import SharedGroup
from store.reads import TagFilter
from store.state import NOBODY, Ended, Finished, GroupMade, Held, Lease, Leased, pack_group

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.consume_queue import Bounds, ConsumeQueueStore
    from store.groups.dead_letters import DeadLetter
    from store.groups.handles import Handle
    from store.groups.letters import Redriven
    from store.groups.receiving import Pull
    from store.log import StoreTimes
    from store.puts import AppendPath
    from store.state import Entry, Tables
    from store.topics import Topics

#: Messages of one receive.
MOST_RECEIVED = 1024
#: Of one call that acknowledges, holds on to or gives back.
MOST_HANDLES = 1024
#: Longest time that a receiver has a message without asking for more, ms.
MOST_INVISIBLE_MS = 12 * 3_600_000
#: Longest time for which a message is given back, ms.
MOST_DELAY_MS = 30 * 24 * 3_600_000
#: Limits of a group's settings.
_MOST_DELIVERIES = 1000
_MOST_IN_FLIGHT = 10_000
_LEAST_KEEP_MS = 60_000
_MOST_KEEP_MS = 10 * 365 * 24 * 3_600_000
_MOST_BACKOFF = 16

T = TypeVar("T")


class Answered(NamedTuple):
    """What became of each handle, and when that is certain."""

    outcomes: list[Outcome]
    end_offset: int  # certain once the log is durable up to it: see MessageStore.is_durable


class _Call(Generic[T]):
    """A caller that waits for a turn."""

    __slots__ = ("end_offset", "error", "is_done", "plan", "result")

    def __init__(self, plan: Callable[[Turn], T]) -> None:
        self.plan = plan
        self.result: T
        self.error: StoreError | None = None
        self.end_offset = 0
        self.is_done = False


class SharedGroups:
    """Groups whose members share the messages of topics and light queues: see store/docs/groups.md.

    Every message is delivered at least once: until it is acknowledged, or was delivered as often as
    its group allows and is a dead letter. What is acknowledged is not delivered again.
    Thread: any. Locks: `_turn`, before the append lock. Memory: that of the calls under way.
    """

    def __init__(
        self,
        appends: AppendPath,
        topics: Topics,
        queues: ConsumeQueueStore,
        tables: Tables,
        times: StoreTimes,
        pull: Pull,
        bounds: Callable[[str, int], Bounds],
        new_nonce: Callable[[], int] = lambda: secrets.randbits(63) or 1,
    ) -> None:
        """`tables`: at the dispatch point. `pull`: as MessageStore.pull. `bounds`: of a queue."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._queues = queues
        self._tables = tables
        self._now_ms = times.steady_ms
        self._pull = pull
        self._new_nonce = new_nonce
        self._first_queue = count()
        self._turn = Lock()
        # Added to by anyone; taken from by callers that are done.
        self._waiting: list[_Call[object]] = []
        self._letters = Letters(appends, tables, self._now_ms, pull, bounds, self._run)

    # --- groups ----------------------------------------------------------------------------

    def create(self, group: str, settings: SharedGroup | None = None) -> SharedGroup:
        """The group exists and is shared, durably. It begins with the oldest message of whatever
        its members receive from.

        Raises InvalidArgumentError, GroupExistsError when it exists and is not so.
        """
        check_group(group)
        wanted = _checked(settings or SharedGroup())

        def make() -> Sequence[Entry]:
            found = self._topics.view.tables.group(group)
            if found is None:
                return [GroupMade(group, pack_group(wanted))]
            if found != pack_group(wanted):
                raise GroupExistsError(group)
            return []

        self._appends.wait_durable(self._appends.decide(make))
        return wanted

    def update(self, group: str, settings: SharedGroup) -> SharedGroup:
        """The shared group has these settings, durably. What is in flight stays so, until its time.

        Raises InvalidArgumentError, UnknownGroupError, GroupKindError.
        """
        check_group(group)
        wanted = _checked(settings)

        def change() -> Sequence[Entry]:
            tables = self._topics.view.tables
            if tables.group(group) is None:
                raise UnknownGroupError(group)
            if tables.shared_group(group) is None:
                raise GroupKindError(group, is_shared=False)
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

    # --- messages --------------------------------------------------------------------------

    def receive(
        self,
        group: str,
        topic: str,
        *,
        max_messages: int = 32,
        max_bytes: int = 4 << 20,
        invisible_ms: int | None = None,
        tag_filter: str | TagFilter | None = "",
    ) -> Received:
        """Messages of the topic, or light queue, that are the caller's for `invisible_ms`.

        Those whose time with others is over come first. Up to both limits, but at least one if
        there is one. Waits for no message. A message that the filter does not want is done for the
        whole group. When the power fails soon after, they may be delivered again at once.
        A group that does not exist is made, where `auto_create_groups` says so.
        Raises InvalidArgumentError, UnknownGroupError, GroupKindError, UnknownTopicError;
        CorruptRecordError, DamagedQueueError when the next message cannot be read; and what an
        append raises.
        """
        check_group(group)
        if is_light(topic):
            check_light_queue(topic, "topic")
        else:
            check_topic(topic)
        _check_within("max_messages", max_messages, 1, MOST_RECEIVED)
        _check_within("max_bytes", max_bytes, 1, 1 << 40)
        if invisible_ms is not None:
            _check_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
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
            next(self._first_queue),
        )

        def plan(turn: Turn) -> Received:
            receiving = Receiving(
                turn, wish, self._now_ms(), self._queues, self._pull, self._new_nonce
            )
            deliveries = receiving.run()
            return Received(deliveries, receiving.next_look_ms)

        return self._run(plan)[0]

    def acknowledge(self, group: str, handles: Sequence[str], *, wait: bool = True) -> Answered:
        """The messages are done: they are not delivered again.

        An outcome for each handle. With `wait` they are as durable on return as a put.
        Raises InvalidArgumentError naming a handle that this group was not given, GroupKindError,
        UnknownGroupError, and what an append raises: nothing was acknowledged then.
        """

        def end(turn: Turn, group: str, handle: Handle, lease: Lease) -> None:
            turn.add(
                Finished(
                    group,
                    handle.topic,
                    handle.queue_id,
                    lease.first,
                    lease.mask,
                    Ended.ACKNOWLEDGED,
                )
            )

        return self._for_each(group, handles, end, wait=wait)

    def change_invisible(
        self, group: str, handles: Sequence[str], invisible_ms: int, *, wait: bool = True
    ) -> Answered:
        """The messages stay the caller's for so long from now on; the handles stay good.

        Raises as `acknowledge`.
        """
        _check_within("invisible_ms", invisible_ms, 1, MOST_INVISIBLE_MS)
        until_ms = self._now_ms() + invisible_ms

        def extend(turn: Turn, group: str, handle: Handle, lease: Lease) -> None:
            lease = lease._replace(until_ms=until_ms, lease_ms=invisible_ms)
            turn.add(Leased(group, handle.topic, handle.queue_id, lease, Held.EXTENDED))

        return self._for_each(group, handles, extend, wait=wait)

    def give_back(
        self, group: str, handles: Sequence[str], delay_ms: int = 0, *, wait: bool = True
    ) -> Answered:
        """The messages may be delivered again after `delay_ms`; the handles are of no use any more.

        Raises as `acknowledge`.
        """
        _check_within("delay_ms", delay_ms, 0, MOST_DELAY_MS)
        until_ms = self._now_ms() + delay_ms

        def free(turn: Turn, group: str, handle: Handle, lease: Lease) -> None:
            lease = lease._replace(nonce=NOBODY, until_ms=until_ms, lease_ms=delay_ms)
            turn.add(Leased(group, handle.topic, handle.queue_id, lease, Held.GIVEN_BACK))

        return self._for_each(group, handles, free, wait=wait)

    def _for_each(
        self,
        group: str,
        handles: Sequence[str],
        change: Callable[[Turn, str, Handle, Lease], None],
        *,
        wait: bool,
    ) -> Answered:
        """`change` for what is in flight of these, lease by lease."""
        check_group(group)
        if not 0 < len(handles) <= MOST_HANDLES:
            raise InvalidArgumentError(
                "handles", f"{len(handles)} handles, not 1 to {MOST_HANDLES}"
            )
        parsed = [
            unpack_handle(group, handle, f"handles[{at}]") for at, handle in enumerate(handles)
        ]
        outcomes, end = self._run(partial(_change_leases, group, parsed, change))
        if wait:
            self._appends.wait_acknowledged(end)
        return Answered(outcomes, end)

    # --- dead letters ----------------------------------------------------------------------

    def dead_letters(self, group: str) -> int:
        """How many there are: neither redriven nor deleted, and kept.

        Also of a group by offsets, and of one that is not there any more, while there is a topic of
        its dead letters. Raises InvalidArgumentError, UnknownGroupError.
        """
        return self._letters.count(group)

    def list_dead_letters(self, group: str, after: int = -1, limit: int = 100) -> list[DeadLetter]:
        """Dead letters with offsets above `after`, the oldest first, 1 to 1000 of them at most.

        Raises InvalidArgumentError, UnknownGroupError; CorruptRecordError, DamagedQueueError.
        """
        return self._letters.page(group, after, limit)

    def redrive(
        self,
        group: str,
        offsets: Sequence[int] = (),
        max_messages: int = 1000,
        *,
        after: int = -1,
        wait: bool = True,
    ) -> Redriven:
        """Dead letters are messages again where they came from: each of them once, whatever
        happens. As new ones, with the ordering key, the queue and the id that they had.

        Those of these offsets; or, without any, all above `after`, the oldest first. At most
        `max_messages` are put again or left, 1 to 1000. With `wait` they are as durable on return
        as a put. A letter that came from a light queue goes to that, and not again to the topic
        that it stood in beside. What is no dead letter, or not any more, counts nowhere.
        Raises InvalidArgumentError, UnknownGroupError, CorruptRecordError, DamagedQueueError, and
        what an append raises: some may have been put again then, and each of them has ended.
        """
        return self._letters.redrive(group, offsets, max_messages, after, wait=wait)

    def delete_dead_letters(
        self, group: str, offsets: Sequence[int], *, wait: bool = True
    ) -> tuple[int, int]:
        """These dead letters are done; how many of them there were, and `end_offset`: it is certain
        once the log is durable up to that. With `wait` it is so on return.

        Raises InvalidArgumentError, UnknownGroupError, and what an append raises.
        """
        return self._letters.delete(group, offsets, wait=wait)

    # --- turns -----------------------------------------------------------------------------

    def _run(self, plan: Callable[[Turn], T]) -> tuple[T, int]:
        """What `plan` decided, once it is in the log, and the log's end then."""
        self._appends.check_open()
        call = _Call(plan)
        self._waiting.append(call)  # type: ignore[arg-type]
        try:
            with self._turn:
                while not call.is_done:
                    self._take_turn()
        finally:
            if not call.is_done:
                self._waiting.remove(call)  # type: ignore[arg-type]
        if call.error is not None:
            raise call.error
        return call.result, call.end_offset

    def _take_turn(self) -> None:
        """Some of those that wait are done."""
        waiting = self._waiting[:]
        while True:
            turn = Turn(self._appends, self._topics)
            decided: list[tuple[_Call[object], object, StoreError | None]] = []
            for call in waiting:
                if decided and turn.is_full:
                    break
                try:
                    decided.append((call, call.plan(turn), None))
                except StoreError as error:
                    decided.append((call, None, error))
            failure: StoreError | None = None
            end = self._appends.log.appended_offset
            try:
                if not turn.is_empty:
                    now_ms = self._now_ms()
                    end = self._appends.decide_steps(partial(turn.steps, now_ms))
            except ChangedError:
                continue
            except StoreError as error:
                failure = error
            for call, result, refusal in decided:
                call.result, call.error, call.end_offset = result, refusal or failure, end
                call.is_done = True
                self._waiting.remove(call)
            return


def _change_leases(
    group: str,
    handles: Sequence[Handle],
    change: Callable[[Turn, str, Handle, Lease], None],
    turn: Turn,
) -> list[Outcome]:
    turn.shared(group)
    outcomes = [Outcome.NOT_IN_FLIGHT] * len(handles)
    by_queue: dict[tuple[str, int, int], list[int]] = defaultdict(list)
    for at, handle in enumerate(handles):
        by_queue[handle.topic, handle.begins, handle.queue_id].append(at)
    for (topic, begins, queue_id), places in by_queue.items():
        if not _is_there(turn, topic, begins):
            for at in places:
                outcomes[at] = Outcome.QUEUE_ENDED
            continue
        (window,) = turn.windows(group, topic, [queue_id])
        by_nonce: dict[int, list[int]] = defaultdict(list)
        for at in places:
            by_nonce[handles[at].nonce].append(at)
        for lease in window.leases:
            mask = 0
            for at in by_nonce.get(lease.nonce, ()):
                bit = lease.part(handles[at].queue_offset, 1)
                if bit & ~mask:
                    mask |= bit
                    outcomes[at] = Outcome.DONE
            if mask:
                change(turn, group, handles[places[0]], lease._replace(mask=mask))
    return outcomes


def _is_there(turn: Turn, topic: str, begins: int) -> bool:
    """Whether the topic is the one of which a handle speaks."""
    try:
        return turn.place(topic).begins == begins
    except UnknownTopicError:
        return False


def _checked(settings: SharedGroup) -> SharedGroup:
    if settings.max_deliveries is not None:
        _check_within("max_deliveries", settings.max_deliveries, 1, _MOST_DELIVERIES)
    _check_within("invisible_ms", settings.invisible_ms, 1, MOST_INVISIBLE_MS)
    _check_within("most_in_flight", settings.most_in_flight, 1, _MOST_IN_FLIGHT)
    keep_ms = settings.dead_letters_keep_ms
    _check_within("dead_letters_keep_ms", keep_ms, _LEAST_KEEP_MS, _MOST_KEEP_MS)
    _check_within("backoff_ms", len(settings.backoff_ms), 0, _MOST_BACKOFF)
    for at, delay_ms in enumerate(settings.backoff_ms):
        _check_within(f"backoff_ms[{at}]", delay_ms, 0, MOST_DELAY_MS)
    return settings


def _check_within(field: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise InvalidArgumentError(field, f"{value} is outside {least} to {most}")
