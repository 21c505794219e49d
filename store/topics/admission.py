"""Which parts of a record are live: one rule for everything that is derived from the log.

A record only belongs to its topic if it is at or above the offset at which the topic begins:
records of an earlier topic of the same name are dead. Light queues have no such row; in one of
these, a record is dead below the offset of the queue's deletion. A message stays in its light
queues after its own topic is deleted, since they would have gaps otherwise. It then counts as a
message of the first of them that is also in the others. A batch is found by its number as long as
its records are in the log.

As a value, with a mapping of topics, it can be pickled for other processes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.format import is_mark
from store.light_queue import is_light
from store.state import STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import DispatchRequest
    from store.state import Tables


class TopicStarts(Protocol):
    """Any mapping can be used."""

    def get(self, name: str, /) -> int | None:
        """Physical offset at which the topic begins; None if there is no such topic."""
        ...


class DeadBelow(Protocol):
    """Any mapping can be used."""

    def get(self, name: str, default: int, /) -> int:
        """Physical offset below which the light queue's records are dead."""
        ...


class Admission(NamedTuple):
    """Decides which topics and light queues a record belongs to."""

    topics: TopicStarts
    dead_light: DeadBelow

    def is_live(self, name: str, physical_offset: int) -> bool:
        """Whether a record at that physical offset belongs to the topic or light queue, if it names
        it."""
        if is_light(name):
            return physical_offset >= self.dead_light.get(name, 0)
        start = self.topics.get(name)
        return start is not None and physical_offset >= start

    def admit(self, request: DispatchRequest) -> DispatchRequest | None:
        """The part of the record to dispatch; None if there is nothing."""
        light = request.light_queues
        if light:
            below, at = self.dead_light.get, request.physical_offset
            live = tuple(each for each in light if at >= below(each[0], 0))
            if len(live) < len(light):
                request = request._replace(light_queues=live)
        start = self.topics.get(request.topic)
        if start is not None and request.physical_offset >= start:
            return request
        return _without_topic(request)

    def admit_all(self, run: Sequence[DispatchRequest]) -> list[DispatchRequest]:
        """Like `admit`, for records in log order: a topic that is live stays live."""
        admitted: list[DispatchRequest] = []
        add = admitted.append
        live: set[str] = set()
        for request in run:
            if request[0] in live and not request[8]:
                add(request)
            elif (found := self.admit(request)) is not None:
                if found[0] is request[0]:  # otherwise only its light queues live
                    live.add(found[0])
                add(found)
        return admitted


def starts_of(tables: Tables) -> dict[str, int]:
    """All topics, and the physical offset at which each begins."""
    starts = {topic.name: topic.created_offset for topic in tables.every_topic()}
    return starts | {STATE_TOPIC: 0}


def _without_topic(request: DispatchRequest) -> DispatchRequest | None:
    """The rest of a record whose topic is deleted; `light_queues` are the live ones."""
    marks = tuple(key for key in request.keys if is_mark(key))
    if request.light_queues:
        name, offset = request.light_queues[0]
        return request._replace(
            topic=name,
            queue_id=0,
            queue_offset=offset,
            keys=marks,
            light_queues=request.light_queues[1:],
        )
    if marks:
        return request._replace(topic="", keys=marks, tag_code=0, in_queue=False)
    return None
