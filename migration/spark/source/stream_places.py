"""The position of a stream, whose size does not depend on the number of idle queues.

It is `{"log": P, "queues": {topic: {queue id: next offset}}, "given_at": {topic: number}}`. A queue
that is not listed is at its first message at or after physical offset P. Listed are queues with
recent messages, and queues that were not read to their end. `given_at` tells the server which topic
of the name the offsets belong to, so that one that was deleted and created again is noticed.

Two snapshots of the service make this correct. Each reads the dispatched offset, then the bounds of
the queues, then the end of the log. P is the log's end in the older snapshot; the newer one was
taken after everything below P was dispatched. So a queue with the same max in both has no message
from that max on below P, and all its messages below that max are below P.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from kvcq_client import Position
from migration.spark.source.positions import by_queue
from migration.spark.source.service import QueueRange, pull_ranges

if TYPE_CHECKING:
    from collections.abc import Mapping

    from kvcq_client import Bounds, Client, Queue
    from migration.spark.source.service import Subscription

    Document = dict[str, Any]

#: Positions that Spark may pass again: start and end of a batch, and the next end.
_KEPT = 4


class Look(NamedTuple):
    """A snapshot of the service."""

    dispatched: int  # read before `bounds`, which have all messages below it
    bounds: dict[Queue, Bounds]
    log_end: int  # read after `bounds`, whose messages are all below it


class StreamPlaces:
    """What one query knows about its queues, in the memory of the process that plans it."""

    def __init__(self, subscription: Subscription, idle_s: float) -> None:
        self._subscription = subscription
        self._idle_s = idle_s
        self._now: Look | None = None
        self._base = Look(0, {}, 0)
        self._next_base: Look | None = None
        self._known: list[tuple[Document, dict[Queue, int]]] = []

    def look(self, client: Client) -> Look:
        """Take a snapshot. One short call if nothing was dispatched since the last one."""
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
        """These positions as a stream position. Call after `look`."""
        queues: dict[str, dict[str, int]] = {}
        given_at: dict[str, int] = {}
        for queue, position in sorted(positions.items()):
            if not self._stands_still(queue, position):
                queues.setdefault(queue.topic, {})[str(queue.queue_id)] = int(position)
                if isinstance(position, Position):
                    # The oldest of them tells for all: a later topic began after it.
                    oldest = given_at.get(queue.topic, position.given_at)
                    given_at[queue.topic] = min(oldest, position.given_at)
        document = {"log": self._base.log_end, "queues": queues, "given_at": given_at}
        self._known = [*self._known[1 - _KEPT :], (document, positions)]
        return document

    def _stands_still(self, queue: Queue, position: int) -> bool:
        assert self._now is not None
        now, before = self._now.bounds.get(queue), self._base.bounds.get(queue)
        was = 0 if before is None else before.max_offset
        return now is not None and was == position == now.max_offset

    def positions(self, client: Client, document: Document) -> dict[Queue, int]:
        """Inverse of `document`. A position from an earlier process is applied to the current
        queues."""
        for known, positions in self._known:
            if known == document:
                return positions
        given_at = document.get("given_at", {})  # absent from those of earlier programs
        named: dict[Queue, int] = {
            queue: Position(offset, given_at[queue.topic]) if queue.topic in given_at else offset
            for queue, offset in by_queue(document["queues"]).items()
        }
        bounds = self.look(client).bounds
        others = {queue: one for queue, one in bounds.items() if queue not in named}
        found = named | first_behind(client, others, document["log"], self._idle_s)
        self._known = [*self._known[1 - _KEPT :], (document, found)]
        return found


#: The position of a stream that has read nothing.
EARLIEST: Document = {"log": 0, "queues": {}, "given_at": {}}


def first_behind(
    client: Client, bounds: Mapping[Queue, Bounds], place: int, idle_s: float
) -> dict[Queue, int]:
    """For each queue the offset of its first message at or after `place` in the log, or its max.

    Reads the last message of each queue, and a few more of queues that have such messages.
    """
    if not place:
        return {queue: one.min_offset for queue, one in bounds.items()}
    spans = {queue: (low, high) for queue, (low, high) in bounds.items()}
    probes = {queue: high - 1 for queue, (low, high) in spans.items() if low < high}
    while probes:
        ranges = [QueueRange(queue, offset, offset + 1) for queue, offset in probes.items()]
        lower = {queue: spans[queue][0] for queue in probes}
        # A message that no longer exists counts as before `place`.
        spans |= {queue: (offset + 1, spans[queue][1]) for queue, offset in probes.items()}
        for some in pull_ranges(client, ranges, idle_s=idle_s, fail_on_data_loss=True):
            # One message of each queue, so each run has one record.
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
