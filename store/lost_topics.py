"""Topics whose records survived a loss of power, but not their rows.

A topic that comes into being with its first message is durable before that message is acknowledged:
a flush of the log syncs the metadata first. But the kernel may write pages of the log whenever it
likes, so a crash can leave the record and lose the row. Without it the message would stand in its
light queues alone, and a producer that sends it again would put it there twice.

Which records may be of such a topic: those at or above the flushed offset of the checkpoint. A
deletion is durable before it shows, and its mark is dropped only behind a checkpoint that is above
all records it killed. So a record up there without a row and without a mark above it is of a topic
that nobody deleted.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from store.log_walk import Run, walk
from store.sealed_run import SealedParser

if TYPE_CHECKING:
    from store.metadata import TopicConfig
    from store.segment_set import SegmentSet
    from store.topics import Topics

logger = logging.getLogger(__name__)


def create_again(segments: SegmentSet, flushed_offset: int, topics: Topics) -> list[TopicConfig]:
    """Topics of records at or above `flushed_offset` exist, unless they were deleted.

    On opening after a crash, before anything is dispatched: `flushed_offset` is the checkpoint's,
    and the log is cut. Durable on return.
    """
    # Topic -> physical offset of its first record, and the highest queue id.
    found: dict[str, tuple[int, int]] = {}
    dead_below = topics.dead_below()
    start = max(flushed_offset, segments.first_offset)
    # Damage and poison are reported when the log is dispatched.
    for step in walk(segments, start, parser=SealedParser()):
        for request in step.requests if isinstance(step, Run) else ():
            name, queue_id, at = request.topic, request.queue_id, request.physical_offset
            if at < dead_below.get(name, 0):
                continue
            first, highest = found.get(name, (at, 0))
            found[name] = first, max(highest, queue_id)
    created = topics.create_again(found)
    for topic in created:
        logger.warning(
            "topic %r is created again: the crash took its row, but left its first message at %d",
            topic.name,
            topic.created_offset,
        )
    return created
