"""Takes over delayed messages and open transactions from a RocketMQ broker.

A broker keeps them in system topics, and records elsewhere which ones it has delivered. Each is
appended again as a held message. The same append has the entry that makes it wait, and the offset
up to which the broker's topic was taken over. So each is taken over exactly once, after any crash.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from store.errors import InvalidArgumentError
from store.format import MAX_LIGHT_QUEUES, prepare_all
from store.held.halves import FIRST_CHECK_MS, GROUP, IS_TRANSACTION
from store.held.records import TIMER_DELIVER, TIMER_OUT, prepare_waiting, waiting
from store.metadata import KEEP_ALL
from store.puts import MOST_BODY_BYTES, Step
from store.state import (
    HALVES_TOPIC,
    TIMER_TOPIC,
    GroupMade,
    HalfBegun,
    HalfChecked,
    TimerSet,
    TopicsMade,
    new_nonce,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.format import Prepared
    from store.log import StoreTimes
    from store.message import Message
    from store.puts import AppendPath
    from store.state import Committed, Entry
    from store.topics import Topics

logger = logging.getLogger(__name__)

T = TypeVar("T")


class InheritedTimer(NamedTuple):
    """A delayed message to take over."""

    message: Message  # as it will be delivered
    due_ms: int  # ms since 1970; delivered at once if it has passed


class InheritedHalf(NamedTuple):
    """An open transaction to take over."""

    message: Message  # as a commit puts it
    group: str  # of producers
    begun_ms: int  # ms since 1970
    checks: int  # number of checks sent to a producer


class Inherited:
    """Takes over messages from a broker. Thread: one. Locks: the append lock."""

    def __init__(self, appends: AppendPath, topics: Topics, times: StoreTimes) -> None:
        # Constant after construction.
        self._appends = appends
        self._topics = topics
        self._now_ms = times.steady_ms

    def take_timers(self, found: Sequence[InheritedTimer], mark: Committed) -> int:
        """Take over these delayed messages and commit the mark, as durable as a put on return.
        Returns how many were taken over; those whose topic is missing, or that cannot be put, are
        skipped and logged.

        Raises what an append raises.
        """
        ready = [
            each
            for message, due_ms in found
            if (each := self._ready(TIMER_TOPIC, message, _times(due_ms), due_ms))
        ]

        def entries(each: _Ready[int], due_ms: int, place: int) -> list[Entry]:
            return [TimerSet(each.topic, due_ms, place, each.nonce)]

        return self._take(TIMER_TOPIC, ready, entries, mark)

    def take_halves(self, found: Sequence[InheritedHalf], mark: Committed) -> int:
        """Like `take_timers`, for transactions. Their next check is due as if they began now."""
        ready = [
            each
            for half in found
            if (each := self._ready(HALVES_TOPIC, half.message, _transaction(half.group), half))
        ]

        def entries(each: _Ready[InheritedHalf], half: InheritedHalf, place: int) -> list[Entry]:
            group, begun_ms, checks = half[1:]
            check_ms = self._now_ms() + FIRST_CHECK_MS
            begun = HalfBegun(group, each.topic, place, each.nonce, begun_ms, check_ms)
            return [begun, HalfChecked(place, checks, check_ms)] if checks else [begun]

        return self._take(HALVES_TOPIC, ready, entries, mark)

    def take_undone(
        self, entries: Sequence[Entry], letters: Sequence[Message], mark: Committed | None
    ) -> None:
        """Append entries for messages that groups have not done, dead letters, and the mark. As
        durable as a put on return. Raises what an append raises."""
        prepared = prepare_all(letters, MOST_BODY_BYTES, MAX_LIGHT_QUEUES, is_batch=True)
        queues = list(dict.fromkeys((each.topic, 0) for each in letters))

        def steps() -> list[Step]:
            made: list[Entry] = [*self._topics.needed(queues)]
            marks: list[Entry] = [] if mark is None else [mark]
            if mark is not None and self._topics.view.tables.group(mark.group) is None:
                made.append(GroupMade(mark.group, b""))
            step = Step([*entries, *marks], letters, prepared=prepared)
            return [Step(made), step] if made else [step]

        self._appends.wait_acknowledged(self._appends.decide_steps(steps))

    def _ready(
        self, system_topic: str, message: Message, more: dict[str, str], what: T
    ) -> _Ready[T] | None:
        held = waiting(system_topic, message, more)
        try:
            # Prepare the final message as well: the broker may have accepted what this store
            # rejects.
            kept = {name: more[name] for name in more if name == TIMER_DELIVER}
            put = message._replace(properties={**(message.properties or {}), **kept})
            prepare_all([put], MOST_BODY_BYTES, MAX_LIGHT_QUEUES)
            (prepared,) = prepare_waiting([held], MOST_BODY_BYTES)
        except InvalidArgumentError as error:
            logger.error("a message for topic %r is not taken over: %s", message.topic, error)
            return None
        return _Ready(message.topic, held, prepared, new_nonce(), what)

    def _take(
        self,
        system_topic: str,
        ready: Sequence[_Ready[T]],
        entries: Callable[[_Ready[T], T, int], list[Entry]],
        mark: Committed,
    ) -> int:
        taken: list[_Ready[T]] = []

        def steps() -> list[Step]:
            taken.clear()
            tables = self._topics.view.tables
            made: list[Entry] = []
            if tables.topic(system_topic) is None:
                made.append(TopicsMade([system_topic], 1, self._now_ms(), KEEP_ALL))
            if tables.group(mark.group) is None:
                made.append(GroupMade(mark.group, b""))
            place = self._topics.next_own(system_topic)
            decided: list[Entry] = []
            for each in ready:
                if tables.topic(each.topic) is None:
                    continue
                decided += entries(each, each.what, place + len(taken))
                taken.append(each)
            decided.append(mark)
            step = Step(
                decided, [each.held for each in taken], prepared=[each.prepared for each in taken]
            )
            return [Step(made), step] if made else [step]

        self._appends.wait_acknowledged(self._appends.decide_steps(steps))
        gone = len(ready) - len(taken)
        if gone:
            logger.warning("%d messages are not taken over: their topics were deleted", gone)
        return len(taken)


class _Ready(NamedTuple, Generic[T]):
    """A message that can be taken over."""

    topic: str  # where the message will be put
    held: Message
    prepared: Prepared
    nonce: int
    what: T


def _times(due_ms: int) -> dict[str, str]:
    return {TIMER_OUT: str(due_ms), TIMER_DELIVER: str(due_ms)}


def _transaction(group: str) -> dict[str, str]:
    return {GROUP: group, IS_TRANSACTION: "true"}
