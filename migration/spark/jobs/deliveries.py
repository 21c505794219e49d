"""Deliveries to shared groups, and their events, as DataFrames from a log.

The log is that of a store, running or not, or of a backup: `path` as for the source `commitlog`.
Whoever can read these files can read the deliveries. Events before the log's start are unknown, so
messages received before that only have later events.

`read_events`: a row for each message and event.

| column          | type    | meaning                                                             |
|-----------------|---------|---------------------------------------------------------------------|
| group, topic    | string  | the topic may be a light queue                                      |
| queue_id        | int     |                                                                     |
| queue_offset    | bigint  |                                                                     |
| event           | string  | delivered, held on, given back, acknowledged, dead, gone, damaged   |
| delivery        | int     | number of the delivery, from 1; null for the last four              |
| time_ms         | bigint  | when its record was stored, ms since 1970                           |
| until_ms        | bigint  | until when other members cannot receive it; null as above           |
| physical_offset | bigint  | of the record of the event                                          |
| topic_life      | bigint  | records below this physical offset belong to an earlier topic of    |
|                 |         | that name; 0: there was none                                        |
| group_life      | bigint  | the same for the group                                              |

`read_deliveries`: a row for each message that a group received.

| column            | type   | meaning                                                             |
|-------------------|--------|---------------------------------------------------------------------|
| group … queue_offset, topic_life, group_life | as above                                        | |
| deliveries        | bigint | how often it was delivered; one more than its retries               |
| given_back, held_on | bigint | how often                                                         |
| first_ms, last_ms | bigint | when it was delivered first, and last                               |
| outcome           | string | acknowledged, dead, gone, damaged; null while it is in flight or    |
|                   |        | waits for redelivery. After a reset messages keep their outcome     |
|                   |        | until they are delivered again                                      |
| done_ms           | bigint | when that was                                                       |
| stored_ms         | bigint | when the message was stored; null if it has left the log            |
| waited_ms         | bigint | from then to the first delivery: lag from the message's view        |
| latency_ms        | bigint | from then to its end                                                |
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from typing import TYPE_CHECKING

import pyarrow as pa

from migration.spark.columns import struct_of
from migration.spark.jobs.state_records import batches_of, entries_of, read_log, read_state
from store.state import (
    ENDS,
    STATE_TOPIC,
    Finished,
    GroupEnded,
    Leased,
    TopicEnded,
    happening,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from pyspark.sql import Column, DataFrame, SparkSession


EVENTS = pa.schema(
    [
        ("group", pa.string()),
        ("topic", pa.string()),
        ("queue_id", pa.int32()),
        ("queue_offset", pa.int64()),
        ("event", pa.string()),
        ("delivery", pa.int32()),
        ("time_ms", pa.int64()),
        ("until_ms", pa.int64()),
        ("physical_offset", pa.int64()),
        ("topic_life", pa.int64()),
        ("group_life", pa.int64()),
    ]
)
_MESSAGE = ["topic", "queue_id", "queue_offset", "topic_life"]
_DELIVERY = ["group", *_MESSAGE, "group_life"]

#: Topic or group to the physical offsets of its deletions, ascending.
Lives = dict[str, list[int]]


def read_events(spark: SparkSession, path: Path | str) -> DataFrame:
    """See the module."""
    state = read_state(spark, path)
    return state.mapInArrow(_events_of(*_lives(state)), struct_of(EVENTS))


def read_deliveries(spark: SparkSession, path: Path | str) -> DataFrame:
    """See the module."""
    from pyspark.sql import functions as F

    state = read_state(spark, path)
    topics, groups = _lives(state)
    events = state.mapInArrow(_events_of(topics, groups), struct_of(EVENTS))

    def times(event: str) -> Column:
        return F.count_if(F.col("event") == event)

    def when(events: Sequence[str]) -> Column:
        return F.when(F.col("event").isin(*events), F.col("time_ms"))

    ends = [str(each) for each in ENDS]
    is_end = F.col("event").isin(ends)
    end = F.max(F.when(is_end, F.struct("physical_offset", "event", "time_ms")))
    delivered_at = F.max(F.when(F.col("event") == "delivered", F.col("physical_offset")))
    # After a reset, what was done may have been delivered again. Null: its delivery is not known.
    is_open = F.col("end.physical_offset") < F.col("delivered_at")
    found = events.groupBy(*_DELIVERY).agg(
        times("delivered").alias("deliveries"),
        times("given back").alias("given_back"),
        times("held on").alias("held_on"),
        F.min(when(["delivered"])).alias("first_ms"),
        F.max(when(["delivered"])).alias("last_ms"),
        end.alias("end"),
        delivered_at.alias("delivered_at"),
    )
    return (
        found.withColumn("outcome", F.when(is_open, None).otherwise(F.col("end.event")))
        .withColumn("done_ms", F.when(is_open, None).otherwise(F.col("end.time_ms")))
        .join(_stored(spark, path, topics), _MESSAGE, "left")
        .withColumn("waited_ms", F.col("first_ms") - F.col("stored_ms"))
        .withColumn("latency_ms", F.col("done_ms") - F.col("stored_ms"))
        .select(
            *_DELIVERY,
            *("deliveries", "given_back", "held_on", "first_ms", "last_ms"),
            *("outcome", "done_ms", "stored_ms", "waited_ms", "latency_ms"),
        )
    )


def read_lag(spark: SparkSession, path: Path | str) -> DataFrame:
    """A row for each group and topic that it has received from: number of `messages` of the topic
    in the log; of these, `done`, `open` (delivered, not done) and `never` delivered; and
    `oldest_ms`, the store time of the oldest one that is not done.

    Messages that a filter excluded, or a reset skipped, count as never delivered.
    """
    from pyspark.sql import functions as F

    deliveries = read_deliveries(spark, path)
    state = read_state(spark, path)
    stored = _stored(spark, path, _lives(state)[0])
    # The latest generations of groups and topics that have events.
    readers = deliveries.groupBy("group", "topic").agg(
        F.max("topic_life").alias("topic_life"), F.max("group_life").alias("group_life")
    )
    every = readers.join(stored, ["topic", "topic_life"])
    given = deliveries.select(*_DELIVERY, F.lit(1).alias("given"), "outcome")
    is_done, is_given = F.col("outcome").isNotNull(), F.col("given").isNotNull()
    return (
        every.join(given, _DELIVERY, "left")
        .groupBy("group", "topic")
        .agg(
            F.count("*").alias("messages"),
            F.count_if(is_done).alias("done"),
            F.count_if(is_given & ~is_done).alias("open"),
            F.count_if(~is_given).alias("never"),
            F.min(F.when(~is_done, F.col("stored_ms"))).alias("oldest_ms"),
        )
    )


def _lives(state: DataFrame) -> tuple[Lives, Lives]:
    """Deletions of topics and groups. On the driver, because they are few."""
    schema = pa.schema(
        [("kind", pa.string()), ("name", pa.string()), ("physical_offset", pa.int64())]
    )

    def ends(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (
            ("topic", entry.topic, at)
            if isinstance(entry, TopicEnded)
            else ("group", entry.group, at)
            for entry, at, _ in entries_of(batches)
            if isinstance(entry, (TopicEnded, GroupEnded))
        )
        return batches_of(rows, schema)

    found: dict[str, Lives] = {"topic": defaultdict(list), "group": defaultdict(list)}
    for row in state.mapInArrow(ends, struct_of(schema)).orderBy("physical_offset").collect():
        found[row["kind"]][row["name"]].append(row["physical_offset"])
    return dict(found["topic"]), dict(found["group"])


def _life(ends: Mapping[str, list[int]], name: str, at: int) -> int:
    """Physical offset of the last deletion of the name before `at`; 0 without one."""
    before = ends.get(name)
    number = bisect_left(before, at) if before else 0
    return before[number - 1] if before and number else 0


def _events_of(
    topics: Lives, groups: Lives
) -> Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]:
    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[tuple[object, ...]]:
        for entry, at, time_ms in entries_of(batches):
            if isinstance(entry, (Leased, Finished)):
                lives = _life(topics, entry.topic, at), _life(groups, entry.group, at)
                said = happening(entry)
                told = str(said.what), said.delivery, time_ms, said.until_ms
                place = entry.group, entry.topic, entry.queue_id
                yield from ((*place, offset, *told, at, *lives) for offset in said.offsets())

    return lambda batches: batches_of(rows(batches), EVENTS)


def _stored(spark: SparkSession, path: Path | str, topics: Lives) -> DataFrame:
    """Each place of a message in the log: in its topic and in light queues."""
    from pyspark.sql import functions as F

    columns = ("topic", "queue_id", "queue_offset", "physical_offset", "store_time_ms", "in_queue")
    log = read_log(spark, path, (*columns, "light_queues", "light_offsets"))
    log = log.where("in_queue").where(F.col("topic") != STATE_TOPIC)
    rest = ("physical_offset", F.col("store_time_ms").alias("stored_ms"))
    of_topics = log.select("topic", "queue_id", "queue_offset", *rest)
    places = F.explode(F.arrays_zip("light_queues", "light_offsets")).alias("light")
    light = log.where(F.size("light_queues") > 0).select(places, *rest)
    of_light = light.select(
        F.col("light.light_queues").alias("topic"),
        F.lit(0).alias("queue_id"),
        F.col("light.light_offsets").alias("queue_offset"),
        *("physical_offset", "stored_ms"),
    )
    every = of_topics.unionByName(of_light)
    life = F.lit(0).cast("bigint")
    rows = [(name, at) for name, ends in topics.items() for at in ends]
    if not rows:
        return every.withColumn("topic_life", life).drop("physical_offset")
    ends = spark.createDataFrame(rows, "topic string, ended bigint")
    ends = ends.groupBy("topic").agg(F.collect_list("ended").alias("ends"))
    before = F.filter("ends", lambda end: end < F.col("physical_offset"))
    return (
        every.join(F.broadcast(ends), "topic", "left")
        .withColumn("topic_life", F.coalesce(F.array_max(before), life))
        .drop("physical_offset", "ends")
    )
