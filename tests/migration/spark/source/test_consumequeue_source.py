"""The data source `consumequeue` reads what RocketMQ wrote, in both forms, and what we write."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.errors import AnalysisException

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.dispatch_batch import build_batch
from migration.formats.unit import BLANK_UNIT, UNIT_SIZE, pack_units
from migration.spark.columns import CONSUMEQUEUE
from migration.spark.errors import QueueLayoutError
from migration.spark.queues.unit_files import group_files, list_files, read_units
from migration.spark.queues.unit_rows import key_ranges, open_units, read_rows
from store.format.record import dispatch_request
from tests.migration.spark.logs import write_log
from tests.support.golden_store import STORES, expected, extract_golden

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def load(spark: SparkSession, path: Path, form: str, units: int = 100) -> DataFrame:
    reader = spark.read.format("consumequeue").option("format", form)
    return reader.option("maxUnitsPerPartition", units).load(str(path))


def golden_units(name: str, form: str) -> list[tuple[Any, ...]]:
    """Units that RocketMQ itself counts as part of its queues."""
    return sorted(
        (queue["topic"], queue["queue_id"], *unit)
        for queue in expected(name)["queues"]["files" if form == "file" else "rocksdb"]
        for unit in queue["units"]
    )


@pytest.mark.parametrize("name", STORES)
def test_databases_of_rocketmq(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = extract_golden(tmp_path, name)
    rows = load(spark, root / "consumequeue", "rocksdb").collect()
    found = {tuple(row)[:7] for row in rows}
    # Below the start of the log the database may still hold expired units.
    start = expected(name)["log"]["start"]
    assert sorted(row for row in found if row[3] >= start) == golden_units(name, "rocksdb")
    assert {row.expiry_stamp_s for row in rows} == {None}


@pytest.mark.parametrize("name", ["both", "prefilled"])
def test_file_queues_of_rocketmq(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = extract_golden(tmp_path, name)
    rows = load(spark, root / "consumequeue", "file").collect()
    found = sorted(tuple(row)[:6] for row in rows)
    assert found == [unit[:6] for unit in golden_units(name, "file")]
    assert {row.store_time_ms for row in rows} == {None}


def test_our_own_database_with_its_stamps(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path / "log", 300)
    requests = [dispatch_request(row.record, 0) for row in writer.rows]
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    engine.write(build_batch(requests, writer.end))
    engine.close()
    frame = load(spark, tmp_path / "kvcq", "rocksdb", units=20)
    assert frame.columns == CONSUMEQUEUE.names
    assert frame.rdd.getNumPartitions() > 10
    wanted = []
    for request in requests:
        for name, queue_id, offset in [
            (request.topic, request.queue_id, request.queue_offset),
            *((name, 0, offset) for name, offset in request.light_queues),
        ]:
            fields = (request.physical_offset, request.record_size, request.tag_code)
            time = request.store_time_ms
            wanted.append((name, queue_id, offset, *fields, time, time // 1000))
    assert sorted(tuple(row) for row in frame.collect()) == sorted(wanted)
    with open_units(tmp_path / "kvcq") as opened:
        assert KvConsumeQueueStore(opened).dispatched_offset == writer.end


@pytest.mark.parametrize("max_units", [1, 7, 30, 1000])
def test_key_ranges_part_all_keys_without_gap_or_overlap(tmp_path: Path, max_units: int) -> None:
    writer = write_log(tmp_path / "log", 200)
    requests = [dispatch_request(row.record, 0) for row in writer.rows]
    engine = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    try:
        batch = build_batch(requests, writer.end)
        # A queue without a bounds row is still read.
        batch.puts["offset"] = [*batch.puts["offset"]][3:]
        engine.write(batch)
        seen = []
        for keys in key_ranges(engine, max_units):
            part = [row for rows in read_rows(engine, keys) for row in rows]
            assert len(part) <= max_units or max_units < 1000
            seen += part
        assert seen == sorted(batch.puts["default"])
    finally:
        engine.close()


def test_blanks_zeros_and_holes_are_no_units(tmp_path: Path) -> None:
    queue = tmp_path / "t" / "0"
    queue.mkdir(parents=True)
    size = 4096 * UNIT_SIZE
    data = BLANK_UNIT * 3 + pack_units([100, 95, 7, 200, 95, 8]) + bytes(5 * UNIT_SIZE)
    path = queue / f"{size:020d}"
    with path.open("wb") as file:
        file.write(data)
        # Begins in the last bytes of one page of data and ends in the next.
        file.seek(size - 3 * UNIT_SIZE)
        file.write(pack_units([300, 96, 9]))
        file.truncate(size)
    (tmp_path / "CURRENT").write_text("a file beside the topics")
    (tmp_path / "t" / "notes").mkdir()
    (file_of,) = list_files(tmp_path)
    found = [
        (int(offset), *unit.tolist())
        for offsets, units in read_units(file_of)
        for offset, unit in zip(offsets, units, strict=True)
    ]
    assert found == [(4099, 100, 95, 7), (4100, 200, 95, 8), (8189, 300, 96, 9)]


def test_files_are_grouped_up_to_a_size(tmp_path: Path) -> None:
    for queue_id in range(10):
        queue = tmp_path / "t" / str(queue_id)
        queue.mkdir(parents=True)
        (queue / f"{0:020d}").write_bytes(bytes(8192))
    files = list_files(tmp_path)
    assert [len(group) for group in group_files(files, 30_000)] == [3, 3, 3, 1]
    assert [len(group) for group in group_files(files, 1)] == [1] * 10


def test_a_directory_that_holds_no_queues_is_refused(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(QueueLayoutError, match="no such directory"):
        list_files(tmp_path / "missing")
    with pytest.raises(AnalysisException, match="no database there"):
        load(spark, tmp_path, "rocksdb").collect()
    assert load(spark, tmp_path, "file").count() == 0
    (tmp_path / "t" / "0").mkdir(parents=True)
    (tmp_path / "t" / "0" / "00000000000000000007").write_bytes(b"")
    with pytest.raises(AnalysisException, match="name is not a queue file's"):
        load(spark, tmp_path, "file").collect()
