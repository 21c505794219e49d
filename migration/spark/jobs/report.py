"""Figures about a log: topics, queues, rates, sizes, keys, holes, duplicates, retention.

Computed by Spark, as tables of pandas; report_page.py makes them a page.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migration.columnar import LogLayout, read_layout
from migration.spark.jobs.messages import MessageChoice, read_messages
from migration.spark.progress import watched
from store.base import Progress, no_progress

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

#: Rows of the tables that would grow without end.
TOP_KEYS = 20
TOP_QUEUES = 200
TOP_TOPICS = 500
#: Topics that have a curve, and its points.
_CURVES = 8
_RATE_POINTS = 96
_STEPS_S = (1, 5, 15, 60, 300, 900, 3600, 4 * 3600, 86400, 7 * 86400)
_TOPIC_COLUMNS = ("topic", "queue_id", "record_size", "store_time_ms", "tag", "keys")


@dataclass(frozen=True)
class LogReport:
    """All figures. Times are ms since 1970."""

    layout: LogLayout
    messages: int
    bytes: int
    topic_count: int
    queue_count: int
    holes: int
    duplicates: int
    topics: pd.DataFrame  # the largest, by messages
    broken_queues: pd.DataFrame  # those that do not hold each offset from min to max once
    keys: pd.DataFrame  # those used most
    sizes: pd.DataFrame  # messages by size: of up to so many bytes
    rates: pd.DataFrame  # messages a second, one column a topic, by begin of the step

    def as_json(self) -> dict[str, Any]:
        """The figures of the whole log, for machines."""
        return {
            "messages": self.messages,
            "bytes": self.bytes,
            "topics": self.topic_count,
            "queues": self.queue_count,
            "holes": self.holes,
            "duplicates": self.duplicates,
        }


def gather_report(
    spark: SparkSession, choice: MessageChoice, *, progress: Progress = no_progress
) -> LogReport:
    """Compute the figures: four passes over the log, each over the columns that it needs.

    Changes nothing. A damaged log fails it, unless the choice leaves that out.
    """
    from pyspark.sql import functions as F

    with watched(spark, "topics", progress):
        by_topic = _topics(read_messages(spark, choice, [*_TOPIC_COLUMNS])).cache()
        topics = by_topic.orderBy(F.desc("messages"), "topic").limit(TOP_TOPICS).toPandas()
        sums = (F.sum("messages"), F.sum("bytes"), F.count("*"), F.min("oldest"), F.max("newest"))
        messages, size, topic_count, oldest, newest = by_topic.agg(*sums).collect()[0]
        by_topic.unpersist()
    with watched(spark, "queues", progress):
        offsets = read_messages(spark, choice, ["topic", "queue_id", "queue_offset"])
        by_queue = _queues(offsets).cache()
        totals = by_queue.agg(F.count("*"), F.sum("holes"), F.sum("duplicates")).collect()[0]
        broken = by_queue.where("holes > 0 or duplicates > 0").orderBy("topic", "queue_id")
        broken_queues = broken.limit(TOP_QUEUES).toPandas()
        by_queue.unpersist()
    with watched(spark, "keys", progress):
        words = read_messages(spark, choice, ["topic", "keys"])
        uses = words.select("topic", F.explode("keys").alias("key")).groupBy("topic", "key")
        counted = uses.agg(F.count("*").alias("messages"))
        keys = counted.orderBy(F.desc("messages"), "topic", "key").limit(TOP_KEYS).toPandas()
    with watched(spark, "rates", progress):
        step_s = _step((newest or 0) - (oldest or 0))
        times = read_messages(spark, choice, ["topic", "store_time_ms", "record_size"])
        curves = _curves(times, topics.topic[:_CURVES].tolist(), step_s).toPandas()
    return LogReport(
        layout=read_layout(choice.log, end=choice.log_end),
        messages=messages or 0,
        bytes=size or 0,
        topic_count=topic_count,
        queue_count=totals[0],
        holes=totals[1] or 0,
        duplicates=totals[2] or 0,
        topics=topics,
        broken_queues=broken_queues,
        keys=keys,
        sizes=curves.groupby("size", as_index=False).messages.sum(),
        rates=curves.pivot_table("messages", "begin_ms", "topic", "sum") / step_s,
    )


def _topics(frame: DataFrame) -> DataFrame:
    from pyspark.sql import functions as F

    return frame.groupBy("topic").agg(
        F.count("*").alias("messages"),
        F.sum("record_size").alias("bytes"),
        F.count_distinct("queue_id").alias("queues"),
        F.max("record_size").alias("largest"),
        F.approx_count_distinct("tag").alias("tags"),
        F.count_if(F.size("keys") > 0).alias("keyed"),
        F.min("store_time_ms").alias("oldest"),
        F.max("store_time_ms").alias("newest"),
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
    holes = F.col("max_offset") - F.col("min_offset") + 1 - F.col("places")
    duplicates = F.col("messages") - F.col("places")
    return queues.withColumns({"holes": holes, "duplicates": duplicates}).drop("places")


def _curves(frame: DataFrame, shown: list[str], step_s: int) -> DataFrame:
    """Messages by topic (null for those not shown), time and size."""
    from pyspark.sql import functions as F

    step_ms = 1000 * step_s
    return frame.groupBy(
        F.when(F.col("topic").isin(shown), F.col("topic")).alias("topic"),
        (F.floor(F.col("store_time_ms") / step_ms) * step_ms).alias("begin_ms"),
        F.pow(2, F.ceil(F.log2("record_size"))).cast("bigint").alias("size"),
    ).agg(F.count("*").alias("messages"))


def _step(length_ms: int) -> int:
    """A round length of time, s, that cuts the log into about _RATE_POINTS."""
    wanted = length_ms / _RATE_POINTS / 1000
    return next((seconds for seconds in _STEPS_S if seconds >= wanted), _STEPS_S[-1])
