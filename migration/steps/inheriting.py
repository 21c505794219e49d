"""Takes over messages that a broker had not delivered, when the store is first opened.

Each append also records how far the broker's queue was taken over. So an interrupted run continues
there, and each message is taken over once. The store serves no calls before all are taken over.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from migration.broker_config import TAKEN_GROUP
from migration.steps.undone import take_undone
from migration.waiting import (
    HALF_GROUP,
    HALF_TOPIC,
    OpenLog,
    due_of,
    find_delayed,
    find_halves,
    find_timers,
    message_of,
    read_timer_files,
)
from store.errors import InvalidArgumentError
from store.format import SCHEDULE_TOPIC
from store.held import InheritedHalf, InheritedTimer
from store.state import TIMER_TOPIC, Committed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from pathlib import Path

    from migration.waiting import Found
    from store.message import StoredMessage
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

#: Most messages in one append.
_TOGETHER = 256
_MOST_BYTES = 4 << 20
#: Above every physical offset.
_EVERYTHING = 1 << 62


class Inheritance(NamedTuple):
    """Numbers of messages that one run took over."""

    timers: int = 0  # including delayed messages of levels
    halves: int = 0
    undone: int = 0  # messages in flight of shared groups

    def lines(self) -> list[str]:
        """The numbers as lines of text."""
        return [
            f"taken over: {count} {what}"
            for count, what in (
                (self.timers, "messages that are delivered when they are due"),
                (self.halves, "open transactions, which their producers are asked to decide"),
                (self.undone, "messages that shared groups receive again"),
            )
            if count
        ]


def inherit(store: MessageStore, root: Path, end: int) -> Inheritance:
    """Take over messages that wait in the broker's log below physical offset `end`. As durable as a
    put on return. Repeatable: continues where an earlier run ended. Raises what an append raises,
    what reading queues raises, and OSError."""
    log = OpenLog(store, end)
    timers = 0
    for queue_id in log.ids(SCHEDULE_TOPIC):
        mark = Committed(TAKEN_GROUP, SCHEDULE_TOPIC, queue_id, 0)
        found = find_delayed(log, queue_id, _done(store, mark))
        timers += _take(found, mark, lambda was: _timer(store, was), store.inherited.take_timers)
    if log.ids(TIMER_TOPIC):
        mark = Committed(TAKEN_GROUP, TIMER_TOPIC, 0, 0)
        found = find_timers(log, read_timer_files(root), _done(store, mark))
        timers += _take(found, mark, lambda was: _timer(store, was), store.inherited.take_timers)
    halves = 0
    if log.ids(HALF_TOPIC):
        mark = Committed(HALF_GROUP, HALF_TOPIC, 0, 0)
        # Without an end: only a broker or a release writes to that topic.
        found = find_halves(OpenLog(store, _EVERYTHING), _done(store, mark))
        halves = _take(found, mark, _half, store.inherited.take_halves)
    return Inheritance(timers, halves, take_undone(store, log))


def _done(store: MessageStore, mark: Committed) -> int:
    """Queue offset below which the queue has been taken over."""
    (offset,) = store.committed_offsets(mark.group, [(mark.topic, mark.queue_id)])
    return offset or 0


def _take(
    found: Iterable[Found],
    mark: Committed,
    made_of: Callable[[StoredMessage], T],
    take: Callable[[list[T], Committed], int],
) -> int:
    """Take over the waiting ones of `found`, batch by batch. Returns how many."""
    count = size = 0
    last: int | None = None
    ready: list[T] = []
    for was, is_waiting in found:
        if len(ready) == _TOGETHER or size > _MOST_BYTES:
            assert last is not None, "something is ready"
            count += take(ready, mark._replace(offset=last + 1))
            ready, size = [], 0
        last = was.queue_offset
        if not is_waiting:
            continue
        try:
            ready.append(made_of(was))
        except InvalidArgumentError as error:
            where = (was.topic, was.queue_offset, error)
            logger.error("the message of %s at place %d is not taken over: %s", *where)
            continue
        size += was.record_size
    # If nothing waits, the broker's own offsets stay unchanged.
    if last is not None and (ready or count):
        count += take(ready, mark._replace(offset=last + 1))
    return count


def _timer(store: MessageStore, was: StoredMessage) -> InheritedTimer:
    tag_code = 0
    if was.topic == SCHEDULE_TOPIC:
        units = store.queues.read_units(was.topic, was.queue_id, was.queue_offset, 1)
        tag_code = units[0][1].tag_code if units else 0
    return InheritedTimer(message_of(was), max(0, due_of(was, tag_code)))


def _half(was: StoredMessage) -> InheritedHalf:
    checks = was.properties.get("TRANSACTION_CHECK_TIMES", "")
    return InheritedHalf(
        message_of(was),
        was.properties.get("PGROUP", ""),
        max(0, was.born_time_ms),
        int(checks) if checks.isascii() and checks.isdigit() and len(checks) < 9 else 0,
    )
