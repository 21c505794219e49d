"""A running service as the pipeline sees it: queues, bounds, records of a range of offsets."""

from __future__ import annotations

import re
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kvcq_client import LIGHT_PREFIX, Client, OffsetOutOfRangeError, Queue
from migration.spark.block import RecordBlock
from migration.spark.errors import PipelineError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from kvcq_client import Bounds, Topic

#: One pull: the server gives at most 10,000 messages.
PULL_MESSAGES = 10_000
PULL_BYTES = 16 << 20


class Service(NamedTuple):
    """How to reach it."""

    target: str
    timeout_s: float

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client for the length of the block. One a task: a connection cannot be pickled."""
        with Client(self.target, timeout_s=self.timeout_s) as client:
            yield client


class Subscription(NamedTuple):
    """Which queues: names of topics and light queues, or a pattern for whole names of topics."""

    names: tuple[str, ...]
    pattern: str | None

    def queues(self, client: Client) -> list[Queue]:
        """All queues there are now, in order. Raises NotFoundError for a name that is unknown."""
        if self.pattern is not None:
            wanted = re.compile(self.pattern)
            topics = [topic for topic in client.topics() if wanted.fullmatch(topic.name)]
        else:
            light = [name for name in self.names if name.startswith(LIGHT_PREFIX)]
            plain = [name for name in self.names if not name.startswith(LIGHT_PREFIX)]
            topics = [client.describe_topic(name) for name in plain]
            found = [Queue(name, 0) for name in light]
            return sorted([*found, *_queues_of(topics)])
        return sorted(_queues_of(topics))


def _queues_of(topics: list[Topic]) -> list[Queue]:
    return [Queue(topic.name, number) for topic in topics for number in range(topic.queue_count)]


class QueueRange(NamedTuple):
    """Offsets of one queue, end exclusive."""

    queue: Queue
    begin: int
    end: int


def cut_ranges(ranges: list[QueueRange], most: int) -> list[QueueRange]:
    """The same offsets in ranges of at most `most`; empty ones left out."""
    return [
        QueueRange(queue, begin, min(begin + most, end))
        for queue, first, end in ranges
        for begin in range(first, end, most)
    ]


def begin_inside(
    queue: Queue, begin: int, bounds: Mapping[Queue, Bounds], *, fail_on_data_loss: bool
) -> int:
    """Where reading can begin. Raises PipelineError when messages before that are gone."""
    low, high = bounds[queue]
    if low <= begin <= high:
        return begin
    if fail_on_data_loss:
        raise PipelineError(
            f"queue {queue.queue_id} of {queue.topic!r} holds {low} to {high}, not {begin}:"
            " messages are gone unread (failOnDataLoss false goes on with what is there)"
        )
    return low


def pull_range(
    client: Client, part: QueueRange, *, fail_on_data_loss: bool
) -> Iterator[tuple[RecordBlock, pa.Array]]:
    """Records of the range and their offsets in the queue that was asked for."""
    offset = part.begin
    topic, queue_id = part.queue
    while offset < part.end:
        count = min(PULL_MESSAGES, part.end - offset)
        try:
            pulled = client.pull(topic, queue_id, offset, max_messages=count, max_bytes=PULL_BYTES)
        except OffsetOutOfRangeError as error:
            if fail_on_data_loss:
                raise
            if not offset < error.min_offset < part.end:
                return
            offset = error.min_offset  # expired since this was planned
            continue
        messages = [message for message in pulled.messages if message.queue_offset < part.end]
        if messages:
            records = [message.record for message in messages]
            ends = np.cumsum([len(record) for record in records])
            starts = np.concatenate([np.zeros(1, dtype=np.int64), ends[:-1]])
            block = RecordBlock(np.frombuffer(b"".join(records), dtype=np.uint8), 0, starts)
            yield block, pa.array([message.queue_offset for message in messages], pa.int64())
        if pulled.next_offset <= offset:
            return
        offset = pulled.next_offset
