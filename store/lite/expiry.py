"""Deletes idle lite topics. Scans all of them, a bounded number of rows at a time.

A lite topic is deleted when its last message is older than its parent's expiry, or has left the
log, and no client is subscribed to it. After a start clients have as long to subscribe again as
they may be silent. If its parent was deleted, it is deleted as well, since no client can subscribe
to it. Like every deletion it is a record of the log.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

from store.errors import CorruptRecordError, MessageNotFoundError
from store.format import unpack_record
from store.groups import CARRIER
from store.lite.listing import last_stored_ms
from store.lite.names import LITE_PREFIX, parts_of, prefix_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.lite.subscriptions import Subscriptions
    from store.log import CommitLog, StoreTimes
    from store.puts import TopicChanges
    from store.state import Tables
    from store.topics import End

#: Number of lite topics that one run of the job checks.
SCANNED = 10_000
#: Number that are looked up and deleted together; their rows are in memory.
_TOGETHER = 1000


class LiteExpiry:
    """Finds and deletes idle lite topics. Thread: one at a time. Memory: a position and one page,
    whatever the number of lite topics."""

    def __init__(
        self,
        tables: Tables,
        queues: ConsumeQueueStore,
        log: CommitLog,
        times: StoreTimes,
        subscriptions: Subscriptions,
        changes: TopicChanges,
    ) -> None:
        """`tables`: at the dispatch point."""
        # Constant after construction.
        self._tables = tables
        self._queues = queues
        self._log = log
        self._times = times
        self._subscriptions = subscriptions
        self._changes = changes
        #: Number of lite topics deleted since the store was opened.
        self.expired = 0
        # Where the scan continues: the parent, and the last of its light queues that was checked.
        self._parent = ""
        self._after: str | None = None
        # Those of deleted parents: whether to look for them, and where that continues. Nothing is
        # written for a lite topic, so only a scan of all names finds what an earlier process left.
        self._parents_ended = True
        self._without_after: str | None = None

    def parent_may_have_ended(self) -> None:
        """A topic was deleted. Any thread."""
        self._parents_ended = True

    def look(self, most: int = SCANNED, *, ends_idle: bool = True) -> int:
        """Check the next `most` lite topics. Returns how many were deleted. After the last parent
        the scan starts again. `ends_idle`: otherwise only those of deleted parents end. Raises what
        an append raises."""
        ended = self._end_without_parents(most)
        while most > 0 and ends_idle:
            if self._after is None:
                parents = self._tables.list_lite_parents(self._parent, 1)
                if not parents:
                    self._parent = ""
                    break
                self._parent, self._after = parents[0][0], ""
            expiry_ms = self._tables.lite_expiry_ms(self._parent)
            if not expiry_ms:  # lite topics never expire, or the parent was deleted
                self._after = None
                most -= 1
                continue
            count = min(most, _TOGETHER)
            queues = self._queues.list_names(prefix_of(self._parent), self._after or None, count)
            ended += self._end(queues, self._times.now_ms() - expiry_ms)
            self._after = queues[-1] if len(queues) == count else None
            most -= len(queues) + 1
        self.expired += ended
        return ended

    def _end_without_parents(self, most: int) -> int:
        """Check the next `most` names, if a topic was deleted since all were checked."""
        ended = 0
        if self._without_after is None and self._parents_ended:
            self._parents_ended, self._without_after = False, ""
        while self._without_after is not None and most > 0:
            count = min(most, _TOGETHER)
            queues = self._queues.list_names(LITE_PREFIX, self._without_after or None, count)
            ended += self._end_former(queues)
            self._without_after = queues[-1] if len(queues) == count else None
            most -= count
        return ended

    def end_former(self, parent: str) -> None:
        """Delete all lite topics of deleted parents of this name. Any thread. Raises what an append
        raises."""
        after: str | None = None
        while queues := self._queues.list_names(prefix_of(parent), after, _TOGETHER):
            self._end_former(queues)
            after = queues[-1]

    def _end_former(self, queues: Sequence[str]) -> int:
        """Delete those of these light queues whose parent was deleted. Returns how many."""
        begins: dict[str, int | None] = {}  # of a parent: physical offset; None: it is no parent
        others: dict[str, str] = {}  # light queue to parent
        last_ends = self._changes.last_ends(queues)
        lasts = self._queues.last_of([(queue, 0) for queue in queues])
        for queue, last in zip(queues, lasts, strict=True):
            parts = parts_of(queue)
            if parts is None:
                continue
            parent = parts[0]
            if parent not in begins:
                topic = self._tables.topic(parent)
                is_parent = self._tables.lite_expiry_ms(parent) is not None
                begins[parent] = topic.created_offset if topic and is_parent else None
            begin = begins[parent]
            if begin is None or (last is not None and last[0] < begin):
                others[queue] = parent
        ends = self._queues.next_offsets([(queue, 0) for queue in others]) if others else ()
        former = {
            queue: (end, last_ends[queue])
            for (queue, parent), end in zip(others.items(), ends, strict=True)
            if end and self._was_of(parent, queue, end)
        }
        return self._changes.delete_idle(former) if former else 0

    def _was_of(self, parent: str, queue: str, end: int) -> bool:
        """Whether its last message was one of a parent that was deleted since, or was redriven."""
        topic = self._tables.topic(parent)
        units = self._queues.read_units(queue, 0, end - 1, 1)
        if not units or units[0][1].physical_offset < self._log.start_offset:
            return topic is None  # the message has left the log
        _, place = units[0]
        if topic is not None and place.physical_offset >= topic.created_offset:
            return False
        with suppress(CorruptRecordError, MessageNotFoundError):
            record = self._log.read(place.physical_offset, place.record_size)
            return unpack_record(record, verify=False).topic in (parent, CARRIER)
        return False

    def _end(self, queues: Sequence[str], before_ms: int) -> int:
        """Delete the light queues that have been idle since before `before_ms`."""
        idle: dict[str, tuple[int, End]] = {}
        last_ends = self._changes.last_ends(queues)
        ends = self._queues.next_offsets([(queue, 0) for queue in queues])
        for queue, end in zip(queues, ends, strict=True):
            parts = parts_of(queue)
            if parts is None or not end or self._subscriptions.subscribed_to(*parts):
                continue
            if self._is_idle(queue, end, before_ms):
                idle[queue] = end, last_ends[queue]
        return self._changes.delete_idle(idle) if idle else 0

    def _is_idle(self, queue: str, end: int, before_ms: int) -> bool:
        last_ms = last_stored_ms(self._queues, self._times, queue, end)
        if last_ms is not None:
            return last_ms < before_ms
        low, high = self._queues.bounds(queue, 0, self._log.start_offset)
        return low == high  # its messages have left the log
