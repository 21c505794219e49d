"""A log made of dispatch requests only: what derived stores are built from, without records."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.consume_queue import Bounds, CqUnit, DispatchRequest

if TYPE_CHECKING:
    from store.consume_queue import ConsumeQueueStore

Queues = dict[tuple[str, int], tuple[Bounds, list[tuple[int, CqUnit]]]]


class DispatchLog:
    """Hands out requests with dense queue offsets and rising physical offsets."""

    def __init__(self, start: int = 0) -> None:
        self.start = start
        self.end = start
        self.requests: list[DispatchRequest] = []
        self._by_offset: dict[int, DispatchRequest] = {}
        self._next: dict[tuple[str, int], int] = {}

    def append(
        self,
        topic: str,
        queue_id: int = 0,
        *,
        time_ms: int = 1_700_000_000_000,
        size: int = 100,
        keys: tuple[str, ...] = (),
        light: tuple[str, ...] = (),
        tag_code: int = 7,
        queue_offset: int | None = None,
    ) -> DispatchRequest:
        if queue_offset is None:
            queue_offset = self._take(topic, queue_id)
        else:
            self._next[topic, queue_id] = queue_offset + 1
        request = DispatchRequest(
            topic,
            queue_id,
            queue_offset,
            self.end,
            size,
            tag_code,
            time_ms,
            keys,
            tuple((name, self._take(name, 0)) for name in light),
            True,
        )
        self.requests.append(request)
        self._by_offset[self.end] = request
        self.end += size
        return request

    def _take(self, topic: str, queue_id: int) -> int:
        offset = self._next.get((topic, queue_id), 0)
        self._next[topic, queue_id] = offset + 1
        return offset

    def next_offset(self, topic: str, queue_id: int) -> int:
        return self._next.get((topic, queue_id), 0)

    def since(self, physical_offset: int) -> list[DispatchRequest]:
        return [each for each in self.requests if each.physical_offset >= physical_offset]

    def forget_queue(self, topic: str, queue_id: int) -> None:
        """The topic was deleted: offsets of its queue begin at 0 again."""
        self._next.pop((topic, queue_id), None)

    def truncate(self, end: int) -> None:
        """Forget records from `end` on, which is a record's beginning."""
        for each in reversed(self.since(end)):
            del self._by_offset[each.physical_offset]
            self._next[each.topic, each.queue_id] = each.queue_offset
            for name, offset in each.light_queues:
                self._next[name, 0] = offset
        self.requests = [each for each in self.requests if each.physical_offset < end]
        self.end = end

    def drop(self, start: int) -> None:
        """Expire records below `start`."""
        self.start = start
        for each in self.requests:
            if each.physical_offset < start:
                self._by_offset.pop(each.physical_offset, None)
        self.requests = self.since(start)

    # What a store asks for, by physical offset.

    def store_time_ms(self, physical_offset: int) -> int | None:
        request = self._by_offset.get(physical_offset)
        return None if request is None else request.store_time_ms

    def record_at(self, physical_offset: int) -> DispatchRequest | None:
        return self._by_offset.get(physical_offset)


def seen(store: ConsumeQueueStore, log: DispatchLog) -> Queues:
    """All that readers find of the queues of the log."""
    return {
        name: (store.bounds(*name, log.start), store.read_units(*name, 0, 1000))
        for name in expected(log)
    }


def expected(log: DispatchLog) -> Queues:
    """What they are to find."""
    rows: dict[tuple[str, int], list[tuple[int, CqUnit]]] = {}
    for each in log.requests:
        unit = CqUnit(each.physical_offset, each.record_size, each.tag_code, each.store_time_ms)
        rows.setdefault((each.topic, each.queue_id), []).append((each.queue_offset, unit))
        for name, offset in each.light_queues:
            rows.setdefault((name, 0), []).append((offset, unit))
    return {name: (Bounds(found[0][0], found[-1][0] + 1), found) for name, found in rows.items()}
