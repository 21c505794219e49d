"""Figures about a log: topics, queues, rates, sizes, keys, holes, duplicates, retention.

Computed by Spark; report_page.py makes them a page.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from migration.columnar import LogLayout, read_layout
from migration.spark.jobs.messages import MessageChoice, read_messages
from migration.spark.progress import Progress, no_progress, watched

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

#: Rows of the tables that would grow without end.
TOP_KEYS = 20
TOP_QUEUES = 200
TOP_TOPICS = 500
#: Points of a rate curve.
_RATE_POINTS = 96


class TopicFigures(NamedTuple):
    """One topic."""

    topic: str
    messages: int
    bytes: int
    queues: int
    min_size: int
    max_size: int
    first_ms: int
    last_ms: int
    tags: int
    keyed: int  # messages with a key

    @property
    def mean_size(self) -> float:
        return self.bytes / self.messages

    @property
    def rate(self) -> float:
        """Messages a second from the first to the last; 0 for a single moment."""
        seconds = (self.last_ms - self.first_ms) / 1000
        return self.messages / seconds if seconds else 0.0


class QueueFigures(NamedTuple):
    """One queue whose offsets are not dense: min, min + 1, ... max, each once."""

    topic: str
    queue_id: int
    min_offset: int
    max_offset: int  # inclusive
    messages: int
    holes: int
    duplicates: int


class KeyFigures(NamedTuple):
    """One message key."""

    topic: str
    key: str
    messages: int


@dataclass(frozen=True)
class LogReport:
    """All figures."""

    layout: LogLayout
    made_ms: int
    topics: list[TopicFigures]  # by messages, falling; at most TOP_TOPICS
    topic_count: int
    queue_count: int
    messages: int
    bytes: int
    holes: int
    duplicates: int
    broken_queues: list[QueueFigures]
    keys: list[KeyFigures]
    sizes: list[tuple[int, int]]  # (records of up to this many bytes, how many)
    rate_step_ms: int
    rates: dict[str, list[tuple[int, int]]]  # topic -> (begin of the step, messages in it)


def gather_report(
    spark: SparkSession, choice: MessageChoice, progress: Progress = no_progress
) -> LogReport:
    """Compute the figures: four passes over the log, each over the columns that it needs."""
    from pyspark.sql import functions as F

    with watched(spark, "topics", progress):
        by_topic = _topics(read_messages(spark, choice, [*_TOPIC_COLUMNS])).cache()
        topic_rows = by_topic.orderBy(F.desc("messages"), "topic").limit(TOP_TOPICS).collect()
        whole = by_topic.agg(
            F.count("*"), F.sum("messages"), F.sum("bytes"), F.min("first_ms"), F.max("last_ms")
        ).collect()[0]
        by_topic.unpersist()
    with watched(spark, "queues", progress):
        offsets = read_messages(spark, choice, ["topic", "queue_id", "queue_offset"])
        by_queue = _queues(offsets).cache()
        totals = by_queue.agg(F.count("*"), F.sum("holes"), F.sum("duplicates")).collect()[0]
        broken = by_queue.where("holes > 0 or duplicates > 0").orderBy("topic", "queue_id")
        broken_rows = broken.limit(TOP_QUEUES).collect()
        by_queue.unpersist()
    with watched(spark, "keys", progress):
        keys = read_messages(spark, choice, ["topic", "keys"])
        key_rows = (
            keys.select("topic", F.explode("keys").alias("key"))
            .groupBy("topic", "key")
            .agg(F.count("*").alias("messages"))
            .orderBy(F.desc("messages"), "topic", "key")
            .limit(TOP_KEYS)
            .collect()
        )
    topics = [TopicFigures(*row) for row in topic_rows]
    step_ms = _step(whole[3], whole[4])
    shown = [topic.topic for topic in topics[:8]]
    with watched(spark, "rates", progress):
        times = read_messages(spark, choice, ["topic", "store_time_ms", "record_size"])
        size_rows, rates = _curves(times, shown, step_ms)
    return LogReport(
        layout=read_layout(choice.log, end=choice.log_end),
        made_ms=time.time_ns() // 1_000_000,
        topics=topics,
        topic_count=whole[0],
        queue_count=totals[0],
        messages=whole[1] or 0,
        bytes=whole[2] or 0,
        holes=totals[1] or 0,
        duplicates=totals[2] or 0,
        broken_queues=[QueueFigures(*row) for row in broken_rows],
        keys=[KeyFigures(*row) for row in key_rows],
        sizes=size_rows,
        rate_step_ms=step_ms,
        rates=rates,
    )


_TOPIC_COLUMNS = ("topic", "queue_id", "record_size", "store_time_ms", "tag", "keys")


def _topics(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum("record_size").alias("bytes"),
        F.count_distinct("queue_id").alias("queues"),
        F.min("record_size").alias("min_size"),
        F.max("record_size").alias("max_size"),
        F.min("store_time_ms").alias("first_ms"),
        F.max("store_time_ms").alias("last_ms"),
        F.approx_count_distinct("tag").alias("tags"),
        F.count_if(F.size("keys") > 0).alias("keyed"),
    )


def _queues(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    places = frame.groupBy("topic", "queue_id", "queue_offset").agg(F.count("*").alias("times"))
    queues = places.groupBy("topic", "queue_id").agg(
        F.min("queue_offset").alias("min_offset"),
        F.max("queue_offset").alias("max_offset"),
        F.sum("times").alias("messages"),
        F.count("*").alias("places"),
    )
    return queues.select(
        "topic",
        "queue_id",
        "min_offset",
        "max_offset",
        "messages",
        (F.col("max_offset") - F.col("min_offset") + 1 - F.col("places")).alias("holes"),
        (F.col("messages") - F.col("places")).alias("duplicates"),
    )


def _curves(
    frame: DataFrame, shown: list[str], step_ms: int
) -> tuple[list[tuple[int, int]], dict[str, list[tuple[int, int]]]]:
    from pyspark.sql import functions as F

    counted = (
        frame.groupBy(
            F.when(F.col("topic").isin(shown), F.col("topic")).alias("name"),
            F.floor(F.col("store_time_ms") / step_ms).alias("step"),
            F.ceil(F.log2("record_size")).alias("power"),
        )
        .agg(F.count("*").alias("messages"))
        .collect()
    )
    sizes: dict[int, int] = {}
    rates: dict[str, dict[int, int]] = {name: {} for name in shown}
    for name, step, power, messages in counted:
        sizes[1 << power] = sizes.get(1 << power, 0) + messages
        if name is not None:
            begin = step * step_ms
            rates[name][begin] = rates[name].get(begin, 0) + messages
    return sorted(sizes.items()), {name: sorted(points.items()) for name, points in rates.items()}


def _step(first_ms: int | None, last_ms: int | None) -> int:
    """A round length of time that cuts the log into about _RATE_POINTS."""
    if first_ms is None or last_ms is None:
        return 1000
    wanted = (last_ms - first_ms) / _RATE_POINTS / 1000
    for seconds in (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86400):
        if seconds >= wanted:
            return seconds * 1000
    return 7 * 86400 * 1000
