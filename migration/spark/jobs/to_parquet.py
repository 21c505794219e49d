"""Messages to Parquet, one directory for each topic and day.

`<output>/topic=<name>/day=<yyyy-mm-dd>/*.parquet`, days in UTC by store time. Columns:

| column                   | type          |                                              |
|--------------------------|---------------|----------------------------------------------|
| queue_id, queue_offset   | int, bigint   |                                              |
| physical_offset          | bigint        |                                              |
| store_time, born_time    | timestamp     | to the millisecond                           |
| tag                      | string        | null without one                             |
| keys                     | array<string> | UNIQ_KEY, then KEYS                          |
| light_queues             | array<string> |                                              |
| flag, sys_flag           | int           |                                              |
| born_host                | string        |                                              |
| properties               | map           | string to string, as columns.py says         |
| body                     | binary        | as it was sent, see columns.py               |
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from migration.spark.errors import PipelineError
from migration.spark.jobs.messages import MessageChoice, read_messages
from migration.spark.progress import watched
from store.base import Progress, no_progress

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

_AS_THEY_ARE = (
    "queue_id",
    "queue_offset",
    "physical_offset",
    "tag",
    "keys",
    "light_queues",
    "flag",
    "sys_flag",
    "born_host",
    "body",
    "properties",
)


@dataclass(frozen=True)
class ExportResult:
    output: Path
    messages: int
    topics: int
    seconds: float

    def as_json(self) -> dict[str, Any]:
        return {
            "output": str(self.output),
            "messages": self.messages,
            "topics": self.topics,
            "seconds": round(self.seconds, 3),
        }


def export(
    spark: SparkSession,
    choice: MessageChoice,
    output: Path,
    *,
    overwrite: bool = False,
    progress: Progress = no_progress,
) -> ExportResult:
    """Write the chosen messages to the directory `output`.

    With `overwrite` the content of `output` is replaced; otherwise PipelineError is raised unless
    it is new or empty. The export is complete once the file `_SUCCESS` exists. After a crash, run
    it again with `overwrite`.
    """
    from pyspark.sql import functions as F

    if not overwrite and output.exists() and any(output.iterdir()):
        raise PipelineError(f"{output} is not empty: --overwrite replaces what is there")
    began = time.monotonic()
    columns = [*_AS_THEY_ARE, "topic", "store_time_ms", "born_time_ms"]
    frame = read_messages(spark, choice, columns)
    shaped = frame.select(
        *_AS_THEY_ARE,
        F.timestamp_millis("store_time_ms").alias("store_time"),
        F.timestamp_millis("born_time_ms").alias("born_time"),
        "topic",
        F.to_date(F.timestamp_millis("store_time_ms")).alias("day"),
    )
    # Sorted, so that a task has one output file open at a time.
    shaped = shaped.sortWithinPartitions("topic", "day", "physical_offset")
    with watched(spark, "export", progress):
        writer = shaped.write.partitionBy("topic", "day").option("compression", "zstd")
        writer.mode("overwrite").parquet(str(output))
    has_files = any(output.glob("topic=*"))
    messages, topics = 0, 0
    if has_files:
        written = spark.read.parquet(str(output))
        row = written.agg(F.count("*"), F.count_distinct("topic")).collect()[0]
        messages, topics = row[0], row[1]
    return ExportResult(output, messages, topics, time.monotonic() - began)
