"""The messages of a log that a consumer could read, as a DataFrame."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from migration.columnar import ALL_LIVE, Liveness
from migration.spark.columns import chosen, struct_of
from migration.spark.source import register_sources

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, kw_only=True)
class MessageChoice:
    """Which messages to read. Times are ms since 1970, both inclusive."""

    log: Path
    topics: tuple[str, ...] = ()  # all when empty
    begin_ms: int | None = None
    end_ms: int | None = None
    liveness: Liveness = ALL_LIVE
    skip_damaged: bool = False  # continue at the next record


def read_messages(spark: SparkSession, choice: MessageChoice, columns: list[str]) -> DataFrame:
    """The `columns` of messages that are in a queue of a live topic."""
    from pyspark.sql import functions as F

    register_sources(spark)
    schema = struct_of(chosen(*columns, "in_queue", "topic", "physical_offset"))
    options = {
        "topic": ",".join(choice.topics),
        "minStoreTimeMs": choice.begin_ms,
        "maxStoreTimeMs": choice.end_ms,
    }
    reader = spark.read.format("commitlog").schema(schema)
    for name, value in options.items():
        if value not in ("", None):
            reader = reader.option(name, str(value))
    frame = reader.option("failOnCorrupt", str(not choice.skip_damaged)).load(str(choice.log))
    frame = frame.where(F.col("in_queue"))
    if choice.liveness.topics is not None:
        rows = list(choice.liveness.topics.items())
        known = spark.createDataFrame(rows, "topic string, live_from bigint")
        frame = frame.join(F.broadcast(known), "topic").where("physical_offset >= live_from")
    return frame.select(*columns)
