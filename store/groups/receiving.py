"""One receive: redeliveries first, then new messages."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from store.errors import LiteGroupError, OffsetOutOfRangeError, StoreError
from store.groups.damage import DAMAGE
from store.groups.deliveries import Delivery
from store.groups.handles import Head, pack_handles
from store.groups.leases import bury_record
from store.groups.order import SCAN_AHEAD, message_group, ready, stretches
from store.groups.positions import latest_start
from store.state import (
    FRESH,
    NOBODY,
    Ended,
    Finished,
    Held,
    Lease,
    Leased,
    Passed,
    Seen,
    new_nonce,
    runs_of,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups.damage import Damage, Damages
    from store.groups.turn import Begin, Place, Turn
    from store.metadata import SharedGroup
    from store.reads import Filter, Pulled, ReadPath
    from store.state import Window

#: Queues whose rows are read together.
_TOGETHER = 64
#: Most unreadable messages of one queue that one call skips.
_MOST_SKIPPED = 64
#: For groups in order: messages read together in a scan, and bytes of messages that one call may
#: read from a queue without delivering them.
_SCANNED_TOGETHER = 64
_SCANNED_BYTES = 4 << 20
#: A lease stores no higher number of deliveries.
_MOST_DELIVERIES = 0xFFFF
#: One receive in ten from a priority topic visits its queues in turn, as in any other topic, so
#: that messages of low priority are not starved.
_ROUND_ONE_IN = 10


def _queues_of(place: Place, turn: int) -> list[int]:
    """The order in which a receive visits the queues; `turn` is the number of earlier receives."""
    count = place.queue_count
    if place.by_priority:
        turn, of_ten = divmod(turn, _ROUND_ONE_IN)
        if of_ten < _ROUND_ONE_IN - 1:
            return [*reversed(range(count))]
    return [(turn + at) % count for at in range(count)]


class Wish(NamedTuple):
    """The checked arguments of one receive."""

    group: str
    topic: str  # or light queue
    max_messages: int  # 0: only messages that the same attempt has in flight
    max_bytes: int
    invisible_ms: int | None  # None: the group's setting
    tag_filter: Filter | None
    makes_group: bool  # create a missing group
    skip_damaged: bool  # finish unreadable messages
    attempt: int  # hash of the attempt id; 0: none
    first_queue: int = 0  # taken modulo the number of queues
    of_lite: bool = False  # the topic is a lite topic; the group must be bound to its parent


class _Read(NamedTuple):
    """Messages of one queue."""

    messages: list[tuple[int, bytes]]  # queue offset and record, ascending
    next_offset: int  # other messages below were filtered out, or do not exist
    expired: int = 0  # messages below `next_offset` that the topic no longer keeps


class _Taken(NamedTuple):
    """Messages delivered in one lease."""

    queue_id: int
    lease: Lease
    queue_offsets: Sequence[int]
    records: Sequence[bytes]


class Receiving:
    """One receive call in one turn."""

    def __init__(
        self,
        turn: Turn,
        wish: Wish,
        now_ms: int,
        queues: ConsumeQueueStore,
        reads: ReadPath,
        damages: Damages,
    ) -> None:
        self._turn = turn
        self._wish = wish
        self._now_ms = now_ms
        self._queues = queues
        self._reads = reads
        self._damages = damages
        self._damage: Damage | None = None  # the first that blocks a queue
        self._begin: Begin | None = None  # None: start at the oldest message
        self._taken: list[_Taken] = []
        self._count = 0
        self._bytes = 0
        #: Store time, ms, at which a retry may find more; None: only a new message changes that.
        self.next_look_ms: int | None = None

    def run(self) -> list[Delivery]:
        """Returns the deliveries. Raises UnknownGroupError, GroupKindError, UnknownTopicError, and,
        if nothing was delivered before it, the error of an unreadable message."""
        wish = self._wish
        place = self._turn.place(wish.topic)
        settings = self._turn.shared(wish.group, make=wish.makes_group)
        if (settings.lite is not None) != wish.of_lite:
            raise LiteGroupError(wish.group, settings.lite and settings.lite.parent)
        count = place.queue_count
        if settings.in_order or count > _TOGETHER:
            self._turn.check_may_wait()
        if settings.from_latest:
            self._begin = self._turn.begun(wish.group, settings.begins_with(wish.topic))
        ids = _queues_of(place, wish.first_queue)
        if wish.attempt:
            self._redeliver(ids)
        if self._taken or settings.is_paused or not wish.max_messages:
            return self._deliveries(place)
        try:
            for first in range(0, count, _TOGETHER):
                self._look(place, ids[first : first + _TOGETHER], settings)
                if self._is_full:
                    break
        except StoreError:
            if not self._taken:
                raise
            # The next call starts at another queue; if it finds no message, it raises the error.
        if self._damage is not None and not self._taken:
            raise self._damage
        return self._deliveries(place)

    def _redeliver(self, ids: Sequence[int]) -> None:
        """Deliver again what an earlier receive with the same attempt id still has in flight."""
        group, topic, attempt = self._wish.group, self._wish.topic, self._wish.attempt
        for first in range(0, len(ids), _TOGETHER):
            some = ids[first : first + _TOGETHER]
            for queue_id, window in zip(some, self._turn.windows(group, topic, some), strict=True):
                for lease in window.leases:
                    is_held = lease.nonce != NOBODY and not lease.is_over(self._now_ms)
                    if lease.attempt == attempt and is_held:
                        self._take_again(queue_id, lease)

    def _take_again(self, queue_id: int, lease: Lease) -> None:
        try:
            for offsets in stretches(list(lease.offsets())):
                self._take(queue_id, lease, self._read_some(queue_id, offsets).messages)
        except DAMAGE as error:  # it was readable at the first delivery
            self._damages.note(self._wish.group, error, is_skipped=False)
            self._damage = self._damage or error

    def _take(self, queue_id: int, lease: Lease, messages: Sequence[tuple[int, bytes]]) -> None:
        """Deliver these messages in the lease."""
        if messages:
            offsets, records = zip(*messages, strict=True)
            self._taken.append(_Taken(queue_id, lease, offsets, records))
            self._count += len(offsets)
            self._bytes += sum(map(len, records))

    def _deliveries(self, place: Place) -> list[Delivery]:
        group, topic = self._wish.group, self._wish.topic
        found: list[Delivery] = []
        for queue_id, lease, offsets, records in self._taken:
            head = Head(topic, place.begins, queue_id, lease.nonce)
            columns = zip(
                pack_handles(group, head, offsets),
                records,
                repeat(topic),
                repeat(queue_id),
                offsets,
                repeat(lease.deliveries),
                repeat(lease.until_ms),
                strict=False,
            )
            found += map(Delivery._make, columns)
        return found

    @property
    def nonces(self) -> list[int]:
        """Nonces of the leases that were delivered."""
        return [taken.lease.nonce for taken in self._taken]

    @property
    def _left(self) -> int:
        return self._wish.max_messages - self._count

    @property
    def _is_full(self) -> bool:
        return self._left <= 0 or self._bytes >= self._wish.max_bytes or self._turn.is_full

    def _look(self, place: Place, ids: Sequence[int], settings: SharedGroup) -> None:
        group, topic = self._wish.group, self._wish.topic
        ends = self._queues.next_offsets([(topic, each) for each in ids])
        windows = self._turn.windows(group, topic, ids)
        for queue_id, window, end in zip(ids, windows, ends, strict=True):
            if self._is_full:
                self._look_at(self._now_ms)
                return
            if window is FRESH and self._begin is not None:
                self._turn.check_may_wait()
                start = latest_start(self._queues, topic, queue_id, place, self._begin)
                window = window.passed(start)
            for _ in range(_MOST_SKIPPED):
                try:
                    self._look_in(queue_id, window, end, settings)
                    break
                except DAMAGE as error:
                    if not self._skip_damaged(queue_id, window, error):
                        break
                (window,) = self._turn.windows(group, topic, [queue_id])
            else:
                self._look_at(self._now_ms)

    def _look_in(self, queue_id: int, window: Window, end: int, settings: SharedGroup) -> None:
        """Deliver from one queue. Raises DAMAGE; earlier deliveries stand."""
        if window.leases:
            self._again(queue_id, window, settings)
            (window,) = self._turn.windows(self._wish.group, self._wish.topic, [queue_id])
        room = settings.most_in_flight - window.in_flight
        if room <= 0 or self._is_full:
            return
        if settings.in_order:
            self._in_order(queue_id, window, end, room, settings)
        elif window.next_offset < end:
            self._new(queue_id, window, end, room, settings)

    def _skip_damaged(self, queue_id: int, window: Window, error: Damage) -> bool:
        """Finish the unreadable message if the receiver asked to skip it; returns whether it did.
        Otherwise the message blocks its queue until it is readable again or is skipped."""
        group, topic = self._wish.group, self._wish.topic
        first, behind = error.queue_offset, error.next_offset
        is_skipped = self._wish.skip_damaged and behind is not None
        self._damages.note(group, error, is_skipped=is_skipped)
        if not is_skipped or behind is None:
            self._damage = self._damage or error
            return False
        undone = {at for lease in window.leases for at in lease.offsets()}
        undone.update(at for at, _ in window.keys)
        done = {first, *(at for at in undone if first < at < behind)}
        for start, mask in runs_of(sorted(done)):
            self._turn.add(Finished(group, topic, queue_id, start, mask, Ended.DAMAGED))
        if behind > window.next_offset:
            self._turn.add(Passed(group, topic, queue_id, behind))
        self._turn.free(group, topic)
        return True

    def _look_at(self, time_ms: int) -> None:
        if self.next_look_ms is None or time_ms < self.next_look_ms:
            self.next_look_ms = time_ms

    # --- what was delivered before ---------------------------------------------------------

    def _again(self, queue_id: int, window: Window, settings: SharedGroup) -> None:
        for lease in window.leases:
            if not lease.is_over(self._now_ms):
                self._look_at(lease.until_ms)
            elif self._is_full:
                self._look_at(self._now_ms)
                return
            elif settings.max_deliveries is None or lease.deliveries < settings.max_deliveries:
                self._hand_over_again(queue_id, lease, settings)
            else:
                self._bury(queue_id, lease)

    def _hand_over_again(self, queue_id: int, lease: Lease, settings: SharedGroup) -> None:
        wanted = list(lease.offsets())[: self._left]
        read = self._read_some(queue_id, wanted)
        if len(wanted) < lease.message_count or read.next_offset < lease.end:
            self._look_at(self._now_ms)  # the rest is too much for this response
        deliveries = min(lease.deliveries + 1, _MOST_DELIVERIES)
        self._hand_over(queue_id, read.messages, deliveries, settings)

    def _bury(self, queue_id: int, lease: Lease) -> None:
        self._turn.check_may_wait()
        group, topic = self._wish.group, self._wish.topic
        for offset in lease.offsets():
            if not self._turn.takes_messages:
                self._look_at(self._now_ms)
                return
            read = self._read_some(queue_id, [offset])
            if read.next_offset <= offset:  # too long for what is left of this response
                self._look_at(self._now_ms)
                return
            for _, record in read.messages:
                bury_record(self._turn, group, topic, queue_id, offset, record, lease)
                self._turn.free(group, topic)  # messages that waited behind it in order

    def _read_some(self, queue_id: int, offsets: Sequence[int]) -> _Read:
        """Read these messages, and finish as gone those that no longer exist."""
        first, behind = offsets[0], offsets[-1] + 1
        read = self._read(queue_id, first, behind - first, tag_filter=None)
        wanted = set(offsets)
        messages = [each for each in read.messages if each[0] in wanted]
        found = {offset for offset, _ in messages}
        gone = [each for each in offsets if each < read.next_offset and each not in found]
        self._turn.gone += len(gone)
        for start, mask in runs_of(gone):
            self._turn.add(
                Finished(self._wish.group, self._wish.topic, queue_id, start, mask, Ended.GONE)
            )
        return _Read(messages, read.next_offset)

    # --- in order --------------------------------------------------------------------------

    def _in_order(
        self, queue_id: int, window: Window, end: int, room: int, settings: SharedGroup
    ) -> None:
        """Deliver scanned messages that are no longer blocked, then scan for new ones."""
        able = ready(window)
        for offsets in stretches(able[: min(self._left, room)]):
            if self._is_full:
                break
            read = self._read_some(queue_id, offsets)
            self._hand_over(queue_id, read.messages, 1, settings)
            room -= len(read.messages)
        if able:
            (window,) = self._turn.windows(self._wish.group, self._wish.topic, [queue_id])
        if self._is_full or len(ready(window)) > 0:
            self._look_at(self._now_ms)
        elif room > 0:
            self._scan(queue_id, window, end, room, settings)

    def _scan(
        self, queue_id: int, window: Window, end: int, room: int, settings: SharedGroup
    ) -> None:
        """Scan up to SCAN_AHEAD from the next offset. Deliver messages that are first of their
        message group, and record the others as seen."""
        group, topic = self._wish.group, self._wish.topic
        end = min(end, window.done_below + SCAN_AHEAD)
        before = {key for _, key in window.keys}
        at, unread = window.next_offset, max(_SCANNED_BYTES, self._wish.max_bytes)
        is_full = False
        while at < end and not is_full:
            if unread <= 0 or self._is_full:
                self._look_at(self._now_ms)
                return
            count = min(end - at, _SCANNED_TOGETHER)
            read = self._read(queue_id, at, count, self._wish.tag_filter, unread)
            if window is not FRESH:
                self._turn.expired += read.expired
            seen: dict[int, int] = {}
            taken: list[tuple[int, bytes]] = []
            size = 0
            for offset, record in read.messages:
                key = message_group(record)
                if key not in before:
                    has_none = not (taken or self._taken)
                    is_full = len(taken) >= min(self._left, room) or not (
                        has_none or size + len(record) <= self._wish.max_bytes - self._bytes
                    )
                    if is_full:
                        break
                    before.add(key)
                    taken.append((offset, record))
                    size += len(record)
                seen[offset] = key
                unread -= len(record)
            behind = max(seen, default=at - 1) + 1
            for first, mask in runs_of(seen):
                keys = [seen[each] for each in Lease(first, mask, 0, 0, 0, 0).offsets()]
                self._turn.add(Seen(group, topic, queue_id, first, mask, keys))
            room -= len(taken)
            self._hand_over(queue_id, taken, 1, settings)
            if not is_full and read.next_offset > behind:
                behind = read.next_offset
                self._turn.add(Passed(group, topic, queue_id, behind))
            if behind == at:
                break
            at = behind
        if is_full and room > 0:
            self._look_at(self._now_ms)

    # --- what was not ----------------------------------------------------------------------

    def _new(
        self, queue_id: int, window: Window, end: int, room: int, settings: SharedGroup
    ) -> None:
        read = self._read(
            queue_id, window.next_offset, min(self._left, room), self._wish.tag_filter
        )
        if window is not FRESH:  # a new group does not count messages that expired before it
            self._turn.expired += read.expired
        self._hand_over(queue_id, read.messages, 1, settings)
        behind = read.messages[-1][0] + 1 if read.messages else window.next_offset
        if read.next_offset > behind:
            passed = Passed(self._wish.group, self._wish.topic, queue_id, read.next_offset)
            self._turn.add(passed)
        if read.next_offset < end and room > len(read.messages):
            self._look_at(self._now_ms)

    def _hand_over(
        self,
        queue_id: int,
        messages: Iterable[tuple[int, bytes]],
        deliveries: int,
        settings: SharedGroup,
    ) -> None:
        records = dict(messages)
        attempt = self._wish.attempt
        lease_ms = self._wish.invisible_ms or settings.invisible_ms
        until_ms = self._now_ms + lease_ms
        for first, mask in runs_of(records):
            nonce = new_nonce()
            lease = Lease(first, mask, deliveries, nonce, until_ms, lease_ms, attempt)
            self._turn.add(
                Leased(self._wish.group, self._wish.topic, queue_id, lease, Held.HANDED_OVER)
            )
            self._take(queue_id, lease, [(at, records[at]) for at in lease.offsets()])

    def _read(
        self,
        queue_id: int,
        start: int,
        count: int,
        tag_filter: Filter | None,
        max_bytes: int | None = None,
    ) -> _Read:
        """Read up to `count` messages from `start` on that fit into `max_bytes` and into the
        response."""
        if not self._turn.may_wait and self._reads.is_cold(self._wish.topic, queue_id, start):
            self._turn.check_may_wait()
        room = self._wish.max_bytes - self._bytes if max_bytes is None else max_bytes
        first, behind = start, start + count
        pulled: Pulled | None = None
        while pulled is None:
            try:
                pulled = self._reads.pull(
                    self._wish.topic,
                    queue_id,
                    start,
                    max_messages=count,
                    max_bytes=max(1, room),
                    tag_filter=tag_filter,
                )
            except OffsetOutOfRangeError as error:
                if error.min_offset <= start:
                    raise
                start = error.min_offset
                if tag_filter is None and start >= behind:
                    return _Read([], start, start - first)
        messages = list(zip(pulled.queue_offsets, pulled.records, strict=True))
        if self._taken and messages and len(messages[0][1]) > room:
            # A pull returns at least one message, whatever its size.
            return _Read([], messages[0][0], start - first)
        return _Read(messages, pulled.next_offset, start - first)
