"""Topics whose records survived a loss of power, but not their rows.

A topic that comes into being with its first message is durable before that message is acknowledged:
a flush of the log syncs the metadata first. But the kernel may write pages of the log whenever it
likes, so a crash can leave the record and lose the row. Without it the message would stand in its
light queues alone, and a producer that sends it again would put it there twice.

Which records may be of such a topic: those at or above the flushed offset of the checkpoint. A
deletion is durable before it shows, and its mark is dropped only behind a checkpoint that is above
all records it killed. So a record up there without a row and without a mark above it is of a topic
that nobody deleted.

The replay looks at every record anyway, so they are looked for there; only what is dispatched
already is walked for it.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.format import FastParser
from store.log import Run, walk

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest
    from store.log import SegmentSet
    from store.topics.table import Topics

logger = logging.getLogger(__name__)


class LostTopics:
    """Creates them again, on opening after a crash, when the log is cut.

    Memory: a name for each topic of what is replayed. Thread: that which opens.
    """

    def __init__(self, segments: SegmentSet, flushed_offset: int, topics: Topics) -> None:
        """`flushed_offset` is the checkpoint's."""
        self._segments = segments
        self._start = max(flushed_offset, segments.first_offset)
        self._topics = topics
        self._seen: set[str] = set()
        self._is_done = False

    def look_through(self, end: int) -> None:
        """Look at the records below `end`, at least."""
        if self._start >= end:
            return
        for step in walk(self._segments, self._start, parser=FastParser()):
            if isinstance(step, Run):
                self.look(step.requests)
            if self._is_done or step.next_offset >= end:
                return

    def look(self, requests: Sequence[DispatchRequest]) -> None:
        """At these records, in log order. What they need exists on return, durably."""
        if self._is_done or not requests:
            return
        start = self._start
        if requests[0].physical_offset >= start:
            names = {request.topic for request in requests}
        else:
            names = {request.topic for request in requests if request.physical_offset >= start}
        starts = self._topics.admission.topics
        for name in names - self._seen:
            if starts.get(name) is None:
                # Deleted, or lost. Which queues it had, only all of its records tell.
                self._is_done = True
                self._create_again()
                return
        self._seen |= names

    def _create_again(self) -> None:
        """Topics of records at or above the start exist, unless they were deleted."""
        # Topic -> physical offset of its first record, and the highest queue id.
        found: dict[str, tuple[int, int]] = {}
        dead = self._topics.deletions.dead
        # Damage and poison are reported when the log is dispatched.
        for step in walk(self._segments, self._start, parser=FastParser()):
            for request in step.requests if isinstance(step, Run) else ():
                name, queue_id, at = request.topic, request.queue_id, request.physical_offset
                if at < dead.get(name):
                    continue
                first, highest = found.get(name, (at, 0))
                found[name] = first, max(highest, queue_id)
        for topic in self._topics.create_again(found):
            logger.warning(
                "topic %r is created again: the crash took its row, but left its first message "
                "at %d",
                topic.name,
                topic.created_offset,
            )
