"""Reads queues, bounds, and ranges of records from a running service."""

from __future__ import annotations

import re
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kvcq_client import (
    LIGHT_PREFIX,
    TLS,
    Client,
    Credentials,
    NotFoundError,
    OffsetOutOfRangeError,
    Queue,
    Start,
    keep_freed_memory,
)
from migration.columnar import Names, RecordBlock, Strings
from migration.spark.arrow import column_of, from_names
from migration.spark.errors import PipelineError, SourceOptionError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from kvcq_client import Bounds, StoredMessage, Topic
    from migration.spark.source.options import Options

#: Bytes that the server sends to a task in advance, and that a task passes to Spark together.
AHEAD_BYTES = 16 << 20
BLOCK_BYTES = 4 << 20
BLOCK_MESSAGES = 10_000


class Service(NamedTuple):
    """Address and credentials of a server."""

    target: str
    timeout_s: float
    tls: TLS | None = None
    #: The user's key, and the file with the secret. Not the secret, which would be in plans and on
    #: Spark's pages.
    access_key: str | None = None
    secret_file: str | None = None

    @contextmanager
    def connect(self) -> Iterator[Client]:
        """A client for the length of the block. Each task needs its own, because connections cannot
        be pickled. Raises SourceOptionError for files that this machine lacks."""
        keep_freed_memory()  # the process is Spark's worker, and reads as fast as it can
        credentials: Credentials | None = None
        if self.access_key is not None and self.secret_file is not None:
            credentials = Credentials(self.access_key, _secret_in(self.secret_file))
        try:
            client = Client(
                self.target, timeout_s=self.timeout_s, tls=self.tls, credentials=credentials
            )
        except OSError as error:
            raise SourceOptionError(
                "tlsCa", f"{error.filename} cannot be read: {error.strerror}"
            ) from error
        with client:
            yield client


def parse_service(options: Options) -> Service:
    """Raises SourceOptionError."""
    target = options.text("server")
    timeout_s = float(options.count("timeoutSeconds", 30))
    ca, cert, key = (options.maybe_text(name) for name in ("tlsCa", "tlsCert", "tlsKey"))
    access_key, secret_file = options.maybe_text("accessKey"), options.maybe_text("secretFile")
    if (cert is None) != (key is None):
        raise SourceOptionError("tlsKey", "and tlsCert belong together: give both")
    if (access_key is None) != (secret_file is None):
        raise SourceOptionError("secretFile", "and accessKey belong together: give both")
    encrypted = options.flag("tls", default=False)  # asked for in any case: it is known then
    tls = TLS(ca=ca, cert=cert, key=key) if encrypted or ca or cert else None
    return Service(target, timeout_s, tls, access_key, secret_file)


def _secret_in(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8").strip()
    except OSError as error:
        raise SourceOptionError("secretFile", f"{file} cannot be read: {error.strerror}") from error


class Subscription(NamedTuple):
    """Which queues: topics and light queues by name, a pattern for whole names, or single queues.
    A pattern that begins with %LMQ% is for light queues, any other for topics."""

    names: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[Queue, ...] = ()

    def queues(self, client: Client) -> list[Queue]:
        """All current queues, in order. Raises NotFoundError for an unknown name."""
        if self.assigned:
            return sorted(self.assigned)
        if self.pattern is not None:
            wanted = re.compile(self.pattern)
            is_light = self.pattern.startswith(LIGHT_PREFIX)
            topics = client.topics(LIGHT_PREFIX if is_light else "", light_queues=is_light)
            return sorted(_queues_of(topic for topic in topics if wanted.fullmatch(topic.name)))
        light = [Queue(name, 0) for name in self.names if name.startswith(LIGHT_PREFIX)]
        plain = [name for name in self.names if not name.startswith(LIGHT_PREFIX)]
        return sorted([*light, *_queues_of(map(client.describe_topic, plain))])


def _queues_of(topics: Iterable[Topic]) -> list[Queue]:
    return [Queue(topic.name, number) for topic in topics for number in range(topic.queue_count)]


class QueueRange(NamedTuple):
    """Offsets of one queue, end exclusive. Reading fails if `begin` is of an earlier queue of the
    name, see kvcq_client.Position."""

    queue: Queue
    begin: int
    end: int


def share_out(
    ranges: Iterable[QueueRange], most: int, min_parts: int = 1
) -> list[tuple[QueueRange, ...]]:
    """The same offsets in parts of at most `most` messages, of equal size except for the last.

    Small ranges share a part, and large ones are split. A queue occurs at most once in a part. The
    number of parts is the least possible, but at least `min_parts`.
    """
    ranges = [one for one in ranges if one.begin < one.end]
    total = sum(end - begin for _, begin, end in ranges)
    count = max(-(-total // most), min_parts)
    size = max(1, -(-total // count))
    parts: list[tuple[QueueRange, ...]] = []
    part: list[QueueRange] = []
    room = size
    for queue, begin, end in ranges:
        while begin < end:
            stop = min(end, begin + room)
            part.append(QueueRange(queue, begin, stop))
            room -= stop - begin
            begin = stop  # a plain number: its first part tells whether the queue began anew
            if not room:
                parts.append(tuple(part))
                part, room = [], size
    return [*parts, tuple(part)] if part else parts


def begin_inside(
    queue: Queue, begin: int, bounds: Mapping[Queue, Bounds], *, fail_on_data_loss: bool
) -> int:
    """The offset at which reading can begin. Raises PipelineError if messages before it are gone,
    unless `fail_on_data_loss` is false."""
    low, high = bounds[queue]
    if low <= begin <= high:
        return begin
    if fail_on_data_loss:
        raise PipelineError(
            f"queue {queue.queue_id} of {queue.topic!r} has {low} to {high}, not {begin}:"
            " messages are gone unread (failOnDataLoss false continues without them)"
        )
    return low


class Records(NamedTuple):
    """Some records: runs of one queue each, with their offsets in that queue."""

    block: RecordBlock
    runs: list[tuple[Queue, int]]  # queue and number of records
    offsets: list[int]

    def batch(self, wanted: pa.Schema) -> pa.RecordBatch:
        """The records as columns. topic, queue_id and queue_offset are those of the queue read."""
        run_of = np.repeat(np.arange(len(self.runs)), [count for _, count in self.runs])
        topics = Names(run_of, [queue.topic for queue, _ in self.runs])
        own = {
            "topic": from_names(topics),
            "queue_id": pa.array([queue.queue_id for queue, _ in self.runs]).take(run_of),
            "queue_offset": pa.array(self.offsets),
        }
        columns = [
            own[field.name].cast(field.type) if field.name in own else column_of(self.block, field)
            for field in wanted
        ]
        return pa.RecordBatch.from_arrays(columns, schema=wanted)


def pull_ranges(
    client: Client, ranges: Sequence[QueueRange], *, idle_s: float, fail_on_data_loss: bool
) -> Iterator[Records]:
    """Yield the records of all ranges, each queue in order, over one stream from the server.

    Raises PipelineError if nothing arrives for `idle_s`. Raises what the client raises for messages
    that are gone; without `fail_on_data_loss` they are left out.
    """
    ends = {part.queue: part.end for part in ranges}
    longest = max((end - begin for _, begin, end in ranges), default=1)
    pending = _Pending()
    with client.consumer(
        {queue: begin for queue, begin, _ in ranges},
        buffer_bytes=AHEAD_BYTES,
        batch_messages=min(longest, BLOCK_MESSAGES),
        when_expired=None if fail_on_data_loss else Start.EARLIEST,
    ) as consumer:
        while ends:
            try:
                messages = consumer.batch(idle_s)
            except (NotFoundError, OffsetOutOfRangeError) as error:
                if fail_on_data_loss:
                    raise
                topic = error.metadata.get("topic")
                ends = {queue: end for queue, end in ends.items() if queue.topic != topic}
                continue
            if not messages:
                _drop_reached(ends, consumer.positions(), idle_s)
                continue
            queue = consumer.queue
            assert queue is not None
            last = messages[-1].queue_offset
            end = ends.get(queue, 0)
            if last >= end:
                messages = [message for message in messages if message.queue_offset < end]
            if messages:
                pending.add(queue, messages)
            if last + 1 >= end:
                ends.pop(queue, None)
            if last >= end:
                consumer.leave([queue])  # the queue continues after the range
            if pending.is_full:
                yield pending.records()
                pending = _Pending()
    if pending:
        yield pending.records()


def _drop_reached(ends: dict[Queue, int], positions: Mapping[Queue, int], idle_s: float) -> None:
    """Drop ranges that are read to their end, or whose last messages no longer exist. Raises
    PipelineError if none is."""
    reached = [queue for queue, end in ends.items() if positions[queue] >= end]
    if not reached:
        raise PipelineError(
            f"nothing came for {idle_s:g} s; {len(ends)} queues are not at their end, such as "
            f"{min(ends)}"
        )
    for queue in reached:
        del ends[queue]


class _Pending:
    """Messages of many queues, collected until they fill a block."""

    def __init__(self) -> None:
        self._records: list[bytes] = []
        self._bytes = 0
        self._runs: list[tuple[Queue, int]] = []
        self._offsets: list[int] = []

    def add(self, queue: Queue, messages: list[StoredMessage]) -> None:
        records = [message.record for message in messages]
        self._records += records
        self._bytes += sum(map(len, records))
        self._runs.append((queue, len(messages)))
        self._offsets += [message.queue_offset for message in messages]

    def __bool__(self) -> bool:
        return bool(self._records)

    @property
    def is_full(self) -> bool:
        return self._bytes >= BLOCK_BYTES or len(self._records) >= BLOCK_MESSAGES

    def records(self) -> Records:
        """The collected messages, at least one."""
        records = Strings.of(self._records)
        return Records(RecordBlock(records.data, 0, records.starts), self._runs, self._offsets)
