"""Runs of queue offsets along a log: where they fall back, a queue was begun anew.

In a log whose queues each have one life, a queue's offsets only rise. A topic that was deleted and
recreated counts from 0 again, and the records of its earlier life are in the log still. So each
queue is a chain of runs in which offsets rise, and the last one is its youngest life. Which of them
lives is not decided here but in generations.py.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.consume_queue import DispatchRequest

    QueueKey = tuple[str, int]


class Run:
    """Records of one queue whose offsets rise, from one place in the log to another."""

    __slots__ = ("begin", "count", "end", "first_offset", "last_ms", "next_offset")

    def __init__(self, first_offset: int, begin: int) -> None:
        self.first_offset = first_offset
        self.next_offset = first_offset  # behind the last queue offset
        self.begin = begin  # physical offset of the first record
        self.end = begin  # physical offset behind the last record
        self.count = 0
        self.last_ms = 0  # store time of the last record

    def __repr__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} at {self.begin}..{self.end}"


class QueueRuns:
    """The runs of every queue and light queue. Memory: one entry for each run."""

    def __init__(self) -> None:
        self._last: dict[QueueKey, Run] = {}
        self._earlier: dict[QueueKey, list[Run]] = {}  # few queues have any

    def __len__(self) -> int:
        return len(self._last)

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._last)

    def last(self, key: QueueKey) -> Run:
        """The youngest run of a queue that has one."""
        return self._last[key]

    def earlier(self, key: QueueKey) -> Sequence[Run]:
        """The runs before it, oldest first."""
        return self._earlier.get(key, ())

    def add(self, requests: Sequence[DispatchRequest]) -> None:
        """These records come next in the log."""
        last = self._last
        for (
            topic,
            queue_id,
            offset,
            physical_offset,
            record_size,
            _,
            store_time_ms,
            _,
            light_queues,
            in_queue,
        ) in requests:
            if not in_queue:
                continue
            key = (topic, queue_id)
            run = last.get(key)
            if run is None or offset < run.next_offset:
                run = self._begin(key, offset, physical_offset)
            run.next_offset = offset + 1
            end = run.end = physical_offset + record_size
            run.count += 1
            run.last_ms = store_time_ms
            for name, light_offset in light_queues:
                key = (name, 0)
                run = last.get(key)
                # A record that names a light queue twice stands in it once.
                if run is None or (light_offset < run.next_offset and run.end != end):
                    run = self._begin(key, light_offset, physical_offset)
                run.next_offset = light_offset + 1
                run.end = end
                run.count += 1
                run.last_ms = store_time_ms

    def _begin(self, key: QueueKey, offset: int, physical_offset: int) -> Run:
        before = self._last.get(key)
        if before is not None:
            self._earlier.setdefault(key, []).append(before)
        run = self._last[key] = Run(offset, physical_offset)
        return run
