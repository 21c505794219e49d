"""Messages as Parquet."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from migration.columnar.liveness import Liveness
from migration.spark.errors import PipelineError
from migration.spark.jobs.messages import MessageChoice
from migration.spark.jobs.to_parquet import export
from tests.migration.spark.logs import write_log
from tests.support.log_writer import PREPARED, Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

DAY_MS = 86_400_000


def test_messages_are_written_by_topic_and_day(spark: SparkSession, tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", 1 << 16)
    for index in range(40):
        topic = ("plain", "%RETRY%a=b")[index % 2]
        time_ms = 1_700_000_000_000 + index % 3 * DAY_MS
        properties = {"KEYS": f"k{index}", "TAGS": "T"}
        writer.append(Entry(topic, bytes([index]), properties=properties, store_time_ms=time_ms))
    writer.append(Entry(sys_flag=PREPARED))
    writer.flush()
    output = tmp_path / "out"
    result = export(spark, MessageChoice(log=tmp_path / "log"), output)
    assert (result.messages, result.topics) == (40, 2)
    days = sorted(path.name for path in (output / "topic=plain").iterdir())
    assert days == ["day=2023-11-14", "day=2023-11-15", "day=2023-11-16"]
    rows = spark.read.parquet(str(output)).orderBy("physical_offset").collect()
    assert [row.topic for row in rows] == [row.entry.topic for row in writer.rows[:40]]
    assert [bytes(row.body) for row in rows] == [row.entry.body for row in writer.rows[:40]]
    assert [row.properties for row in rows] == [{}] * 40
    assert rows[5]["keys"] == ["k5"]
    assert rows[1].store_time.timestamp() * 1000 == writer.rows[1].entry.store_time_ms


def test_a_part_of_the_messages_and_no_silent_overwriting(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = write_log(tmp_path / "log", 120)
    begin, end = (writer.rows[index].entry.store_time_ms for index in (20, 90))
    choice = MessageChoice(
        log=tmp_path / "log", topics=("topic-0", "topic-1"), begin_ms=begin, end_ms=end
    )
    output = tmp_path / "out"
    wanted = [row for row in writer.rows[20:91] if row.entry.topic != "topic-2"]
    assert export(spark, choice, output).messages == len(wanted)
    with pytest.raises(PipelineError, match="is not empty"):
        export(spark, choice, output)
    later = writer.rows[50].physical_offset
    # A topic that was made again begins later; one that is not known is gone.
    alive = MessageChoice(log=tmp_path / "log", liveness=Liveness({"topic-1": later}))
    result = export(spark, alive, output, overwrite=True)
    wanted = [row for row in writer.rows[50:] if row.entry.topic == "topic-1"]
    assert (result.messages, result.topics) == (len(wanted), 1)


def test_nothing_to_export_is_no_error(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    result = export(spark, MessageChoice(log=tmp_path / "log"), tmp_path / "out")
    assert (result.messages, result.topics) == (0, 0)
