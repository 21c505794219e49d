"""The way out: pull from a queue, query by key, get by offset. Nothing here writes.

A reader that finds a unit missing, or a record that is not what its unit says, reports damage. It
never skips it, and never takes it for the end of the queue.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from contextlib import suppress
from itertools import accumulate
from typing import TYPE_CHECKING, NamedTuple, TypeVar

from store.base import Lock
from store.consume_queue import Boundary, Bounds, KeyHit
from store.errors import (
    CorruptHitError,
    CorruptMessageError,
    CorruptRecordError,
    DamagedQueueError,
    InvalidArgumentError,
    MessageNotFoundError,
    OffsetOutOfRangeError,
    RecreatedQueueError,
    UnknownTopicError,
)
from store.format import (
    Records,
    dispatch_request,
    unpack_record,
)
from store.message import KeyQueryPage
from store.metadata import KEEP_ALL
from store.reads.pull_plan import PullPlan
from store.reads.unit_search import first_where

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.consume_queue import ConsumeQueueStore, CqUnit
    from store.derive import Superseded
    from store.log import CommitLog, StoreTimes
    from store.reads.filters import Filter
    from store.reads.pull_plan import Pulled
    from store.reads.topic_retention import TopicRetention
    from store.topics import QueueRules, Topics

T = TypeVar("T")

#: A filtered pull looks at no more units than this (RocketMQ: maxFilterMessageSize / unit size is
#: 800; a range read here costs a fraction of it).
_MAX_EXAMINED = 4096
_UNITS_A_READ = 1024
_MANY_QUEUES = 65_536

_CURSOR = struct.Struct(">qq")
_I64_MAX = (1 << 63) - 1


class Hidden(NamedTuple):
    """Why a message that is in the log is not seen any more."""

    reason: str
    is_superseded: bool  # by a later one of its key; otherwise its topic keeps no more


def _fitting(sizes: Sequence[int], room: int, *, first: bool) -> tuple[int, int]:
    """How many records of these sizes fit in `room` bytes, and the bytes left then.

    The `first` message of a pull fits whatever its size.
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
        times: StoreTimes,
    ) -> None:
        self._retention = retention
        self._superseded = superseded
        self._times = times
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

        Min is the first message that the topic keeps, of those in the log.
        """
        return self._bounds(topic, queue_id)[0]

    def bounds_in_log(self, topic: str, queue_id: int) -> Bounds:
        """The same, whatever the topic keeps.

        Min is the first unit whose record is in the log, and units before it are expired. But a
        queue that is not older than the log's start has all its records there, from offset 0 on:
        units missing at its front are damage, which whoever reads there is told.
        """
        return self._bounds_in_log(topic, queue_id)[0]

    def _bounds(self, topic: str, queue_id: int) -> tuple[Bounds, int]:
        """Min and max, and the physical offset below which units are expired, or of an earlier
        topic: a database put back from a copy may have such."""
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

    def begins_at(self, topic: str, queue_id: int, offset: int) -> None:
        """The log was read: it has no record of the queue below that offset."""
        if len(self._begins_at) >= _MANY_QUEUES:
            self._begins_at.clear()
        self._begins_at[topic, queue_id] = offset

    def search_time(self, topic: str, queue_id: int, time_ms: int, boundary: Boundary) -> int:
        """Offset by store time. See MessageStore.search_time."""
        (low, high), floor = self._bounds(topic, queue_id)
        if low < self._queues.bounds(topic, queue_id, floor).min_offset:
            raise DamagedQueueError(topic, queue_id, low, "its first units are missing")
        if self._times.falls:  # stamps may be searched in runs alone, judged times as a whole
            from_ms = time_ms if boundary is Boundary.LOWER else time_ms + 1
            found, _ = first_where(
                self._queues,
                topic,
                queue_id,
                low,
                high,
                lambda unit: self._time_of(unit) >= from_ms,
            )
            return found if boundary is Boundary.LOWER else max(low, found - 1)
        return max(low, self._queues.search_time(topic, queue_id, time_ms, boundary, floor))

    def _time_of(self, unit: CqUnit) -> int:
        return self._times.of(unit.physical_offset, unit.store_time_ms)

    def search_time_over_holes(
        self, topic: str, queue_id: int, time_ms: int, boundary: Boundary
    ) -> int:
        """The same where messages are missing for good: a hole is of the time of what is behind."""
        (low, high), floor = self._bounds(topic, queue_id)
        begin, end = low, high
        while low < high:
            middle = (low + high) // 2
            at, stored_ms = self._first_behind(topic, queue_id, middle, high, floor)
            if at < high and (
                stored_ms < time_ms or (boundary is Boundary.UPPER and stored_ms == time_ms)
            ):
                low = at + 1
            else:
                high = middle
        if boundary is Boundary.UPPER:
            return max(low - 1, begin)
        return self._first_behind(topic, queue_id, low, end, floor)[0]

    def _first_behind(
        self, topic: str, queue_id: int, at: int, end: int, floor: int
    ) -> tuple[int, int]:
        """Offset and store time of the first message from `at` on that can be read; `end` if none.

        Step by step: holes are short.
        """
        while at < end:
            count = min(end - at, _UNITS_A_READ)
            for queue_offset, unit in self._queues.read_units(topic, queue_id, at, count):
                if unit.physical_offset >= floor:
                    with suppress(CorruptRecordError, MessageNotFoundError):
                        self._log.read(unit.physical_offset, unit.record_size)
                        return queue_offset, self._time_of(unit)
            at += count
        return end, 0

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
        """Which records a pull from `offset` on gives. See ReadPath.plan_pull."""
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
        """What `read` returns, and the `given_at` of offsets in it. See MessageStore.with_given_at.

        It is taken behind the read, so that the records before these offsets are below it. None of
        the topics ended meanwhile; where one has, and its rows are still there, it lies at that
        end: so a later one of the name begins at or above it.
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
        """Raises RecreatedQueueError where the offset is of an earlier queue of the name."""
        if given_at is None or offset == 0:
            return
        if self._is_later(topic, queue_id, offset, given_at):
            raise RecreatedQueueError(topic, queue_id, offset, *self.bounds(topic, queue_id))

    def _is_later(self, topic: str, queue_id: int, offset: int, given_at: int) -> bool:
        """Whether the queue began at or behind `given_at`, when the offset was given.

        The message before the offset lay below that then: where the queue has messages before it,
        the first of them tells. Where it has none, nothing that is there would be passed over.
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
        (low, high), floor = self._bounds(topic, queue_id)
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
                break  # the next pull tells why
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
        """`count` units from `at` on, all below the queue's max; fewer in front of a hole.

        A unit of a record below `floor` counts as none. A hole at `at` itself is raised when these
        are the `first` units of a pull.
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
        """The records of the plan, verified to stand in its queue; fewer when some cannot be read.

        When the first one cannot, the reason is raised.
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
                    topic, queue_id, first, "its unit points outside the log"
                ) from error
            raise CorruptMessageError(
                topic, queue_id, first, error.physical_offset, error.reason
            ) from error
        misplaced = plan.misplaced(records)
        if misplaced == 0:
            raise DamagedQueueError(topic, queue_id, first, "its unit points at another message")
        pulled = plan.pulled(records if misplaced is None else records[:misplaced])
        if pulled.filter_errors:
            with self._counting:
                self.filter_errors += pulled.filter_errors
        return pulled

    def query(
        self,
        topic: str,
        key: str,
        begin_ms: int,
        end_ms: int,
        limit: int,
        cursor: bytes | None,
        max_bytes: int,
    ) -> KeyQueryPage:
        """Messages that carry the key, oldest first. See MessageStore.query.

        A record that cannot be read ends a page in front of it, or is raised when it would be the
        first of one.
        """
        keeps_all = self._topics.get(topic).retention == KEEP_ALL
        begins: dict[int, int] | None = None if keeps_all else {}
        after: KeyHit | None = None
        if cursor:
            if len(cursor) != _CURSOR.size:
                raise InvalidArgumentError("cursor", "was not made by this service")
            after = KeyHit(*_CURSOR.unpack(cursor))
            if after.store_time_ms < 0 or not 0 <= after.physical_offset < _I64_MAX:
                raise InvalidArgumentError("cursor", "was not made by this service")
        records: list[bytes] = []
        room = max_bytes
        while True:
            hits = self._queues.query_key(
                topic, key, begin_ms, end_ms or _I64_MAX, after, limit + 1
            )
            for hit in hits:
                record = None
                is_full = len(records) == limit
                if not is_full:
                    try:
                        record = self._record_of(topic, key, hit, begins)
                    except CorruptRecordError as error:
                        if not records:
                            raise CorruptHitError(
                                topic, key, error.physical_offset, error.reason, _CURSOR.pack(*hit)
                            ) from error
                        is_full = True
                if is_full or (record and records and len(record) > room):
                    assert after is not None
                    return KeyQueryPage(records, _CURSOR.pack(*after), complete=False)
                if record is not None:
                    records.append(record)
                    room -= len(record)
                after = hit
            if len(hits) <= limit:
                return KeyQueryPage(records, None, complete=True)

    def _record_of(
        self, topic: str, key: str, hit: KeyHit, begins: dict[int, int] | None
    ) -> bytes | None:
        """The record behind an index row, or None when that is expired, or of an earlier topic.

        `begins`: where queues of the topic begin, as far as that was looked up; None: it keeps all.
        """
        start = self._log.start_offset
        is_live = self._topics.admission.is_live
        if hit.physical_offset < start or not is_live(topic, hit.physical_offset):
            return None
        try:
            record = self._log.read_at(hit.physical_offset)
        except MessageNotFoundError:
            if hit.physical_offset < self._log.start_offset:
                return None
            raise CorruptRecordError(
                hit.physical_offset, "the key index points where no record is"
            ) from None
        message = unpack_record(record, verify=False)
        if message.topic != topic or (
            key not in message.keys and key != message.properties.get("UNIQ_KEY")
        ):
            raise CorruptRecordError(
                hit.physical_offset, "the key index points at a message without the key"
            )
        if not dispatch_request(record, 0).in_queue:
            return record  # it has no offset that a queue could begin behind, or hide
        if begins is not None:
            queue_id = message.queue_id
            if queue_id not in begins:
                begins[queue_id] = self.bounds(topic, queue_id).min_offset
            if message.queue_offset < begins[queue_id]:
                return None
        hidden = self._superseded.get(topic, message.queue_id)
        if hidden is not None and hidden.has(message.queue_offset, hit.physical_offset):
            return None
        return record

    def is_kept(self, record: bytes, begins: dict[tuple[str, int], int]) -> bool:
        """Whether the queue of the record does not begin behind it. What a deleted topic had, and
        what stands in no queue, is kept as long as the log. `begins`: where queues begin, as far as
        that was looked up.

        Raises DamagedQueueError.
        """
        message = unpack_record(record, verify=False)
        topic, queue = message.topic, (message.topic, message.queue_id)
        if not self._topics.admission.is_live(topic, message.physical_offset):
            return True
        if not dispatch_request(record, 0).in_queue:
            return True
        try:
            if self._topics.get(topic).retention == KEEP_ALL:
                return True
            if queue not in begins:
                begins[queue] = self.bounds(*queue).min_offset
        except UnknownTopicError:  # deleted just now
            return True
        return message.queue_offset >= begins[queue]

    def find(self, physical_offset: int) -> tuple[bytes, Hidden | None]:
        """The record at the offset, and why readers of its topic do not see it, if they do not.
        Raises MessageNotFoundError where none begins.

        A body may hold what looks like a record; the unit of the queue proves where one begins.
        """
        if physical_offset >= self._queues.dispatched_offset:
            # Appended perhaps, but not visible: in SYNC mode it may not be durable yet.
            raise MessageNotFoundError(str(physical_offset), "nothing is visible there")
        record = self._log.read_at(physical_offset)
        message = unpack_record(record, verify=False)
        topic, queue_id = message.topic, message.queue_id
        if not self._topics.admission.is_live(topic, physical_offset):
            raise MessageNotFoundError(str(physical_offset), f"its topic {topic!r} was deleted")
        queue_offset = message.queue_offset
        unit = self.first_unit(topic, queue_id, queue_offset)
        if unit is not None and unit[0] == physical_offset:
            if self._topics.get(topic).retention != KEEP_ALL:
                low = self.bounds(topic, queue_id).min_offset
                if queue_offset < low:
                    reason = f"its topic {topic!r} keeps no message below offset {low}"
                    return record, Hidden(reason, is_superseded=False)
            hidden = self._superseded.get(topic, queue_id)
            if hidden is not None and hidden.has(queue_offset, physical_offset):
                return record, Hidden("a later message has its key", is_superseded=True)
            return record, None
        if unit is None:
            low, high = self.bounds(topic, queue_id)
            if low <= queue_offset < high:
                raise DamagedQueueError(topic, queue_id, queue_offset, "its unit is missing")
        raise MessageNotFoundError(str(physical_offset), "no record begins there")
