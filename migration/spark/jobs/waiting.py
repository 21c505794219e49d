"""Delayed messages and messages of transactions, as DataFrames from a log.

The log is that of a store, running or not, or of a backup: `path` as for the source `commitlog`.
For messages put before the log's start, only later events are known, and other columns are null.
Times are ms since 1970.

`read_timers`: a row for each delayed message.

| column     | type   | meaning                                                                  |
|------------|--------|--------------------------------------------------------------------------|
| timer      | bigint | its name: its first queue offset in rmq_sys_wheel_timer                  |
| topic      | string | the topic that it is delivered to                                        |
| due_ms     | bigint | when it is due                                                           |
| set_ms     | bigint | when it was put                                                          |
| outcome    | string | fired, recalled, gone (its topic was deleted), lost; null while it waits |
| ended_ms   | bigint | when its wait ended                                                      |
| late_ms    | bigint | for a fired one: how long after it was due                               |
| moves      | bigint | how often it was appended again to keep it                               |

`read_transactions`: a row for each message of a transaction.

| column     | type   | meaning                                                                  |
|------------|--------|--------------------------------------------------------------------------|
| half       | bigint | its name: its first queue offset in rmq_sys_kvcq_halves                  |
| group      | string | the group of its producers                                               |
| topic      | string | the topic that it is delivered to                                        |
| begun_ms   | bigint | when it began                                                            |
| checks     | int    | how often its producers were asked                                       |
| given_up   | boolean | whether they are no longer asked                                        |
| outcome    | string | committed, rolled back, topic gone, record gone, handed back (to a       |
|            |        | RocketMQ broker); null while it is open                                  |
| ended_ms   | bigint | when it was decided                                                      |
| open_ms    | bigint | from its beginning to its end                                            |
| moves      | bigint | as above                                                                 |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa

from migration.spark.columns import struct_of
from migration.spark.jobs.state_records import batches_of, entries_of, read_state
from store.state import (
    NEVER,
    HalfBegun,
    HalfChecked,
    HalfEnded,
    HalfMoved,
    TimerEnd,
    TimerEnded,
    TimerSet,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from store.state import Entry

_TIMERS = pa.schema(
    [
        ("timer", pa.int64()),
        ("due_ms", pa.int64()),
        ("topic", pa.string()),
        ("set_ms", pa.int64()),
        ("outcome", pa.string()),
        ("ended_ms", pa.int64()),
        ("moved", pa.int32()),
    ]
)
_HALVES = pa.schema(
    [
        ("half", pa.int64()),
        ("group", pa.string()),
        ("topic", pa.string()),
        ("begun_ms", pa.int64()),
        ("checks", pa.int32()),
        ("gave_up", pa.int32()),
        ("outcome", pa.string()),
        ("ended_ms", pa.int64()),
        ("moved", pa.int32()),
    ]
)
_Row = tuple[object, ...]


def read_timers(spark: SparkSession, path: Path | str) -> DataFrame:
    """See the module."""
    from pyspark.sql import functions as F

    found = _told(spark, path, _timer_row, _TIMERS)
    columns = ("topic", "set_ms", "outcome", "ended_ms")
    return (
        found.groupBy("timer", "due_ms")
        .agg(*(F.max(name).alias(name) for name in columns), F.sum("moved").alias("moves"))
        .withColumn(
            "late_ms", F.when(F.col("outcome") == "fired", F.col("ended_ms") - F.col("due_ms"))
        )
        .select("timer", "topic", "due_ms", *columns[1:], "late_ms", "moves")
    )


def read_transactions(spark: SparkSession, path: Path | str) -> DataFrame:
    """See the module."""
    from pyspark.sql import functions as F

    found = _told(spark, path, _half_row, _HALVES)
    columns = ("group", "topic", "begun_ms", "checks", "outcome", "ended_ms")
    return (
        found.groupBy("half")
        .agg(
            *(F.max(name).alias(name) for name in columns),
            (F.max("gave_up") > 0).alias("given_up"),
            F.sum("moved").alias("moves"),
        )
        .withColumn("open_ms", F.col("ended_ms") - F.col("begun_ms"))
        .select("half", *columns[:4], "given_up", *columns[4:], "open_ms", "moves")
    )


def _timer_row(entry: Entry, time_ms: int) -> _Row | None:
    """The entry's information about a delayed message, as a row of _TIMERS."""
    match entry:
        case TimerSet(topic, due_ms, place):
            return place, due_ms, topic, time_ms, None, None, 0
        case TimerEnded(due_ms, timer, _, TimerEnd.MOVED):
            return timer, due_ms, None, None, None, None, 1
        case TimerEnded(due_ms, timer, _, how):
            return timer, due_ms, None, None, how.name.lower(), time_ms, 0
    return None


def _half_row(entry: Entry, _: int) -> _Row | None:
    """The entry's information about a transaction's message, as a row of _HALVES."""
    match entry:
        case HalfBegun(group, topic, half, _, begun_ms):
            return half, group, topic, begun_ms, 0, 0, None, None, 0
        case HalfChecked(half, checks, check_ms):
            return half, None, None, None, checks, int(check_ms == NEVER), None, None, 0
        case HalfEnded(half, ended_ms, how):
            outcome = how.name.lower().replace("_", " ")
            return half, None, None, None, 0, 0, outcome, ended_ms, 0
        case HalfMoved(half):
            return half, None, None, None, 0, 0, None, None, 1
    return None


def _told(
    spark: SparkSession,
    path: Path | str,
    row_of: Callable[[Entry, int], _Row | None],
    schema: pa.Schema,
) -> DataFrame:
    """A row for each entry for which `row_of` returns one."""

    def rows(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        made = (row_of(entry, time_ms) for entry, _, time_ms in entries_of(batches))
        return batches_of((row for row in made if row is not None), schema)

    return read_state(spark, path).mapInArrow(rows, struct_of(schema))
