"""Committed offsets after a power loss: the log may have lost what they stand behind."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from store.consume_queue import ConsumeQueueStore
    from store.metadata import Metadata

logger = logging.getLogger(__name__)

_PAGE = 1000


def cut_committed(metadata: Metadata, queues: ConsumeQueueStore) -> int:
    """No committed offset is above its queue's max; returns how many were. Durable on return.

    Commits are synced, messages in ASYNC mode are not. Left as it was, such an offset would hide
    the messages that take the lost ones' places. On opening after a crash, once the queues know all
    of the log: one look-up for each committed offset.
    """
    cut = 0
    group_after: str | None = None
    while groups := metadata.list_groups(group_after, _PAGE):
        group_after = groups[-1]
        for group in groups:
            after: tuple[str, int] | None = None
            while rows := metadata.list_committed(group, after, _PAGE):
                after = rows[-1][:2]
                ends = queues.next_offsets([row[:2] for row in rows])
                beyond = [
                    (topic, queue_id, end)
                    for (topic, queue_id, offset), end in zip(rows, ends, strict=True)
                    if offset > end
                ]
                metadata.commit_offsets(group, beyond)
                cut += len(beyond)
                for topic, queue_id, end in beyond:
                    logger.warning(
                        "group %r was beyond the end of queue %d of %r: it goes on at %d",
                        *(group, queue_id, topic, end),
                    )
    return cut
