"""The data source `kvcq`: messages of a running service, in batch and as a stream; and a sink.

| option                     | default  | meaning                                                 |
|----------------------------|----------|---------------------------------------------------------|
| server                     |          | host and port                                           |
| subscribe                  |          | names of topics and light queues, separated by commas   |
| subscribePattern           |          | or a regular expression for whole names of topics; one  |
|                            |          | that begins with %LMQ% is for light queues              |
| assign                     |          | or single queues, as JSON: {"orders": [0, 1]}           |
| startingOffsets            | see text | earliest, latest, or JSON; see positions.py             |
| startingOffsetsByTimestamp |          | JSON; startingTimestamp for one time                    |
| startingOffsetsByTimestampStrategy | error | a time after all messages: error, or latest        |
| endingOffsets              | latest   | batch: latest or JSON                                   |
| endingOffsetsByTimestamp   |          | batch: JSON; endingTimestamp for one time               |
| maxOffsetsPerTrigger       | all      | stream: most messages of one batch, over all queues     |
| maxRecordsPerPartition     | 100000   | most messages of one task, from one queue or several    |
| minPartitions              | 1        | least tasks of a read, if it has enough messages        |
| failOnDataLoss             | true     | fail if messages expired unread; false: continue        |
| timeoutSeconds             | 30       | for one call, and for the next message of a read        |
| accessKey, secretFile      |          | the user, and a file with its secret, on every machine  |
| tls, tlsCa                 |          | encrypt: true, or the file of an authority; the same    |
| tlsCert, tlsKey            |          | the client's own certificate; the same                  |

The names are those of Spark's Kafka source; others are rejected. By default a batch begins at the
earliest offset, a stream at the latest. A queue that is new to a stream is read from its first
message. Columns are columns.MESSAGE, or those of columns.COMMITLOG that a schema names; topic,
queue_id and queue_offset are those of the queue that was read, which may be a light queue. The
progress of a stream has the number of messages that are left to read, as `messagesBehind` of
latestOffset.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

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

from kvcq_client import Position
from migration.spark.columns import COMMITLOG, MESSAGE, struct_of
from migration.spark.errors import PipelineError, SourceOptionError
from migration.spark.source import positions
from migration.spark.source.kvcq_sink import BatchSink, StreamSink
from migration.spark.source.options import Options, wanted_columns
from migration.spark.source.service import (
    QueueRange,
    Service,
    Subscription,
    begin_inside,
    parse_service,
    pull_ranges,
    share_out,
)
from migration.spark.source.stream_places import EARLIEST, StreamPlaces

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType

    from kvcq_client import Queue
    from migration.spark.source.positions import Positions
    from migration.spark.source.stream_places import Document


class ServiceOptions(NamedTuple):
    """The options of the table above, validated."""

    service: Service
    subscription: Subscription
    start: Positions
    end: Positions
    max_per_trigger: int | None
    max_per_partition: int
    min_partitions: int
    fail_on_data_loss: bool


class KvcqSource(DataSource):
    """The messages of a running service."""

    @classmethod
    def name(cls) -> str:
        return "kvcq"

    def schema(self) -> StructType:
        return struct_of(MESSAGE)

    def reader(self, schema: StructType) -> DataSourceReader:
        return KvcqReader(parse_options(self.options, "earliest"), schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return KvcqStreamReader(parse_options(self.options, "latest"), schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        if overwrite:
            raise SourceOptionError("mode", "only append is supported")
        return BatchSink(self.options, schema)

    def streamWriter(
        self,
        schema: StructType,
        overwrite: bool,  # noqa: FBT001
    ) -> DataSourceStreamWriter:
        if overwrite:
            raise SourceOptionError("outputMode", "only append is supported")
        return StreamSink(self.options, schema)


def parse_options(options: Mapping[str, str], default_start: str) -> ServiceOptions:
    """Parse the options. Raises SourceOptionError."""
    given = Options(options)
    subscribe, pattern, assign = (
        given.maybe_text(name) for name in ("subscribe", "subscribePattern", "assign")
    )
    if (subscribe, pattern, assign).count(None) != 2:
        raise SourceOptionError(
            "subscribe", "or subscribePattern or assign: exactly one is required"
        )
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise SourceOptionError("subscribePattern", str(error)) from error
    found = ServiceOptions(
        service=parse_service(given),
        subscription=Subscription(
            names=tuple(part.strip() for part in (subscribe or "").split(",") if part.strip()),
            pattern=pattern,
            assigned=() if assign is None else positions.parse_assigned(assign),
        ),
        start=positions.starting(given, default_start),
        end=positions.ending(given),
        max_per_trigger=given.maybe_count("maxOffsetsPerTrigger"),
        max_per_partition=given.count("maxRecordsPerPartition", 100_000),
        min_partitions=given.count("minPartitions", 1),
        fail_on_data_loss=given.flag("failOnDataLoss", default=True),
    )
    given.refuse_others()
    return found


class _Reader:
    """The common part of batch and stream. A partition is offsets of some queues, each once."""

    def __init__(self, options: ServiceOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, COMMITLOG, "kvcq")

    def _shared_out(self, ranges: list[QueueRange]) -> list[InputPartition]:
        options = self._options
        parts = share_out(ranges, options.max_per_partition, options.min_partitions)
        return list(map(InputPartition, parts))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one whose value is None.
        if partition.value is None:
            return
        service, fail = self._options.service, self._options.fail_on_data_loss
        with service.connect() as client:
            for records in pull_ranges(
                client, partition.value, idle_s=service.timeout_s, fail_on_data_loss=fail
            ):
                yield records.batch(self._columns)


class KvcqReader(_Reader, DataSourceReader):
    """Reads the content of the queues as of when the query is planned."""

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
            ranges.append(QueueRange(queue, begin, end))
        return self._shared_out(ranges)


class KvcqStreamReader(_Reader, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Follows the queues. stream_places.py defines its offsets."""

    def __init__(self, options: ServiceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        self._places = StreamPlaces(options.subscription, options.service.timeout_s)
        self._target: dict[Queue, int] | None = None
        self._planned: dict[Queue, int] = {}  # end of the last planned batch

    def initialOffset(self) -> Document:
        start = self._options.start
        if start.is_earliest:
            return EARLIEST
        with self._options.service.connect() as client:
            self._places.look(client)  # a second snapshot, which keeps the offset short
            bounds = self._places.look(client).bounds
            return self._places.document(start.resolve(client, list(bounds), bounds))

    def getDefaultReadLimit(self) -> ReadLimit:
        limit = self._options.max_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        with self._options.service.connect() as client:
            bounds = self._places.look(client).bounds
        self._target = {queue: one.max_offset for queue, one in bounds.items()}

    def latestOffset(self, start: Document, limit: ReadLimit) -> Document:
        with self._options.service.connect() as client:
            bounds = self._places.look(client).bounds
            known = self._places.positions(client, start)
        fail = self._options.fail_on_data_loss
        ends = {queue: one.max_offset for queue, one in bounds.items()}
        if self._target is not None:
            ends = {queue: min(end, ends.get(queue, end)) for queue, end in self._target.items()}
        # A queue that is new to this query is read from its first message.
        before = {queue: one.min_offset for queue, one in bounds.items()} | known
        # So is one that ends before its position: its topic was deleted and created again.
        begins = {
            queue: begin_inside(queue, begin, bounds, fail_on_data_loss=fail)
            if queue in bounds and begin > bounds[queue].max_offset
            else begin
            for queue, begin in before.items()
        }
        if fail:
            # A deleted queue stays in the offset, so that its loss is reported.
            ends = {queue: max(begin, ends.get(queue, begin)) for queue, begin in begins.items()}
        else:
            ends = {queue: ends.get(queue, begins[queue]) for queue in bounds}
        if isinstance(limit, ReadMaxRows):
            ends = _limited(begins, ends, limit.max_rows)
        self._planned = ends
        # Without new messages the offset must stay equal, or Spark would run an empty batch.
        return start if ends == before else self._places.document(ends)

    def reportLatestOffset(self) -> Document:
        with self._options.service.connect() as client:
            look = self._places.look(client)
        behind = sum(
            max(0, one.max_offset - self._planned.get(queue, one.min_offset))
            for queue, one in look.bounds.items()
        )
        return {"log": look.log_end, "messagesBehind": behind}

    def partitions(self, start: Document, end: Document) -> Sequence[InputPartition]:
        fail = self._options.fail_on_data_loss
        with self._options.service.connect() as client:
            bounds = self._places.look(client).bounds
            begins = self._places.positions(client, start)
            ends = self._places.positions(client, end)
        if fail and (gone := (begins.keys() | ends.keys()) - bounds.keys()):
            raise PipelineError(f"{min(gone)} is gone (failOnDataLoss false continues without it)")
        ranges = []
        for queue, stop in ends.items():
            if queue in bounds:
                low, high = bounds[queue]
                begin = begins.get(queue, low)
                if begin > stop and not fail:
                    begin = low  # it began anew
                elif begin < stop or begin > high:
                    begin = begin_inside(queue, begin, bounds, fail_on_data_loss=fail)
                ranges.append(QueueRange(queue, begin, stop))
        return self._shared_out(ranges)


def _limited(begins: dict[Queue, int], ends: dict[Queue, int], most: int) -> dict[Queue, int]:
    """Lower ends, so that at most `most` messages are read, at least one, shared among queues."""
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
    # The first queues with more messages get the remainder of rounding.
    for queue in limited:
        more = min(left, ends[queue] - limited[queue])
        limited[queue] += more
        left -= more
    return {queue: _like(ends[queue], offset) for queue, offset in limited.items()}


def _like(position: int, offset: int) -> int:
    """The offset, of the same topic of the name as `position`, if that is known."""
    return Position(offset, position.given_at) if isinstance(position, Position) else offset
