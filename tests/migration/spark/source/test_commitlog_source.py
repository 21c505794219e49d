"""The data source `commitlog` in a real session: batch, filters, columns, damage, stream."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.errors import AnalysisException, PythonException
from pyspark.sql import functions as F

from migration.spark.columns import COMMITLOG
from migration.spark.errors import PipelineError, SourceOptionError
from migration.spark.source.commitlog_source import (
    CommitLogStreamReader,
    PushingCommitLogReader,
    parse_options,
)
from tests.migration.spark.logs import expected, write_log, write_odd_log
from tests.support.log_writer import Entry, LogWriter

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def read(spark: SparkSession, path: Path, **options: object) -> DataFrame:
    reader = spark.read.format("commitlog")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load(str(path))


def places(frame: DataFrame) -> list[int]:
    return sorted(row[0] for row in frame.select("physical_offset").collect())


def test_all_columns_of_all_kinds_of_records(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_odd_log(tmp_path)
    frame = read(spark, tmp_path, maxBytesPerPartition=2000, verifyCrc="true")
    assert frame.columns == COMMITLOG.names
    found = {row.physical_offset: row.asDict() for row in frame.collect()}
    assert found == {row.physical_offset: in_spark(expected(row)) for row in writer.rows}


def in_spark(columns: dict[str, Any]) -> dict[str, Any]:
    """The values as a session gives them: maps, and times in the zone of this process."""
    return columns | {
        "properties": dict(columns["properties"]),
        "timestamp": columns["timestamp"].astimezone().replace(tzinfo=None),
    }


def test_the_directory_of_the_store_will_do(spark: SparkSession, tmp_path: Path) -> None:
    write_log(tmp_path / "commitlog", 20)
    for path in (tmp_path, tmp_path / "commitlog", f"file://{tmp_path}"):
        frame = spark.read.format("commitlog").schema("physical_offset bigint").load(str(path))
        assert frame.count() == 20
    with pytest.raises(AnalysisException, match=r"topics: is unknown; there is topic\b"):
        read(spark, tmp_path, topics="a").count()


def test_a_schema_given_by_the_user_chooses_the_columns(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = write_log(tmp_path, 50)
    chosen = spark.read.schema("keys array<string>, queue_id int").format("commitlog")
    rows = chosen.load(str(tmp_path)).collect()
    assert [(row.keys, row.queue_id) for row in rows] == [
        (list(row.keys), row.entry.queue_id) for row in writer.rows
    ]


@pytest.mark.parametrize(
    ("schema", "message"),
    [("colour string", "has no column 'colour'"), ("queue_id bigint", "'queue_id' is int32")],
)
def test_a_schema_that_does_not_fit_is_refused(
    spark: SparkSession, tmp_path: Path, schema: str, message: str
) -> None:
    write_log(tmp_path, 1)
    with pytest.raises(AnalysisException, match=message):
        spark.read.schema(schema).format("commitlog").load(str(tmp_path)).collect()


def test_filters_keep_exactly_what_they_say(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path, 300, segment_bytes=1 << 13)
    options = {"risingTime": "true", "maxBytesPerPartition": 3000, "pushFilters": "true"}
    middle = writer.rows[150]
    conditions: list[tuple[Any, Any]] = [
        (F.col("topic") == "topic-1", lambda r: r.entry.topic == "topic-1"),
        ((F.col("topic") == "topic-1") & (F.col("topic") == "topic-2"), lambda _: False),
        (F.col("queue_id").isin(0, 3), lambda r: r.entry.queue_id in (0, 3)),
        (
            F.col("store_time_ms") >= middle.entry.store_time_ms,
            lambda r: r.entry.store_time_ms >= middle.entry.store_time_ms,
        ),
        (
            F.col("store_time_ms") < middle.entry.store_time_ms,
            lambda r: r.entry.store_time_ms < middle.entry.store_time_ms,
        ),
        (
            F.col("physical_offset").between(middle.physical_offset, 1 << 15),
            lambda r: middle.physical_offset <= r.physical_offset <= 1 << 15,
        ),
        (F.col("physical_offset") == middle.physical_offset, lambda r: r is middle),
        (
            (F.col("queue_id") == 1) | (F.col("tag") == "Tag1"),
            lambda r: r.entry.queue_id == 1 or r.tag == "Tag1",
        ),
    ]
    for condition, holds in conditions:
        wanted = [row.physical_offset for row in writer.rows if holds(row)]
        # A DataFrame for each: Spark would mix up what they push down.
        frame = read(spark, tmp_path, **options).where(condition)
        assert places(frame) == wanted, condition


def test_without_push_down_a_frame_can_be_used_again(spark: SparkSession, tmp_path: Path) -> None:
    """The defect that keeps it off by default; with it on this loses rows on Spark 4.3.0."""
    writer = write_log(tmp_path, 100)
    frame = read(spark, tmp_path)
    both = frame.where("queue_id = 1").union(frame.where("queue_id = 2"))
    wanted = [row for row in writer.rows if row.entry.queue_id in (1, 2)]
    assert both.count() == len(wanted)
    assert frame.count() == 100


def test_options_choose_records(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path, 100)
    rows = writer.rows
    begin, end = rows[10].entry.store_time_ms, rows[80].entry.store_time_ms
    frame = read(
        spark,
        tmp_path,
        topic="topic-0,topic-2",
        queueId="1,2",
        minStoreTimeMs=begin,
        maxStoreTimeMs=end,
        minPhysicalOffset=rows[12].physical_offset,
        maxPhysicalOffset=rows[75].physical_offset,
    )
    assert places(frame) == [
        row.physical_offset
        for row in rows[12:76]
        if row.entry.topic != "topic-1" and row.entry.queue_id in (1, 2)
    ]


def test_filters_spare_segments_and_records(tmp_path: Path) -> None:
    from pyspark.sql.datasource import (
        EqualTo,
        Filter,
        GreaterThan,
        GreaterThanOrEqual,
        In,
        LessThan,
    )
    from pyspark.sql.types import IntegerType, StructType

    writer = write_log(tmp_path, 300, segment_bytes=1 << 13)
    schema = StructType().add("queue_id", IntegerType())

    def reader(*filters: Filter, **options: str) -> PushingCommitLogReader:
        made = PushingCommitLogReader(parse_options({"path": str(tmp_path), **options}), schema)
        assert list(made.pushFilters(list(filters))) == list(filters)
        return made

    everything = reader()
    segments = len(everything.partitions())
    assert segments > 4
    first = writer.rows[0].entry.store_time_ms
    by_time = LessThan(("store_time_ms",), first + 20_000)
    assert len(reader(by_time).partitions()) == segments
    assert len(reader(by_time, risingTime="true").partitions()) == 1
    late = GreaterThanOrEqual(("store_time_ms",), first + 299_000)
    assert len(reader(late, risingTime="true").partitions()) == 1
    by_place = GreaterThan(("physical_offset",), 2 << 13)
    assert len(reader(by_place).partitions()) == segments - 2
    for chosen, wanted in [
        (EqualTo(("queue_id",), 2), {2}),
        (In(("queue_id",), (1, 3)), {1, 3}),
    ]:
        made = reader(chosen)
        seen = set()
        for partition in made.partitions():
            for batch in made.read(partition):
                seen |= set(batch.column(0).to_pylist())
        assert seen == wanted


def test_an_empty_log_is_an_empty_table(spark: SparkSession, tmp_path: Path) -> None:
    assert read(spark, tmp_path).count() == 0


def test_damage_fails_the_query_and_names_the_place(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path, 300, segment_bytes=1 << 14)
    wounded = writer.rows[30]
    path = writer.path_of(wounded.physical_offset)
    data = bytearray(path.read_bytes())
    data[wounded.physical_offset] = 0xFF
    path.write_bytes(data)
    with pytest.raises(PythonException, match=f"{path.name}: no record at physical offset"):
        read(spark, tmp_path).count()
    assert read(spark, tmp_path, failOnCorrupt="false").count() == 299


def test_nothing_is_read_past_the_committed_end(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path, 100)
    end = writer.rows[60].physical_offset
    assert read(spark, tmp_path, endingOffset=end).count() == 60


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "option path: is required"),
        ({"path": "x", "verifyCrc": "yes"}, "neither true nor false"),
        ({"path": "x", "endingOffset": "-1"}, "not a whole number"),
        ({"path": "x", "queueId": "1,a"}, "not a list of queue ids"),
        ({"path": "x", "startingOffset": "soon"}, "not earliest, latest"),
    ],
)
def test_options_are_checked(options: dict[str, str], message: str) -> None:
    with pytest.raises(SourceOptionError, match=message):
        parse_options(options)


# --- stream -----------------------------------------------------------------------------------


def run_stream(spark: SparkSession, path: Path, state: Path, **options: object) -> list[list[int]]:
    """The batches of one run up to the log's end, each as physical offsets."""
    batches: list[list[int]] = []
    reader = spark.readStream.format("commitlog").schema("physical_offset bigint")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    query = (
        reader.load(str(path))
        .writeStream.foreachBatch(lambda frame, _: batches.append(places(frame)))
        .option("checkpointLocation", str(state))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return batches


def test_a_stream_reads_everything_once_over_restarts(spark: SparkSession, tmp_path: Path) -> None:
    log, state = tmp_path / "log", tmp_path / "state"
    writer = write_log(log, 200, segment_bytes=1 << 13)
    batches = run_stream(spark, log, state, maxBytesPerTrigger=9000, maxBytesPerPartition=2000)
    assert len(batches) > 2
    assert list(chain(*batches)) == [row.physical_offset for row in writer.rows]
    assert run_stream(spark, log, state) == []
    more = [writer.append(Entry(body=bytes(500))) for _ in range(40)]
    writer.flush()
    again = run_stream(spark, log, state, maxBytesPerTrigger=9000)
    assert list(chain(*again)) == [row.physical_offset for row in more]


def stream_reader(path: Path, **options: str) -> CommitLogStreamReader:
    from pyspark.sql.types import LongType, StructType

    schema = StructType().add("physical_offset", LongType())
    return CommitLogStreamReader(parse_options({"path": str(path), **options}), schema)


def test_a_stream_begins_where_it_is_told(tmp_path: Path) -> None:
    writer = write_log(tmp_path, 50)
    place = writer.rows[7].physical_offset
    assert stream_reader(tmp_path).initialOffset() == {"physical_offset": 0}
    assert stream_reader(tmp_path, startingOffset="latest").initialOffset() == {
        "physical_offset": writer.end
    }
    reader = stream_reader(tmp_path, startingOffset=str(place))
    assert reader.initialOffset() == {"physical_offset": place}
    with pytest.raises(SourceOptionError, match="outside the log"):
        stream_reader(tmp_path, startingOffset="999999999").initialOffset()


def test_a_stream_says_when_segments_went_away_unread(tmp_path: Path) -> None:
    writer = LogWriter(tmp_path, 1 << 13, start=1 << 13)
    writer.extend([Entry() for _ in range(20)])
    writer.flush()
    begin, end = {"physical_offset": 100}, {"physical_offset": writer.end}
    with pytest.raises(PipelineError, match="100 to 8192 is gone unread"):
        stream_reader(tmp_path).partitions(begin, end)
    reader = stream_reader(tmp_path, failOnDataLoss="false")
    (partition,) = reader.partitions(begin, end)
    assert sum(batch.num_rows for batch in reader.read(partition)) == 20
