"""The data source `kvcq`: messages of a running service, in batch and as a stream; and a sink.

| option                     | default  | meaning                                                 |
|----------------------------|----------|---------------------------------------------------------|
| server                     |          | host and port                                           |
| subscribe                  |          | names of topics and light queues, separated by commas   |
| subscribePattern           |          | or a regular expression for whole names of topics       |
| startingOffsets            | see text | earliest, latest, or JSON; see positions.py             |
| startingOffsetsByTimestamp |          | JSON; startingTimestamp for one time                    |
| startingOffsetsByTimestampStrategy | error | a time behind all messages: error, or latest       |
| endingOffsets              | latest   | batch: latest or JSON                                   |
| endingOffsetsByTimestamp   |          | batch: JSON; endingTimestamp for one time               |
| maxOffsetsPerTrigger       | all      | stream: this many messages in one batch, over all queues |
| maxOffsetsPerPartition     | 500000   | a task reads this many                                  |
| failOnDataLoss             | true     | messages expired unread: fail, or go on                 |
| timeoutSeconds             | 30       | for one call                                            |

A batch begins at the earliest offset, a stream at the latest, unless told otherwise; a queue that a
stream finds later is read from its first message. Columns are those of columns.COMMITLOG; topic,
queue_id and queue_offset are of the queue that was read, so a light queue has its own.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)

from migration.spark import positions
from migration.spark.columns import COMMITLOG, ddl
from migration.spark.errors import PipelineError, SourceOptionError
from migration.spark.kvcq_sink import BatchSink, StreamSink
from migration.spark.positions import Positions, from_document, to_document
from migration.spark.service import (
    QueueRange,
    Service,
    Subscription,
    begin_inside,
    cut_ranges,
    pull_range,
)
from migration.spark.source_options import Options, wanted_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql.types import StructType

    from kvcq_client import Bounds, Client, Queue

    Document = dict[str, dict[str, int]]


class ServiceOptions(NamedTuple):
    """The options of the table above, checked."""

    service: Service
    subscription: Subscription
    start: Positions
    end: Positions
    max_per_trigger: int | None
    max_per_partition: int
    fail_on_data_loss: bool


class RangePartition(InputPartition):
    """Offsets of one queue."""

    def __init__(self, part: QueueRange) -> None:
        super().__init__(part)


class KvcqSource(DataSource):
    """The messages of a running service."""

    @classmethod
    def name(cls) -> str:
        return "kvcq"

    def schema(self) -> str:
        return ddl(COMMITLOG)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KvcqReader(parse_options(self.options, "earliest"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KvcqStreamReader(parse_options(self.options, "latest"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        if overwrite:
            raise SourceOptionError("mode", "a service is only appended to")
        return BatchSink(self.options, schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        if overwrite:
            raise SourceOptionError("outputMode", "a service is only appended to")
        return StreamSink(self.options, schema)


def parse_options(options: Mapping[str, str], default_start: str) -> ServiceOptions:
    """Raises SourceOptionError."""
    given = Options(options)
    subscribe, pattern = given.maybe_text("subscribe"), given.maybe_text("subscribePattern")
    if (subscribe is None) is (pattern is None):
        raise SourceOptionError("subscribe", "or subscribePattern is required, and not both")
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SourceOptionError("subscribePattern", str(error)) from error
    names = tuple(part.strip() for part in (subscribe or "").split(",") if part.strip())
    return ServiceOptions(
        service=parse_service(given),
        subscription=Subscription(names, pattern),
        start=positions.starting(given, default_start),
        end=positions.ending(given),
        max_per_trigger=given.maybe_whole("maxOffsetsPerTrigger"),
        max_per_partition=max(1, given.whole("maxOffsetsPerPartition", 500_000)),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
    )


def parse_service(options: Options) -> Service:
    """Raises SourceOptionError."""
    return Service(options.text("server"), float(options.whole("timeoutSeconds", 30)))


class _Reader:
    """What batch and stream share."""

    def __init__(self, options: ServiceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, COMMITLOG, "kvcq")

    def _cut(self, ranges: list[QueueRange]) -> list[RangePartition]:
        return [RangePartition(one) for one in cut_ranges(ranges, self._options.max_per_partition)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        part: QueueRange | None = partition.value
        # Spark turns an empty list of partitions into one whose value is None.
        if part is None:
            return
        fail = self._options.fail_on_data_loss
        with self._options.service.connect() as client:
            for block, offsets in pull_range(client, part, fail_on_data_loss=fail):
                own = {
                    "topic": pa.repeat(part.queue.topic, len(block)),
                    "queue_id": pa.array([part.queue.queue_id] * len(block), pa.int32()),
                    "queue_offset": offsets,
                }
                columns = [
                    own[field.name] if field.name in own else block.typed_column(field)
                    for field in self._columns
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=self._columns)


class KvcqReader(_Reader, DataSourceReader):
    """Reads what the queues hold when the query is planned."""

    def partitions(self) -> Sequence[InputPartition]:
        options = self._options
        with options.service.connect() as client:
            queues = options.subscription.queues(client)
            bounds = client.offsets(queues) if queues else {}
            starts = options.start.resolve(client, queues, bounds)
            ends = options.end.resolve(client, queues, bounds)
        ranges = []
        for queue in queues:
            fail = options.fail_on_data_loss
            begin = begin_inside(queue, starts[queue], bounds, fail_on_data_loss=fail)
            end = min(ends[queue], bounds[queue].max_offset)
            if end < ends[queue] and fail:
                raise PipelineError(f"{queue} ends at {end}, before the {ends[queue]} asked for")
            ranges.append(QueueRange(queue, begin, max(begin, end)))
        return self._cut(ranges)


class KvcqStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the queues. An offset is `{topic: {queue id: next offset}}`."""

    def __init__(self, options: ServiceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._target: dict[Queue, int] | None = None

    def initialOffset(self) -> Document:
        with self._options.service.connect() as client:
            queues, bounds = self._now(client)
            return to_document(self._options.start.resolve(client, queues, bounds))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        self._target = self._ends()

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        begins = from_document(start)
        ends = dict(self._ends() if self._target is None else self._target)
        # A queue that is gone stays in the offset, so that its loss is noticed and told.
        for queue, begin in begins.items():
            ends[queue] = max(begin, ends.get(queue, begin))
        if isinstance(limit, ReadMaxRows):
            ends = _limited(begins, ends, limit.max_rows)
        return to_document(ends)

    def reportLatestOffset(self) -> Document:
        return to_document(self._ends())

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        begins, ends = from_document(start), from_document(end)
        fail = self._options.fail_on_data_loss
        with self._options.service.connect() as client:
            queues, bounds = self._now(client)
        if fail and (gone := begins.keys() - set(queues)):
            raise PipelineError(f"{min(gone)} is gone (failOnDataLoss false goes on without it)")
        ranges = []
        for queue in queues:
            if queue not in ends:
                continue  # made since the end was fixed: the next batch has it
            # A queue that is new to this query is read from its first message.
            begin = begins.get(queue, bounds[queue].min_offset)
            if begin < ends[queue]:
                begin = begin_inside(queue, begin, bounds, fail_on_data_loss=fail)
            ranges.append(QueueRange(queue, begin, max(begin, ends[queue])))
        return self._cut(ranges)

    def _now(self, client: Client) -> tuple[list[Queue], dict[Queue, Bounds]]:
        queues = self._options.subscription.queues(client)
        return queues, client.offsets(queues) if queues else {}

    def _ends(self) -> dict[Queue, int]:
        with self._options.service.connect() as client:
            queues, bounds = self._now(client)
        return {queue: bounds[queue].max_offset for queue in queues}


def _limited(begins: dict[Queue, int], ends: dict[Queue, int], most: int) -> dict[Queue, int]:
    """Ends that leave at most `most` messages, each queue its share, and at least one in all."""
    sizes = {queue: end - begins.get(queue, 0) for queue, end in ends.items()}
    total = sum(sizes.values())
    if total <= most:
        return ends
    limited = {
        queue: end - size for (queue, end), size in zip(ends.items(), sizes.values(), strict=True)
    }
    left = most
    for queue, size in sizes.items():
        share = min(size * most // total, left)
        limited[queue] += share
        left -= share
    # What rounding left over goes to the first queues that have more.
    for queue in limited:
        more = min(left, ends[queue] - limited[queue])
        limited[queue] += more
        left -= more
    return limited
