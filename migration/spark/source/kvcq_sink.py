"""The sink `kvcq`: rows become messages of a running service, each once.

| option     | default        | meaning                                                      |
|------------|----------------|--------------------------------------------------------------|
| server     |                | host and port; accessKey, tlsCa etc. as for reading          |
| topic      |                | for all rows; overrides the column `topic`                   |
| producerId | the query's id | stream: name of the producer; must be the same after a       |
|            |                | restart                                                      |

Columns: body (binary or string) is required; topic, queue_id (int), tag, keys and light_queues
(array<string>), properties (map<string,string>), flag (int), born_time_ms (bigint) are optional;
null means none. Other columns of the sources are ignored: the store assigns them. So
`source.writeStream.format("kvcq").option("topic", "copy")` copies a topic.

A task sends its rows in numbered batches, as a producer named by the query, the id of the batch and
the number of the partition. The service stores such a batch once, and rejects other messages with
its number. So a repeated task, or a repeated batch of a stream, stores each of its rows once, in
any order: see attempt.py. A query that returns different rows each time (rand, a limit without an
order) fails with an error that says so.
"""

from __future__ import annotations

import hashlib
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from kvcq_client import Message
from migration.spark.columns import COMMITLOG
from migration.spark.errors import SourceOptionError
from migration.spark.source.attempt import Attempt
from migration.spark.source.options import Options
from migration.spark.source.service import parse_service
from store.format import UNIQ_KEY

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    import pyarrow as pa
    from pyspark.sql.types import StructType

_TYPES = {
    "topic": ("string",),
    "body": ("binary", "string"),
    "queue_id": ("int",),
    "tag": ("string",),
    "keys": ("array<string>",),
    "light_queues": ("array<string>",),
    "properties": ("map<string,string>",),
    "flag": ("int",),
    "born_time_ms": ("bigint",),
}
#: Messages in one put.
_BATCH_MESSAGES = 1000
_BATCH_BYTES = 1 << 20


@dataclass
class Written(WriterCommitMessage):
    """The result of one task."""

    messages: int
    repeated: int  # of these, messages that an earlier attempt had stored


class _Sink:
    """The common part of batch and stream. Sent to the executors."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        given = Options(options)
        self._service = parse_service(given)
        self._topic = given.maybe_text("topic")
        self._producer_id = given.maybe_text("producerId")
        given.refuse_others()
        self._job = uuid.uuid4().hex
        for field in schema:
            known = _TYPES.get(field.name)
            if known is None and field.name not in COMMITLOG.names:
                raise SourceOptionError("schema", f"the sink takes no column {field.name!r}")
            if known is not None and field.dataType.simpleString() not in known:
                wanted = " or ".join(known)
                raise SourceOptionError("schema", f"column {field.name!r} is not {wanted}")
        self._has_queues = "queue_id" in schema.names
        self._has_born_times = "born_time_ms" in schema.names
        if "body" not in schema.names:
            raise SourceOptionError("schema", "the column 'body' is required")
        if self._topic is None and "topic" not in schema.names:
            raise SourceOptionError("topic", "is required without a column 'topic'")

    def _send(self, producer: str, batches: Iterator[pa.RecordBatch]) -> Written:
        with self._service.connect() as client:
            attempt = Attempt(
                client, producer, has_queues=self._has_queues, has_born_times=self._has_born_times
            )
            for chunk in _chunks(self._messages(batches)):
                attempt.put(chunk)
            count = attempt.finish(may_have_run_before=_task().attemptNumber() > 0)
            return Written(count, attempt.repeated)

    def _messages(self, batches: Iterator[pa.RecordBatch]) -> Iterator[Message]:
        for batch in batches:
            for row in batch.to_pylist():
                yield self._message(row)

    def _message(self, row: dict[str, Any]) -> Message:
        body = row["body"]
        topic = self._topic or row.get("topic")
        properties = dict(row.get("properties") or ())
        if topic is None or body is None:
            raise SourceOptionError("schema", "a row has no topic, or no body")
        return Message(
            topic=topic,
            body=body.encode() if isinstance(body, str) else body,
            queue_id=row.get("queue_id"),
            tag=row.get("tag") or "",
            # Without UNIQ_KEY, which sources list among the keys; it stays a property.
            keys=tuple(key for key in row.get("keys") or () if key != properties.get(UNIQ_KEY)),
            light_queues=tuple(row.get("light_queues") or ()),
            properties=properties,
            flag=row.get("flag") or 0,
            born_time_ms=row.get("born_time_ms"),
        )


class BatchSink(_Sink, DataSourceArrowWriter):
    """`df.write.format("kvcq")`. A repeated task stores no row twice; a repeated write does."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._send(f"{self._job}.{_task().partitionId()}", iterator)


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """`df.writeStream.format("kvcq")`. A repeated batch stores no row twice."""

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        task = _task()
        who = self._producer_id or task.getLocalProperty("sql.streaming.queryId")
        batch = task.getLocalProperty("streaming.sql.batchId")
        if who is None or batch is None:
            raise SourceOptionError("producerId", "this is not a batch of a streaming query")
        # A digest, because the service accepts 64 characters, and ids here may be longer.
        name = hashlib.blake2b(who.encode(), digest_size=12).hexdigest()
        return self._send(f"{name}.{batch}.{task.partitionId()}", iterator)


def _task() -> TaskContext:
    task = TaskContext.get()
    assert task is not None, "the sink writes in tasks"
    return task


def _chunks(messages: Iterator[Message]) -> Iterator[list[Message]]:
    chunk: list[Message] = []
    size = 0
    for message in messages:
        if chunk and (len(chunk) == _BATCH_MESSAGES or size + len(message.body) > _BATCH_BYTES):
            yield chunk
            chunk, size = [], 0
        chunk.append(message)
        size += len(message.body)
    if chunk:
        yield chunk
