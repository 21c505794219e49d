"""One receive: first what is to be delivered again, then what was never delivered."""

from __future__ import annotations

from itertools import repeat
from typing import TYPE_CHECKING, NamedTuple

from store.errors import OffsetOutOfRangeError, StoreError
from store.groups.damage import DAMAGE
from store.groups.dead_letters import dead_letter
from store.groups.deliveries import Delivery
from store.groups.handles import Head, pack_handles
from store.groups.positions import latest_start
from store.state import FRESH, Ended, Finished, Held, Lease, Leased, Passed, runs_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.groups.damage import Damage, Damages
    from store.groups.positions import Reads
    from store.groups.turn import Begin, Place, Turn
    from store.metadata import SharedGroup
    from store.reads import Filter, Pulled
    from store.state import Window

#: Queues that are looked at together.
_TOGETHER = 64
#: Messages that cannot be read, of one queue, that one call skips.
_MOST_SKIPPED = 64
#: A lease counts no further.
_MOST_DELIVERIES = 0xFFFF


class Wish(NamedTuple):
    """What one call asks for; all of it is checked."""

    group: str
    topic: str  # or a light queue
    max_messages: int
    max_bytes: int
    invisible_ms: int | None  # None: as the group says
    tag_filter: Filter | None
    makes_group: bool  # where there is none
    skip_damaged: bool  # messages that cannot be read are done
    first_queue: int  # taken modulo the number of queues


class _Read(NamedTuple):
    """Messages of one queue."""

    messages: list[tuple[int, bytes]]  # queue offset and record, rising
    next_offset: int  # what lies below and is not among them is not wanted, or not there


class _Taken(NamedTuple):
    """Messages of a lease that are handed over."""

    queue_id: int
    lease: Lease
    queue_offsets: Sequence[int]
    records: Sequence[bytes]  # of each


class Receiving:
    """One call in one turn."""

    def __init__(
        self,
        turn: Turn,
        wish: Wish,
        now_ms: int,
        queues: ConsumeQueueStore,
        reads: Reads,
        damages: Damages,
        new_nonce: Callable[[], int],
    ) -> None:
        self._turn = turn
        self._wish = wish
        self._now_ms = now_ms
        self._queues = queues
        self._reads = reads
        self._damages = damages
        self._damage: Damage | None = None  # the first that holds a queue up
        self._new_nonce = new_nonce
        self._begin: Begin | None = None  # None: it begins with the oldest message
        self._taken: list[_Taken] = []
        self._count = 0
        self._bytes = 0
        #: When it is worth to look again, by the store's time; None: when a message comes.
        self.next_look_ms: int | None = None

    def run(self) -> list[Delivery]:
        """What is handed over. Raises UnknownGroupError, GroupKindError, UnknownTopicError, and
        what reading a message raises, when nothing was handed over before."""
        wish = self._wish
        place = self._turn.place(wish.topic)
        settings = self._turn.shared(wish.group, make=wish.makes_group)
        if settings.from_latest:
            self._begin = self._turn.begun(wish.group, wish.topic)
        if settings.is_paused:
            return []
        count = place.queue_count
        ids = [(wish.first_queue + at) % count for at in range(count)]
        try:
            for first in range(0, count, _TOGETHER):
                self._look(place, ids[first : first + _TOGETHER], settings)
                if self._is_full:
                    break
        except StoreError:
            if not self._taken:
                raise
            # The next call, which begins elsewhere, may have more luck; or it is told.
        if self._damage is not None and not self._taken:
            raise self._damage  # when the other queues have nothing
        return self._deliveries(place)

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
                start = latest_start(self._queues, topic, queue_id, place, self._begin)
                window = window.passed(start)
            for _ in range(_MOST_SKIPPED):
                try:
                    self._look_in(queue_id, window, end, settings)
                    break
                except DAMAGE as error:
                    if not self._goes_on_behind(queue_id, window, error):
                        break
                (window,) = self._turn.windows(group, topic, [queue_id])
            else:
                self._look_at(self._now_ms)

    def _look_in(self, queue_id: int, window: Window, end: int, settings: SharedGroup) -> None:
        """Raises DAMAGE: what was handed over before is."""
        if window.leases:
            self._again(queue_id, window, settings)
            (window,) = self._turn.windows(self._wish.group, self._wish.topic, [queue_id])
        room = settings.most_in_flight - window.in_flight
        if window.next_offset < end and room > 0 and not self._is_full:
            self._new(queue_id, window, end, room, settings)

    def _goes_on_behind(self, queue_id: int, window: Window, error: Damage) -> bool:
        """Whether the group is done with what cannot be read. It holds the queue up otherwise:
        until it is read, as when its queue is rebuilt, or a receiver asks to skip it."""
        group, topic = self._wish.group, self._wish.topic
        first, behind = error.queue_offset, error.next_offset
        is_skipped = self._wish.skip_damaged and behind is not None
        self._damages.met(group, error, is_skipped=is_skipped)
        if not is_skipped or behind is None:
            self._damage = self._damage or error
            return False
        held = [at for lease in window.leases for at in lease.offsets() if first < at < behind]
        for start, mask in runs_of([first, *sorted(held)]):
            self._turn.add(Finished(group, topic, queue_id, start, mask, Ended.DAMAGED))
        if behind > window.next_offset:
            self._turn.add(Passed(group, topic, queue_id, behind))
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
        deliveries = min(lease.deliveries + 1, _MOST_DELIVERIES)
        self._hand_over(queue_id, read.messages, deliveries, settings)

    def _bury(self, queue_id: int, lease: Lease) -> None:
        group, topic = self._wish.group, self._wish.topic
        for offset in lease.offsets():
            if not self._turn.takes_messages:
                self._look_at(self._now_ms)
                return
            for _, record in self._read_some(queue_id, [offset]).messages:
                letter = dead_letter(group, record, topic, queue_id, offset, lease)
                ended = Finished(group, topic, queue_id, offset, 1, Ended.DEAD)
                self._turn.append(ended, letter)

    def _read_some(self, queue_id: int, offsets: Sequence[int]) -> _Read:
        """Those of the messages that there are; the group is done with the others."""
        first, behind = offsets[0], offsets[-1] + 1
        read = self._read(queue_id, first, behind - first, tag_filter=None)
        wanted = set(offsets)
        messages = [each for each in read.messages if each[0] in wanted]
        found = {offset for offset, _ in messages}
        gone = [each for each in offsets if each < read.next_offset and each not in found]
        for start, mask in runs_of(gone):
            self._turn.add(
                Finished(self._wish.group, self._wish.topic, queue_id, start, mask, Ended.GONE)
            )
        return _Read(messages, read.next_offset)

    # --- what was not ----------------------------------------------------------------------

    def _new(
        self, queue_id: int, window: Window, end: int, room: int, settings: SharedGroup
    ) -> None:
        read = self._read(
            queue_id, window.next_offset, min(self._left, room), self._wish.tag_filter
        )
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
        lease_ms = self._wish.invisible_ms or settings.invisible_ms
        until_ms = self._now_ms + lease_ms
        for first, mask in runs_of(records):
            lease = Lease(first, mask, deliveries, self._new_nonce(), until_ms, lease_ms)
            self._turn.add(
                Leased(self._wish.group, self._wish.topic, queue_id, lease, Held.HANDED_OVER)
            )
            offsets = list(lease.offsets())
            self._taken.append(_Taken(queue_id, lease, offsets, [records[at] for at in offsets]))
            self._count += len(offsets)
        self._bytes += sum(map(len, records.values()))

    def _read(self, queue_id: int, start: int, count: int, tag_filter: Filter | None) -> _Read:
        """Messages from `start` on, as many as that, and as have room."""
        room = self._wish.max_bytes - self._bytes
        behind = start + count
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
                # Its topic does not keep them any longer.
                start = error.min_offset
                if tag_filter is None and start >= behind:
                    return _Read([], start)
        messages = list(zip(pulled.queue_offsets, pulled.records, strict=True))
        if self._taken and messages and len(messages[0][1]) > room:
            return _Read([], messages[0][0])  # a pull gives one message whatever its size
        return _Read(messages, pulled.next_offset)
