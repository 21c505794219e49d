"""Reads: bounds of a queue, and pulls from it. Nothing here writes.

A reader that finds a unit missing, or a record that does not match its unit, reports damage. It
never skips it, and never takes it for the end of the queue.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, TypeVar

from store.base import Lock
from store.consume_queue import Bounds
from store.errors import (
    CorruptMessageError,
    CorruptRecordError,
    DamagedQueueError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    RecreatedQueueError,
)
from store.format import Records
from store.metadata import KEEP_ALL
from store.reads.pull_plan import PullPlan

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.consume_queue import ConsumeQueueStore, CqUnit
    from store.derive import Superseded
    from store.log import CommitLog
    from store.reads.filters import Filter
    from store.reads.pull_plan import Pulled
    from store.reads.topic_retention import TopicRetention
    from store.topics import End, QueueRules, Topics

T = TypeVar("T")

#: A filtered pull looks at no more units than this (RocketMQ: maxFilterMessageSize / unit size is
#: 800; a range read here costs a fraction of it).
_MAX_EXAMINED = 4096
_UNITS_A_READ = 1024
_MANY_QUEUES = 65_536


def _fitting(sizes: Sequence[int], room: int, *, first: bool) -> tuple[int, int]:
    """How many records of these sizes fit in `room` bytes, and the bytes left.

    The `first` message of a pull always fits.
    """
    whole = sum(sizes)
    if whole <= room:  # the usual case
        return len(sizes), room - whole
    ends = list(accumulate(sizes))
    count = max(bisect_right(ends, room), int(first))
    return count, room - ends[count - 1] if count else room


class Reader:
    """Reads one store. Thread: any. Locks: `_counting`, with no other."""

    def __init__(
        self,
        log: CommitLog,
        queues: ConsumeQueueStore,
        topics: Topics,
        retention: TopicRetention,
        superseded: Superseded,
    ) -> None:
        self._retention = retention
        self._superseded = superseded
        self._log = log
        self._queues = queues
        self._topics = topics
        # Queues that the log was asked about, with the first offset it has. Changed in one step.
        self._begins_at: dict[tuple[str, int], int] = {}
        self._counting = Lock()
        #: Messages that an SQL filter could not judge. Guarded by _counting.
        self.filter_errors = 0

    def bounds(self, topic: str, queue_id: int) -> Bounds:
        """Min and max. Raises UnknownTopicError, UnknownQueueError.

        Min is the first message in the log that the topic keeps.
        """
        return self.bounds_and_floor(topic, queue_id)[0]

    def bounds_in_log(self, topic: str, queue_id: int) -> Bounds:
        """Like `bounds`, whatever the topic keeps.

        Min is the first unit whose record is in the log; units before it have expired. But a queue
        that is not older than the log's start has all its records there, from offset 0 on, so units
        missing at its front are damage, which reads report.
        """
        return self._bounds_in_log(topic, queue_id)[0]

    def bounds_and_floor(self, topic: str, queue_id: int) -> tuple[Bounds, int]:
        """Min and max, and the physical offset below which units have expired, or belong to an
        earlier topic; a database restored from a copy may have such units."""
        found, floor, rules = self._bounds_in_log(topic, queue_id)
        if rules.retention is not KEEP_ALL and rules.retention != KEEP_ALL:
            low = self._retention.first_kept(topic, queue_id, rules, found)
            return Bounds(low, found.max_offset), floor
        return found, floor

    def _bounds_in_log(self, topic: str, queue_id: int) -> tuple[Bounds, int, QueueRules]:
        rules = self._topics.require_queue(topic, queue_id)
        begins = rules.created_offset
        start = self._log.start_offset
        floor = max(begins, start)
        found = self._queues.bounds(topic, queue_id, floor)
        if (
            0 < found.min_offset < found.max_offset
            and begins >= start
            and found.min_offset != self._begins_at.get((topic, queue_id))
        ):
            return Bounds(0, found.max_offset), floor, rules
        return found, floor, rules

    def end_of(self, topic: str) -> End:
        """The last deletion of the topic or light queue that this process saw."""
        return self._topics.ends.get(topic)

    def begins_at(self, topic: str, queue_id: int, offset: int) -> None:
        """Record that the log, which was read, has no record of the queue below that offset."""
        if len(self._begins_at) >= _MANY_QUEUES:
            self._begins_at.clear()
        self._begins_at[topic, queue_id] = offset

    def first_unit(self, topic: str, queue_id: int, offset: int) -> CqUnit | None:
        """The unit at exactly that offset, if there is one."""
        found = self._queues.read_units(topic, queue_id, offset, 1)
        return found[0][1] if found else None

    def plan(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wanted: Filter | None,
        given_at: int | None,
    ) -> PullPlan:
        """Which records a pull from `offset` on returns. See ReadPath.plan_pull."""
        end_of = self._topics.ends.get
        try:
            while True:  # as in `with_given_at`
                end = end_of(topic)
                plan = self._plan(topic, queue_id, offset, max_messages, max_bytes, wanted)
                if end_of(topic) == end:
                    break
            if not end.is_dispatched:
                plan = plan._replace(given_at=min(plan.given_at, end.below))
        except (OffsetOutOfRangeError, DamagedQueueError):
            self.check_given(topic, queue_id, offset, given_at)
            raise
        if given_at is not None:
            self.check_given(topic, queue_id, offset, given_at)
        return plan

    def with_given_at(self, topics: Sequence[str], read: Callable[[], T]) -> tuple[T, int]:
        """Run `read`. Returns its result, and the `given_at` of its offsets. See
        MessageStore.with_given_at.

        `given_at` is taken after the read, so the records before these offsets are below it. No
        topic was deleted meanwhile; if one was, and its rows still exist, `given_at` is at that
        deletion, so a later topic of the name begins at or above it.
        """
        end_of = self._topics.ends.get
        ends = [end_of(topic) for topic in topics]
        while True:
            found, given_at = read(), self._log.appended_offset
            before, ends = ends, [end_of(topic) for topic in topics]
            if ends == before:
                pending = (end.below for end in ends if not end.is_dispatched)
                return found, min([given_at, *pending])

    def check_given(self, topic: str, queue_id: int, offset: int, given_at: int | None) -> None:
        """Raises RecreatedQueueError if the offset belongs to an earlier queue of the name."""
        if given_at is None or offset == 0:
            return
        if self._is_later(topic, queue_id, offset, given_at):
            raise RecreatedQueueError(topic, queue_id, offset, *self.bounds(topic, queue_id))

    def _is_later(self, topic: str, queue_id: int, offset: int, given_at: int) -> bool:
        """Whether the queue began at or after `given_at`, when the offset was given.

        The message before the offset was below that then. If the queue has messages before it, the
        first of them decides. If it has none, no message would be skipped.
        """
        begins = self._topics.begins_at(topic)
        if begins is not None:
            return begins >= given_at
        is_earlier = self._topics.ends.is_earlier(topic, given_at)
        if is_earlier is not None:
            return is_earlier
        low, high = self.bounds_in_log(topic, queue_id)
        if low >= min(offset, high):
            return False
        first = self.first_unit(topic, queue_id, low)
        return first is not None and first.physical_offset >= given_at

    def _plan(
        self,
        topic: str,
        queue_id: int,
        offset: int,
        max_messages: int,
        max_bytes: int,
        wanted: Filter | None,
    ) -> PullPlan:
        (low, high), floor = self.bounds_and_floor(topic, queue_id)
        if not low <= offset <= high:
            raise OffsetOutOfRangeError(topic, queue_id, offset, low, high)
        hidden = self._superseded.get(topic, queue_id)
        takes_all = wanted is None and hidden is None
        most = max_messages if wanted is None else max(max_messages, wanted.most_judged)
        codes = None if wanted is None else wanted.codes
        places: list[tuple[int, int]] = []
        offsets: list[int] = []
        room = max_bytes
        at = offset
        stop = high if takes_all else min(high, offset + _MAX_EXAMINED)
        while at < stop and len(places) < most:
            count = min(stop - at, _UNITS_A_READ)
            left = most - len(places)
            if takes_all:
                count = min(count, left)
            found = self._queues.read_places(topic, queue_id, at, count) if takes_all else []
            if len(found) == count and found[0][0] >= floor:  # the usual case, in fewer steps
                numbers: Sequence[int] = range(at, at + count)
                behind = at + count
            else:
                units = self._units(topic, queue_id, at, count, floor, first=not places)
                behind = at + len(units)
                visible = units if hidden is None else hidden.visible(units)
                if codes is not None:
                    visible = [each for each in visible if each[1].tag_code in codes]
                found = [(unit.physical_offset, unit.record_size) for _, unit in visible]
                numbers = [number for number, _ in visible]
            sizes = [size for _, size in found[:left]]
            fitting, room = _fitting(sizes, room, first=not places)
            places += found[:fitting]
            offsets += numbers[:fitting]
            if fitting < len(found):
                at = numbers[fitting]
                break
            if behind < at + count:
                at = behind
                break  # the next pull raises the reason
            at = behind
        given_at = self._log.appended_offset  # all that was read of lies below
        return PullPlan(
            topic,
            queue_id,
            offset,
            places,
            offsets,
            max_messages,
            wanted,
            at,
            low,
            high,
            given_at,
        )

    def _units(
        self, topic: str, queue_id: int, at: int, count: int, floor: int, *, first: bool
    ) -> list[tuple[int, CqUnit]]:
        """Up to `count` units from `at` on, all below the queue's max; fewer before a gap.

        A unit of a record below `floor` does not count. A gap at `at` itself is raised if these are
        the `first` units of a pull.
        """
        units = self._queues.read_units(topic, queue_id, at, count)
        if units and units[0][1].physical_offset < floor:  # offsets in the log rise along a queue
            units = [each for each in units if each[1].physical_offset >= floor]
        if len(units) != count or units[0][0] != at or units[-1][0] != at + count - 1:
            whole = 0
            while whole < len(units) and units[whole][0] == at + whole:
                whole += 1
            if whole or not first:
                return units[:whole]
            low, high = self.bounds(topic, queue_id)
            if not low <= at <= high:  # expired, or deleted, since it was looked up
                raise OffsetOutOfRangeError(topic, queue_id, at, low, high)
            behind = units[0][0] if units else at + count
            raise DamagedQueueError(topic, queue_id, at, "its unit is missing", behind)
        return units

    def read(self, plan: PullPlan) -> Pulled:
        """The records of the plan, verified to be in its queue; fewer if some cannot be read.

        If the first one cannot be read, raises its error.
        """
        if not plan.places:
            return plan.pulled(Records())
        topic, queue_id, first = plan.topic, plan.queue_id, plan.queue_offsets[0]
        try:
            records = self._log.read_run(plan.places)
        except (MessageNotFoundError, CorruptRecordError) as error:
            low, high = self.bounds(topic, queue_id)
            if not low <= first < high:  # its segment was dropped meanwhile
                raise OffsetOutOfRangeError(topic, queue_id, first, low, high) from None
            if isinstance(error, MessageNotFoundError):
                raise DamagedQueueError(
                    topic, queue_id, first, "its unit refers to a place outside the log"
                ) from error
            raise CorruptMessageError(
                topic, queue_id, first, error.physical_offset, error.reason
            ) from error
        misplaced = plan.misplaced(records)
        if misplaced == 0:
            raise DamagedQueueError(topic, queue_id, first, "its unit refers to another message")
        pulled = plan.pulled(records if misplaced is None else records[:misplaced])
        if pulled.filter_errors:
            with self._counting:
                self.filter_errors += pulled.filter_errors
        return pulled
