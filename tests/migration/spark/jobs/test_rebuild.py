"""A rebuild writes the rows of live dispatch, byte for byte."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark", reason="the spark extra is not installed")

from pyspark.errors import PythonException

from kvcq.engine.rocks import RocksEngine, SstFile
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.keys import BOUNDS, FAMILIES, INDEX, UNITS
from migration.columnar.errors import LogLayoutError
from migration.spark.errors import PipelineError
from migration.spark.jobs import on_stores
from migration.spark.jobs.rebuild_tasks import SortedFile
from migration.spark.jobs.rebuilding import (
    RebuildResult,
    RebuildSettings,
    check_disjoint,
    ingest,
    rebuild,
    replace_queues,
)
from migration.spark.jobs.store_parts import find_parts, read_ends, read_liveness
from store.config import StoreConfig
from store.errors import CorruptRecordError
from store.format.record import dispatch_request
from store.message import Message
from tests.migration.spark.logs import write_log, write_odd_log
from tests.support.fake_clock import FakeClock
from tests.support.golden_store import STORES, expected, extract_golden
from tests.support.log_writer import Entry, LogWriter
from tests.support.migrating import (
    LIGHT,
    config,
    differences,
    done,
    live,
    make_on_files,
    messages,
    open_store,
)
from tests.support.rebuild import differences as differences_to_rebuilt
from tests.support.stores import open_small
from tests.support.tree import copy_open

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

    from kvcq.engine import Pair
    from store.message_store import MessageStore

pytestmark = pytest.mark.spark

Rows = dict[str, list["Pair"]]


def all_rows(engine: RocksEngine) -> Rows:
    return {family: engine.scan(family, b"", b"\xff") for family in FAMILIES}


def rows_at(path: Path) -> Rows:
    engine = RocksEngine.open_read_only(path, DERIVED)
    try:
        return all_rows(engine)
    finally:
        engine.close()


def rebuilt_rows(result: RebuildResult, path: Path) -> Rows:
    engine = RocksEngine.open(path, DERIVED)
    try:
        ingest(engine, result)
        return all_rows(engine)
    finally:
        engine.close()


def dispatched_rows(records: list[bytes], end: int) -> Rows:
    """What one dispatch of all the records writes."""
    requests = []
    for record in records:
        try:
            request = dispatch_request(record, 0)
        except CorruptRecordError:
            continue
        if request.queue_id >= 0 and request.queue_offset >= 0:
            requests.append(request)
    batch = build_batch(requests, end)
    # A later row for one key replaces an earlier one.
    return {family: sorted(dict(batch.puts[family]).items()) for family in FAMILIES}


def settings(tmp_path: Path, log: Path, **others: object) -> RebuildSettings:
    options = {"partition_bytes": 4000, "rows_per_file": 60, **others}
    return RebuildSettings(log=log, output=tmp_path / "sst", **options)  # type: ignore[arg-type]


def test_every_kind_of_record(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_odd_log(tmp_path / "log")
    poison = [
        Entry(queue_id=-1, properties={"KEYS": "poison"}),
        Entry(queue_offset=-7, properties={"KEYS": "poison"}),
        Entry(properties=b"KEYS\x01\xff\xfe\x02"),
    ]
    writer._next.clear()
    raw = LogWriter(tmp_path / "unused", 1 << 16, crc_item=False)
    for entry in poison[:2]:
        writer.append(entry)
    bad = raw._encode(Entry(properties=b"KEYS\x01kk\x02TAGS\x01t\x02"), writer.end).record
    bad = bad.replace(b"kk", b"\xff\xfe")
    writer.write_raw(bad)
    writer.append(Entry(properties={"KEYS": "behind"}))
    writer.flush()
    result = rebuild(spark, settings(tmp_path, tmp_path / "log"))
    wanted = dispatched_rows([row.record for row in writer.rows], writer.end)
    assert rebuilt_rows(result, tmp_path / "db") == wanted
    assert not any(b"poison" in key for key, _ in wanted[INDEX])
    assert (result.units, result.index_rows) == (len(wanted[UNITS]), len(wanted[INDEX]))
    assert (result.log_end, result.queues) == (writer.end, len(wanted[BOUNDS]) - 1)


def test_many_files_with_disjoint_keys(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path / "log", 1500, segment_bytes=1 << 15)
    result = rebuild(spark, settings(tmp_path, tmp_path / "log"))
    assert len(result.paths(UNITS)) > 8
    assert len(result.paths(INDEX)) > 8
    check_disjoint(list(result.files))
    # Balanced, for the cuts come from all over the log.
    assert max(file.sst.rows for file in result.files) < 400
    wanted = dispatched_rows([row.record for row in writer.rows], writer.end)
    assert rebuilt_rows(result, tmp_path / "db") == wanted


def test_the_end_that_is_given_is_the_checkpoint(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path / "log", 100)
    end = writer.rows[60].physical_offset
    result = rebuild(spark, settings(tmp_path, tmp_path / "log", end=end))
    wanted = dispatched_rows([row.record for row in writer.rows[:60]], end)
    assert rebuilt_rows(result, tmp_path / "db") == wanted


def test_files_can_begin_where_a_database_ends(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path / "log", 100)
    middle = writer.rows[60].physical_offset
    result = rebuild(spark, settings(tmp_path, tmp_path / "log", begin=middle))
    assert (result.log_start, result.log_end) == (middle, writer.end)
    wanted = dispatched_rows([row.record for row in writer.rows[60:]], writer.end)
    assert rebuilt_rows(result, tmp_path / "db") == wanted
    with pytest.raises(LogLayoutError, match="outside the log"):
        rebuild(spark, settings(tmp_path, tmp_path / "log", begin=writer.end + 1))


def test_of_two_records_for_one_place_the_later_counts(spark: SparkSession, tmp_path: Path) -> None:
    writer = LogWriter(tmp_path / "log", 1 << 16)
    for offset in (0, 1, 2, 1, 2, 0):
        writer.append(Entry(queue_offset=offset, body=bytes(offset)))
    writer.flush()
    result = rebuild(spark, settings(tmp_path, tmp_path / "log"))
    wanted = dispatched_rows([row.record for row in writer.rows], writer.end)
    assert len(wanted[UNITS]) == 3
    assert rebuilt_rows(result, tmp_path / "db") == wanted


def test_an_empty_log_gives_a_checkpoint_alone(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    result = rebuild(spark, settings(tmp_path, tmp_path / "log"))
    assert rebuilt_rows(result, tmp_path / "db") == dispatched_rows([], 0)


@pytest.mark.parametrize("name", STORES)
def test_logs_of_rocketmq(spark: SparkSession, tmp_path: Path, name: str) -> None:
    root = extract_golden(tmp_path, name)
    log = expected(name)["log"]
    result = rebuild(spark, settings(tmp_path, root / "commitlog", partition_bytes=40_000))
    assert (result.log_start, result.log_end) == (log["start"], log["end"])
    found = {key: value[:28] for key, value in rebuilt_rows(result, tmp_path / "db")[UNITS]}
    wanted = {
        struct.pack(f">i1s{len(topic)}s1si1sq", len(topic), b"\1", topic, b"\1", *rest): value
        for topic, *rest, value in (
            (
                queue["topic"].encode(),
                queue["queue_id"],
                b"\1",
                unit[0],
                struct.pack(">qiqq", *unit[1:]),
            )
            for queue in expected(name)["queues"]["rocksdb"]
            for unit in queue["units"]
        )
    }
    assert found == wanted


def test_a_live_store_with_deletions(spark: SparkSession, tmp_path: Path) -> None:
    config = StoreConfig(root=tmp_path / "store", segment_bytes=1 << 16)
    store = open_store(config, clock=FakeClock())
    try:
        fill(store)
        store.delete_topic("gone")
        store.delete_topic("again")
        store.delete_topic("%LMQ%quiet")
        fill(store, ("again", "kept"))
    finally:
        store.close()
    before = rows_at(tmp_path / "store" / "kvcq")
    assert len(before[UNITS]) > 100
    liveness = read_liveness(find_parts(tmp_path / "store"))
    result = rebuild(spark, settings(tmp_path, tmp_path / "store" / "commitlog", liveness=liveness))
    replace_queues(tmp_path / "store", result)
    assert rows_at(tmp_path / "store" / "kvcq") == before
    assert sorted(path.name for path in (tmp_path / "store").iterdir() if "kvcq" in path.name) == [
        "kvcq"
    ]
    again = open_store(config, clock=FakeClock())
    try:
        assert len(again.pull("kept", 0, 0, max_messages=100).records) == 60
    finally:
        again.close()


def fill(store: MessageStore, topics: tuple[str, ...] = ("gone", "again", "kept")) -> None:
    for topic in topics:
        # A unit in a light queue outlives the topic of its message.
        names = ("%LMQ%quiet", f"%LMQ%{topic}")
        for index in range(30):
            light = names if index % 3 == 0 else ()
            message = Message(topic, b"x", tag="T", keys=(f"k{index}", topic), light_queues=light)
            store.put([message])


def test_a_running_store_takes_the_files_as_its_history(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "store"
    make_on_files(root)
    with open_store(config(root)) as store:
        store.put(messages(0, 900))
        store.delete_topic("audit-us")
        store.flush()
        migration = live(store)
        # Its own backfill waits until the files are in.
        monkeypatch.setattr(type(migration), "_fill", lambda _: None)
        migration.start()
        parts = find_parts(root)
        end = store.flushed_offset
        # From the store that runs: its database has not been flushed since.
        store.put(messages(900, 50))  # goes on meanwhile
        store.delete_topics(["payments", LIGHT])
        liveness = read_liveness(parts)
        result = rebuild(spark, settings(tmp_path, parts.log, end=end, liveness=liveness))
        files = {family: result.paths(family) for family in (UNITS, INDEX)}
        files[BOUNDS] = [result.bounds.sst.path]
        taken = migration.ingest(files, end, start_offset=0)
        assert taken
        assert not migration.ingest(files, end, start_offset=0)
        monkeypatch.undo()
        job = migration.resume()
        assert job is not None
        done(job)
        assert differences(store) == []


def test_queues_whose_messages_are_all_gone_go_on_where_they_ended(
    spark: SparkSession, tmp_path: Path
) -> None:
    root, clock = tmp_path / "store", FakeClock()
    names = ("gone", "ended", "%LMQ%ended")
    with open_store(StoreConfig(root=root, segment_bytes=1 << 16), clock=clock) as store:
        for topic in names[:2]:
            store.put([Message(topic, b"x", light_queues=(f"%LMQ%{topic}",))] * 3)
        for _ in range(100):
            store.put([Message("kept", b"x" * 1000)])
        store.flush()
        clock.advance(100 * 3600)
        assert store._services.retention.run_once(now=True) > 0
        store.delete_topic("gone")
        bounds = store.bounds([(name, 0) for name in (*names[1:], "kept")])
    before = rows_at(root / "kvcq")[BOUNDS]
    parts = find_parts(root)
    liveness = read_liveness(parts)
    ends = read_ends(parts, liveness)
    assert {end.topic for end in ends} == {"ended", "%LMQ%ended", "%LMQ%gone"}
    result = rebuild(spark, settings(tmp_path, parts.log, liveness=liveness, ends=ends))
    replace_queues(root, result)
    assert rows_at(root / "kvcq")[BOUNDS] == before
    with open_store(StoreConfig(root=root, segment_bytes=1 << 16), clock=clock) as store:
        assert store.bounds([(name, 0) for name in (*names[1:], "kept")]) == bounds


@pytest.mark.parametrize("lost", ["what was not flushed", "the database"])
def test_a_store_that_was_killed_loses_nothing_of_its_state(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    """The queues of the files end where the log ends, and the rows of state before that."""
    root, image = tmp_path / "store", tmp_path / "killed"
    with open_small(root, FakeClock()) as store:
        store.put([Message("A", b"x")] * 10)
        store.snapshots.take()
        store.commit_offsets("g", [("A", 0, 7)])
        store.create_topics([("B", 3), ("gone", 1)])
        store.put([Message("gone", b"x")])
        store.delete_topic("gone")
        copy_open(root, image)
    if lost == "the database":
        (image / "kvcq" / "CURRENT").write_text("x")
    on_stores.rebuild(spark, image)
    with open_small(image, FakeClock()) as store:
        assert store.list_committed("g", None, 9) == [("A", 0, 7)]
        assert [each.name for each in store.list_topics("", None, 9)] == ["A", "B"]
        assert differences_to_rebuilt(store) == []


def test_damage_in_the_log_ends_the_rebuild(spark: SparkSession, tmp_path: Path) -> None:
    writer = write_log(tmp_path / "log", 300, segment_bytes=1 << 14)
    path = writer.path_of(0)
    data = bytearray(path.read_bytes())
    data[writer.rows[5].physical_offset + 4] ^= 1
    path.write_bytes(data)
    with pytest.raises(PythonException, match="no record at physical offset"):
        rebuild(spark, settings(tmp_path, tmp_path / "log"))


def test_files_that_overlap_are_refused(tmp_path: Path) -> None:
    one = SortedFile(UNITS, SstFile(tmp_path / "one", 1, b"a", b"c"), [])
    other = SortedFile(UNITS, SstFile(tmp_path / "other", 1, b"c", b"d"), [])
    with pytest.raises(PipelineError, match="one and other overlap"):
        check_disjoint([one, other])
