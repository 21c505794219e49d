"""The position of a stream, in a few bytes however many queues are idle.

The offset of a stream is `{"log": P, "queues": {topic: {queue id: next offset}}}`. A queue that is
not listed is at its first message at or after the physical offset P. Listed are queues with recent
messages, and those that were not read to their end.

This is correct because two snapshots of the service are kept. Each reads how far the queues are
dispatched, then the bounds of the queues, then where the log ends. P is the end of the log in the
older snapshot; the newer one began after everything below P was dispatched. So a queue with the
same max in both has no message between that max and P, and every message below that max is below P.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from migration.spark.source.positions import by_queue
from migration.spark.source.service import QueueRange, pull_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_client import Bounds, Client, Queue
    from migration.spark.source.service import Subscription

    Document = dict[str, Any]

#: Documents that Spark may come back with: start and end of a batch, and the next end.
_KEPT = 4


class Look(NamedTuple):
    """A snapshot of the service."""

    dispatched: int  # asked before: each message below that is in `bounds`
    bounds: dict[Queue, Bounds]
    log_end: int  # asked after: each message in `bounds` is below that


class StreamPlaces:
    """What one query knows of its queues. Lives as long as the process that plans the query."""

    def __init__(self, subscription: Subscription, idle_s: float) -> None:
        self._subscription = subscription
        self._idle_s = idle_s
        self._now: Look | None = None
        self._base = Look(0, {}, 0)
        self._next_base: Look | None = None
        self._known: list[tuple[Document, dict[Queue, int]]] = []

    def look(self, client: Client) -> Look:
        """A snapshot of the service. One short call if nothing was dispatched since the last."""
        dispatched = int(client.statistics()["store.log_dispatched_offset"])
        if self._next_base is not None and self._next_base.log_end <= dispatched:
            self._base, self._next_base = self._next_base, None
        if self._now is None or self._now.dispatched != dispatched:
            queues = self._subscription.queues(client)
            bounds = client.offsets(queues) if queues else {}
            log_end = int(client.statistics()["store.log_appended_offset"])
            self._now = Look(dispatched, bounds, log_end)
        if self._next_base is None:
            self._next_base = self._now
        return self._now

    def document(self, positions: dict[Queue, int]) -> Document:
        """These positions as an offset of the stream. Call after `look`."""
        queues: dict[str, dict[str, int]] = {}
        for queue, position in sorted(positions.items()):
            if not self._stands_still(queue, position):
                queues.setdefault(queue.topic, {})[str(queue.queue_id)] = position
        document = {"log": self._base.log_end, "queues": queues}
        self._known = [*self._known[1 - _KEPT :], (document, positions)]
        return document

    def _stands_still(self, queue: Queue, position: int) -> bool:
        assert self._now is not None
        now, before = self._now.bounds.get(queue), self._base.bounds.get(queue)
        was = 0 if before is None else before.max_offset
        return now is not None and was == position == now.max_offset

    def positions(self, client: Client, document: Document) -> dict[Queue, int]:
        """Inverse of `document`; an offset of an earlier process is applied to the current
        queues."""
        for known, positions in self._known:
            if known == document:
                return positions
        named: dict[Queue, int] = by_queue(document["queues"])
        bounds = self.look(client).bounds
        others = {queue: one for queue, one in bounds.items() if queue not in named}
        found = named | first_behind(client, others, document["log"], self._idle_s)
        self._known = [*self._known[1 - _KEPT :], (document, found)]
        return found


#: The position of a stream that has read nothing.
EARLIEST: Document = {"log": 0, "queues": {}}


def first_behind(
    client: Client, bounds: Mapping[Queue, Bounds], place: int, idle_s: float
) -> dict[Queue, int]:
    """For each queue the offset of its first message at or after `place` in the log, or its max.

    Reads the last message of each queue, and a few more of those that have such messages.
    """
    if not place:
        return {queue: one.min_offset for queue, one in bounds.items()}
    spans = {queue: (low, high) for queue, (low, high) in bounds.items()}
    probes = {queue: high - 1 for queue, (low, high) in spans.items() if low < high}
    while probes:
        ranges = [QueueRange(queue, offset, offset + 1) for queue, offset in probes.items()]
        lower = {queue: spans[queue][0] for queue in probes}
        # A message that is not there any more counts as one before `place`.
        spans |= {queue: (offset + 1, spans[queue][1]) for queue, offset in probes.items()}
        for some in pull_ranges(client, ranges, idle_s=idle_s, fail_on_data_loss=True):
            # One message of each queue, so there are as many runs as records.
            places = some.block.physical_offset.tolist()
            for (queue, _), offset, found in zip(some.runs, some.offsets, places, strict=True):
                if found >= place:
                    spans[queue] = (lower[queue], offset)
        probes = {
            queue: (low + high) // 2
            for queue in probes
            for low, high in (spans[queue],)
            if low < high
        }
    return {queue: low for queue, (low, _) in spans.items()}
