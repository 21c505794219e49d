"""Groups dispatch requests by queue, so that there is one write for each queue."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.consume_queue import DispatchRequest

#: Queue offsets, and the units' fields in one flat list (physical offset, size, tag code, ...).
Group = tuple[list[int], list[int]]


class DispatchGroups(NamedTuple):
    """What requests add to queues and to the key index."""

    queues: dict[tuple[str, int], Group]
    records: list[tuple[int, int, str, Sequence[str]]]  # as IndexFileSet.insert takes them


def group_requests(requests: Sequence[DispatchRequest], dead: Mapping[str, int]) -> DispatchGroups:
    """The requests by queue, in order. A light queue is queue 0 of its name.

    `dead`: physical offset below which a deleted topic's records are dead; they are skipped, so
    that a replay cannot bring them back.
    """
    queues: dict[tuple[str, int], Group] = {}
    records: list[tuple[int, int, str, Sequence[str]]] = []
    for (
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        record_size,
        tag_code,
        store_time_ms,
        keys,
        light_queues,
        in_queue,
    ) in requests:
        alive = not dead or physical_offset >= dead.get(topic, 0)
        if keys and alive:
            records.append((physical_offset, store_time_ms, topic, keys))
        if not in_queue:
            continue
        unit = (physical_offset, record_size, tag_code)
        if alive:
            group = queues.get((topic, queue_id))
            if group is None:
                group = queues[topic, queue_id] = ([], [])
            group[0].append(queue_offset)
            group[1].extend(unit)
        for name, offset in light_queues:
            if dead and physical_offset < dead.get(name, 0):
                continue
            group = queues.get((name, 0))
            if group is None:
                group = queues[name, 0] = ([], [])
            group[0].append(offset)
            group[1].extend(unit)
    return DispatchGroups(queues, records)
