"""Runs of queue offsets along a log: where they begin at 0 again, the queue was created again.

The records of a deleted topic stay in the log. If the topic is created again, its queue offsets
begin at 0. So each queue is a sequence of runs; the last run is its latest generation.
generations.py decides which of them are live.

Within a run, offsets need not be consecutive: RocketMQ has assigned an offset twice
(apache/rocketmq#2865), and has skipped some (#6570). Both are counted: of two records with the same
offset only one can be read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from store.consume_queue import DispatchRequest

    QueueKey = tuple[str, int]


class Run:
    """Records of one generation of a queue, from one position in the log to another."""

    __slots__ = (
        "begin",
        "count",
        "end",
        "first_offset",
        "last_ms",
        "left_out",
        "next_offset",
        "repeated",
    )

    def __init__(self, first_offset: int, begin: int) -> None:
        self.first_offset = first_offset
        self.next_offset = first_offset  # highest queue offset + 1
        self.begin = begin  # physical offset of the first record
        self.end = begin  # physical offset after the last record
        self.count = 0
        self.last_ms = 0  # store time of the last record
        self.repeated = 0  # records whose offset is not above all earlier ones
        self.left_out = 0  # offsets without a record

    def take(self, offset: int, end: int, store_time_ms: int) -> None:
        """Add a record at queue offset `offset` that ends at physical offset `end`."""
        step = offset - self.next_offset
        if step == 0:
            self.next_offset = offset + 1
        elif step > 0:
            self.left_out += step
            self.next_offset = offset + 1
        elif end != self.end:
            self.repeated += 1
        self.end = end
        self.count += 1
        self.last_ms = store_time_ms

    def __repr__(self) -> str:
        return f"offsets {self.first_offset} to {self.next_offset - 1} at {self.begin}..{self.end}"


class QueueRuns:
    """The runs of every queue and light queue. Memory: one entry for each run."""

    def __init__(self) -> None:
        self._last: dict[QueueKey, Run] = {}
        self._earlier: dict[QueueKey, list[Run]] = {}  # only queues with several runs

    def __len__(self) -> int:
        return len(self._last)

    def __contains__(self, key: QueueKey) -> bool:
        return key in self._last

    def __iter__(self) -> Iterator[QueueKey]:
        return iter(self._last)

    def last(self, key: QueueKey) -> Run:
        """The latest run of a queue that has one."""
        return self._last[key]

    def earlier(self, key: QueueKey) -> Sequence[Run]:
        """The runs before the queue's latest one, oldest first; empty if there is only one."""
        return self._earlier.get(key, ())

    def add(self, requests: Sequence[DispatchRequest]) -> None:
        """Add the next records of the log."""
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
            if run is None or (offset == 0 and run.next_offset):
                run = self._begin(key, offset, physical_offset)
            run.take(offset, physical_offset + record_size, store_time_ms)
            for name, light_offset in light_queues:
                key = (name, 0)
                run = last.get(key)
                # A record that names a light queue twice counts once.
                if run is None or (light_offset == 0 and run.end != physical_offset + record_size):
                    run = self._begin(key, light_offset, physical_offset)
                run.take(light_offset, physical_offset + record_size, store_time_ms)

    def _begin(self, key: QueueKey, offset: int, physical_offset: int) -> Run:
        before = self._last.get(key)
        if before is not None:
            self._earlier.setdefault(key, []).append(before)
        run = self._last[key] = Run(offset, physical_offset)
        return run
