"""Delayed messages: put, list and recall. Their delivery is in firing.py."""

from __future__ import annotations

import enum
from typing import TYPE_CHECKING, NamedTuple

from store.base import check_within
from store.errors import InvalidArgumentError
from store.format import MAX_LIGHT_QUEUES, UNIQ_KEY, check_may_put, prepare_all, unpack_record
from store.held.firing import Firing
from store.held.handles import TimerHandle, pack_handle, unpack_handle
from store.held.moving import TimerKeeping
from store.held.readable import Scattered
from store.held.records import (
    TIMER_DELIVER,
    TIMER_OUT,
    check_may_wait,
    delivered,
    prepare_waiting,
    waiting,
)
from store.metadata import KEEP_ALL
from store.puts import Step, check_fit, placed_in_batch
from store.state import (
    NOWHERE,
    TIMER_TOPIC,
    TimerEnd,
    TimerEnded,
    TimerSet,
    TopicsMade,
    new_nonce,
    split_timer_key,
    timer_key,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.log import StoreTimes
    from store.message import Message
    from store.puts import AppendPath
    from store.reads import ReadPath
    from store.state import Entry, Tables, TimerRow
    from store.topics import Topics

#: How far ahead a delivery time may be, ms: 40 days.
MOST_AHEAD_MS = 40 * 24 * 3_600_000
#: Most messages in one put, and most handles in one recall.
MOST_TIMERS = 1024
#: Most timers in a page, and most that are examined for it.
MOST_LISTED = 1000
_MOST_LOOKED = 4096
_LOOKED_TOGETHER = 256
_FIELD = "deliver_at"
#: Above every due time.
_NEVER_MS = (1 << 63) - 1


def too_far(ahead_ms: int) -> str:
    """The reason for rejecting a time that is this far ahead."""
    days = f"{ahead_ms / 86_400_000:.4g}"
    return f"{days} days from now is more than 40 days ahead, which is the longest delay"


class TimersSet(NamedTuple):
    """Delayed messages that were put."""

    handles: list[str]  # one for each, in order
    due_ms: Sequence[int]  # one for each, ms since 1970
    end_offset: int  # see MessageStore.is_durable
    places: list[int]  # queue offsets in queue 0 of TIMER_TOPIC


class Recall(enum.Enum):
    """The result for one handle."""

    RECALLED = "recalled"  # the message will not be delivered
    NOT_WAITING = "not waiting"  # delivered or recalled before, or the topic was deleted


class Recalled(NamedTuple):
    """The results of a recall."""

    outcomes: list[Recall]
    end_offset: int  # see TimersSet


class Waiting(NamedTuple):
    """A delayed message that has not been delivered yet."""

    handle: str
    due_ms: int  # ms since 1970
    message: Message  # as it will be delivered, without properties that the store adds
    set_ms: int  # when it was put, or last moved out of an old segment


class WaitingPage(NamedTuple):
    """Delayed messages in the order of their times."""

    found: list[Waiting]
    cursor: bytes | None  # start of the next page; None after the last page


class Timers:
    """Messages that are delivered at a given time: see store/docs/held.md.

    Each is delivered exactly once, unless it is recalled or its topic is deleted before, and never
    before its time by the store's clock (store/log/store_times.py). Thread: any. Locks: the append
    lock.
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
        """`tables`: the state at the dispatch point."""
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._tables = tables
        self._times = times
        self._scattered = Scattered(queues, appends.log, reads)
        self.firing = Firing(appends, topics, tables, times, self._scattered)
        self.keeping = TimerKeeping(appends, topics, tables, reads)
        #: Number of recalls since the store was opened; may be read without a lock.
        self.recalled = 0

    # --- put -------------------------------------------------------------------------------

    def now_ms(self) -> int:
        """The store's time, ms since 1970. It decides which messages are due."""
        return self._times.now_ms()

    def put(
        self, messages: Sequence[Message], due_ms: Sequence[int], *, wait: bool = True
    ) -> TimersSet:
        """Store messages to be delivered at `due_ms`, ms since 1970: all of them, or none.

        A message whose time has passed is delivered at once. With `wait`, blocks until the messages
        are as durable as after a put. Creates topics on first use, as a put does. Raises what an
        append raises, before anything is written; InvalidArgumentError if a time is more than 40
        days ahead, or a message belongs to a transaction.
        """
        assert len(messages) == len(due_ms), f"{len(due_ms)} times of {len(messages)} messages"
        self._check(messages, due_ms)
        nonces = [new_nonce() for _ in messages]
        held = [
            waiting(TIMER_TOPIC, message, {TIMER_OUT: str(due), TIMER_DELIVER: str(due)})
            for message, due in zip(messages, due_ms, strict=True)
        ]
        prepared = prepare_waiting(held, self._appends.config.max_body_bytes)
        check_fit(held, prepared, self._appends.log.segment_bytes)
        queues = list(dict.fromkeys((each.topic, each.queue_id) for each in messages))
        first = -1

        def steps() -> list[Step]:
            nonlocal first
            first = self._topics.next_own(TIMER_TOPIC)
            made: list[TopicsMade] = self._topics.needed(queues)
            if self._topics.view.tables.topic(TIMER_TOPIC) is None:
                made.append(TopicsMade([TIMER_TOPIC], 1, self._times.now_ms(), KEEP_ALL))
            entries: list[Entry] = [
                TimerSet(message.topic, due, place, nonce)
                for place, (message, due, nonce) in enumerate(
                    zip(messages, due_ms, nonces, strict=True), first
                )
            ]
            return [Step(made)] * bool(made) + [Step(entries, held, prepared=prepared)]

        try:
            end = self._appends.decide_steps(steps)
        except InvalidArgumentError as error:
            raise placed_in_batch(error, messages) from None
        places = list(range(first, first + len(messages)))
        if wait:
            self._appends.wait_acknowledged(end)
        handles = [
            pack_handle(
                message.topic,
                TimerHandle(due, place, nonce, (message.properties or {}).get(UNIQ_KEY, "")),
            )
            for message, due, place, nonce in zip(messages, due_ms, places, nonces, strict=True)
        ]
        return TimersSet(handles, due_ms, end, places)

    def _check(self, messages: Sequence[Message], due_ms: Sequence[int]) -> None:
        if not 0 < len(messages) <= MOST_TIMERS:
            raise InvalidArgumentError(
                "messages", f"{len(messages)} delayed messages, not 1 to {MOST_TIMERS}"
            )
        now_ms = self._times.now_ms()
        latest_ms = now_ms + MOST_AHEAD_MS
        for at, (message, due) in enumerate(zip(messages, due_ms, strict=True)):
            if not 0 <= due <= latest_ms:
                raise InvalidArgumentError(
                    f"messages[{at}].{_FIELD}",
                    f"{due} ms is below 0" if due < 0 else too_far(due - now_ms),
                )
            check_may_put(message.topic, f"messages[{at}].topic")
            check_may_wait(message, at, _FIELD)
            if message.queue_id < 0:
                raise InvalidArgumentError(
                    f"messages[{at}].queue_id", f"{message.queue_id} is below 0"
                )
        if any(each.light_queues for each in messages):  # not checked above
            fired = [
                each._replace(properties={**(each.properties or {}), TIMER_DELIVER: str(due)})
                for each, due in zip(messages, due_ms, strict=True)
            ]
            most = self._appends.config.max_body_bytes
            prepare_all(fired, most, MAX_LIGHT_QUEUES, is_batch=True)

    # --- recall ----------------------------------------------------------------------------

    def recall(self, topic: str, handles: Sequence[str], *, wait: bool = True) -> Recalled:
        """Cancel the delivery of these messages, all of one topic, if they have not been delivered.

        A recall and a delivery exclude each other: the first one wins. `wait`: see `put`. Raises
        InvalidArgumentError if a handle is malformed or belongs to another topic, and what an
        append raises.
        """
        if not 0 < len(handles) <= MOST_TIMERS:
            raise InvalidArgumentError("handles", f"{len(handles)} handles, not 1 to {MOST_TIMERS}")
        named = [unpack_handle(topic, text, f"handles[{at}]") for at, text in enumerate(handles)]
        keys = [timer_key(each.due_ms, each.timer) for each in named]
        outcomes: list[Recall] = []

        def decide() -> list[Entry]:
            rows = self._topics.view.tables.timers(keys)
            seen: set[bytes] = set()
            entries: list[Entry] = []
            outcomes.clear()
            for key, row, each in zip(keys, rows, named, strict=True):
                is_waiting = row is not None and row.nonce == each.nonce and key not in seen
                outcomes.append(Recall.RECALLED if is_waiting else Recall.NOT_WAITING)
                if is_waiting:
                    seen.add(key)
                    how = TimerEnd.RECALLED
                    entries.append(TimerEnded(each.due_ms, each.timer, NOWHERE, how))
            return entries

        end = self._appends.decide(decide)
        self.recalled += outcomes.count(Recall.RECALLED)
        if wait:
            self._appends.wait_acknowledged(end)
        return Recalled(outcomes, end)

    def named(self, topic: str, handle: str) -> TimerHandle:
        """Decode a handle. Raises InvalidArgumentError if it is malformed or of another topic."""
        return unpack_handle(topic, handle, "recall_handle")

    # --- list ------------------------------------------------------------------------------

    def count(self) -> int:
        """Returns the number of delayed messages in all topics."""
        return self._tables.count_timers()

    def page(self, topic: str = "", cursor: bytes | None = None, limit: int = 100) -> WaitingPage:
        """Up to `limit` delayed messages of one topic or of all ("") from `cursor` on, the earliest
        first. A page may be shorter, or empty, although its `cursor` says that more follow.
        Unreadable messages are left out.

        Raises InvalidArgumentError, DamagedQueueError.
        """
        check_within("limit", limit, 1, MOST_LISTED)
        self._appends.check_open()
        if cursor is not None and (len(cursor) != len(timer_key(0, 0)) or cursor[:1] != b"i"):
            raise InvalidArgumentError("page_token", "was not returned by this call")
        start = timer_key(0, 0) if cursor is None else cursor
        found: list[Waiting] = []
        for _ in range(_MOST_LOOKED // _LOOKED_TOGETHER):
            rows = self._tables.list_timers(start, _NEVER_MS, _LOOKED_TOGETHER)
            for key, each in self._read(rows):
                if each is not None and (not topic or each.message.topic == topic):
                    if len(found) == limit:
                        return WaitingPage(found, key)
                    found.append(each)
            if len(rows) < _LOOKED_TOGETHER:
                return WaitingPage(found, None)
            due_ms, timer = split_timer_key(rows[-1][0])
            start = timer_key(due_ms, timer + 1)
        return WaitingPage(found, start)

    def _read(self, rows: Sequence[tuple[bytes, TimerRow]]) -> list[tuple[bytes, Waiting | None]]:
        records = self._scattered.read(TIMER_TOPIC, [row.place for _, row in rows]).records
        found: list[tuple[bytes, Waiting | None]] = []
        for key, row in rows:
            record = records.get(row.place)
            if record is None:
                found.append((key, None))
                continue
            due_ms, timer = split_timer_key(key)
            was = unpack_record(record, verify=False)
            try:
                message = delivered(was, (TIMER_DELIVER,))
            except InvalidArgumentError:
                found.append((key, None))
                continue
            own = TimerHandle(due_ms, timer, row.nonce, was.properties.get(UNIQ_KEY, ""))
            handle = pack_handle(message.topic, own)
            found.append((key, Waiting(handle, due_ms, message, was.store_time_ms)))
        return found

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        return {
            "store.timers_pending": self.count(),
            "store.timers_recalled": self.recalled,
            "store.timers_moved": self.keeping.moved,
            "store.timers_given_up": self.keeping.lost,
            **self.firing.statistics(),
        }
