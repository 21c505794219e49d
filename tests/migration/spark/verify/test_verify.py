"""A verification finds every planted difference, exactly, and none where there is none."""

from __future__ import annotations

import json
import pickle
from typing import TYPE_CHECKING

import pytest

from tests.support.rows import index_key, pack_unit

pytest.importorskip("pyspark", reason="the spark extra is not installed")

import numpy as np
import pyarrow as pa
from pyspark.errors import PythonException

from kvcq.engine import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.inspect import Kind, Remedy
from kvcq.tables.keys import BOUNDS, INDEX, UNITS, max_key, unit_key
from kvcq.tables.values import expiry_stamp, pack_max, unpack_unit
from migration.formats.unit import pack_units
from migration.spark.columns import CONSUMEQUEUE
from migration.spark.errors import SourceOptionError
from migration.spark.verify.compare import VerifySettings, verify
from migration.spark.verify.digest import Digest, buckets_of_units
from migration.spark.verify.result import Difference, VerifyResult
from tests.migration.spark.logs import write_log
from tests.migration.spark.queues import put_unit, write_database, write_files
from tests.support.golden_store import extract_golden
from tests.support.log_writer import Entry, LogWriter, Row

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession


class Store:
    """A log and the queues of it in both forms."""

    def __init__(self, root: Path, count: int = 300) -> None:
        self.root = root
        self.log, self.files, self.database = root / "log", root / "consumequeue", root / "kvcq"
        self.writer: LogWriter = write_log(self.log, count, segment_bytes=1 << 14)
        write_files(self.files, self.writer)
        write_database(self.database, self.writer)

    def settings(self, **others: object) -> VerifySettings:
        paths = {"log": self.log, "files": self.files, "database": self.database}
        sizes = {"partition_bytes": 9000, "units_per_partition": 100}
        return VerifySettings(**{**paths, **sizes, **others})  # type: ignore[arg-type]

    def edit(self, row: Row, value: bytes | None) -> None:
        """Change or remove the unit of a record in the database."""
        engine = RocksEngine.open(self.database, DERIVED)
        key = unit_key(*row.key)
        try:
            if value is None:
                engine.write(KvBatch(deletes=[(UNITS, key)]))
            else:
                engine.write(KvBatch(puts={UNITS: [(key, value)]}))
        finally:
            engine.close()

    def value(self, row: Row) -> bytes:
        engine = RocksEngine.open_read_only(self.database, DERIVED)
        try:
            found = engine.get(UNITS, unit_key(*row.key))
            assert found is not None
            return found
        finally:
            engine.close()


def told(result: VerifyResult) -> list[tuple[object, ...]]:
    """Findings, as tuples."""
    return [
        (
            *(each.topic, each.queue_id, each.queue_offset, each.place, each.side),
            *(each.kind, each.expected, each.found),
        )
        for each in result.first
    ]


def pair(number: int) -> tuple[str, str]:
    """What is expected, and what is found one above."""
    return str(number), str(number + 1)


@pytest.mark.spark
def test_equal_sources(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(tmp_path)
    output = tmp_path / "differences"
    result = verify(spark, store.settings(output=output))
    assert result.equal
    light = sum(len(row.light) for row in store.writer.rows)
    assert result.units == dict.fromkeys(("log", "files", "rocksdb"), 300 + light)
    assert (result.begin, result.end, result.bad_buckets) == (0, store.writer.end, 0)
    assert result.keys["log"] == result.keys["rocksdb"] > 300
    assert result.queues == 12 + 7
    assert not output.exists()
    assert "equal" in result.summary()


@pytest.mark.spark
def test_every_planted_difference_is_found(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(tmp_path)
    rows = [row for row in store.writer.rows if not row.light]
    size, tag, gone, alien, moved, stamped, timed, lost = rows[10:170:20]

    unit = unpack_unit(store.value(size))
    store.edit(size, pack_unit(unit._replace(record_size=unit.record_size + 1)))
    unit = unpack_unit(store.value(timed))
    store.edit(timed, pack_unit(unit._replace(store_time_ms=unit.store_time_ms + 1)))
    store.edit(stamped, store.value(stamped)[:-4] + b"\1\0\0\0")
    store.edit(gone, None)
    put_unit(
        store.files, *tag.key, pack_units([tag.physical_offset, len(tag.record), tag.tag_code + 1])
    )
    put_unit(store.files, *lost.key, bytes(20))
    put_unit(store.files, "alien", 0, 3, pack_units([alien.physical_offset, 200, 7]))
    put_unit(
        store.files,
        *moved.key,
        pack_units([rows[0].physical_offset, len(moved.record), moved.tag_code]),
    )

    output = tmp_path / "differences"
    result = verify(spark, store.settings(output=output))
    wanted = [
        Difference(
            *size.key, "record_size", len(size.record), len(size.record), len(size.record) + 1
        ),
        Difference(*tag.key, "tag_code", tag.tag_code, tag.tag_code + 1, tag.tag_code),
        Difference(*gone.key, "unit", 1, 1, None),
        Difference(*lost.key, "unit", 1, None, 1),
        Difference("alien", 0, 3, "unit", None, 1, None),
        Difference(
            *moved.key,
            "physical_offset",
            moved.physical_offset,
            rows[0].physical_offset,
            moved.physical_offset,
        ),
        Difference(*stamped.key, "expiry_stamp_s", stamped.entry.store_time_ms // 1000, None, 1),
        Difference(
            *timed.key,
            "store_time_ms",
            timed.entry.store_time_ms,
            None,
            timed.entry.store_time_ms + 1,
        ),
    ]
    assert told(result) == [
        ("alien", 0, 3, "unit", "files", Kind.WRONG_UNIT, "nothing", "a unit"),
        *sorted(
            [
                (*size.key, "record_size", "rocksdb", Kind.WRONG_UNIT, *pair(len(size.record))),
                (*tag.key, "tag_code", "files", Kind.WRONG_UNIT, *pair(tag.tag_code)),
                (*gone.key, "unit", "rocksdb", Kind.MISSING_UNIT, "a unit", "nothing"),
                (*lost.key, "unit", "files", Kind.MISSING_UNIT, "a unit", "nothing"),
                (
                    *(*moved.key, "physical_offset", "files", Kind.WRONG_UNIT),
                    *(str(moved.physical_offset), str(rows[0].physical_offset)),
                ),
                (
                    *(*stamped.key, "expiry_stamp_s", "rocksdb", Kind.WRONG_UNIT),
                    *(str(stamped.entry.store_time_ms // 1000), "1"),
                ),
                (
                    *(*timed.key, "store_time_ms", "rocksdb", Kind.WRONG_UNIT),
                    *pair(timed.entry.store_time_ms),
                ),
            ],
            key=lambda one: one[:4],
        ),
    ]
    assert {each.side: each.remedy for each in result.first} == {
        "files": Remedy.REBUILD_FILES,
        "rocksdb": Remedy.REBUILD_DATABASE,
    }
    assert (result.differences, result.equal) == (8, False)
    assert result.bad_buckets <= 8
    written = spark.read.parquet(str(output)).collect()
    assert {Difference(*row) for row in written} == set(wanted)
    text = result.summary()
    assert "8 differences" in text
    topic, queue_id, offset = gone.key
    where = f"topic {topic!r}, queue {queue_id}, offset {offset}"
    assert f"rocksdb: unit, {where}: missing unit: expected a unit, found nothing" in text
    document = json.loads(json.dumps(result.as_json()))
    assert document["byField"]["unit"] == 3
    assert document["first"][0]["topic"] == "alien"


@pytest.mark.spark
def test_every_planted_bound_and_index_row_is_found(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(tmp_path)
    ends = {row.key[:2]: row for row in store.writer.rows}  # a later row replaces an earlier one
    (wrong, lost, moved), other = [*ends.values()][:3], store.writer.rows[0]
    keyed = [row for row in store.writer.rows if row.keys]
    gone, stale, never = keyed[10], keyed[20], keyed[30]

    def key_of(row: Row, key: str) -> bytes:
        return index_key(row.key[0], key, row.entry.store_time_ms, row.physical_offset)

    stamp = expiry_stamp(never.entry.store_time_ms)
    rows = {
        BOUNDS: [
            (max_key(*wrong.key[:2]), pack_max(wrong.physical_offset, wrong.key[2] + 1)),
            (max_key(*moved.key[:2]), pack_max(other.physical_offset, moved.key[2])),
            (max_key("alien", 3), pack_max(other.physical_offset, 5)),
        ],
        INDEX: [
            (key_of(stale, stale.keys[0]), b"\1\0\0\0"),
            (key_of(never, "never"), stamp),
        ],
    }
    deletes = [(BOUNDS, max_key(*lost.key[:2])), (INDEX, key_of(gone, gone.keys[0]))]
    engine = RocksEngine.open(store.database, DERIVED)
    try:
        engine.write(KvBatch(puts={**rows}, deletes=deletes))
    finally:
        engine.close()

    output = tmp_path / "differences"
    result = verify(spark, store.settings(output=output))
    offset, place = ("max_offset", "max_place")
    wanted = [
        Difference(*wrong.key[:2], None, offset, wrong.key[2], None, wrong.key[2] + 1),
        Difference(*moved.key[:2], None, place, moved.physical_offset, None, other.physical_offset),
        Difference("alien", 3, None, offset, None, None, 5),
        Difference("alien", 3, None, place, None, None, other.physical_offset),
        Difference(*lost.key[:2], None, offset, lost.key[2], None, None),
        Difference(*lost.key[:2], None, place, lost.physical_offset, None, None),
        Difference(gone.key[0], None, None, "key", gone.physical_offset, None, None, gone.keys[0]),
        Difference(never.key[0], None, None, "key", None, None, never.physical_offset, "never"),
        Difference(
            stale.key[0],
            None,
            None,
            "key_stamp",
            stale.entry.store_time_ms // 1000,
            None,
            1,
            stale.keys[0],
        ),
    ]
    lost_end, wrong_end = (*lost.key[:2], None), (*wrong.key[:2], None)
    bound = (Kind.MISSING_BOUND, Kind.WRONG_BOUND)
    assert sorted(told(result), key=str) == sorted(
        [
            (*wrong_end, offset, "rocksdb", bound[1], *pair(wrong.key[2])),
            (
                *(*moved.key[:2], None, place, "rocksdb", bound[1]),
                *(str(moved.physical_offset), str(other.physical_offset)),
            ),
            ("alien", 3, None, offset, "rocksdb", bound[1], "nothing", "5"),
            *[
                (
                    "alien",
                    3,
                    None,
                    place,
                    "rocksdb",
                    bound[1],
                    "nothing",
                    str(other.physical_offset),
                )
            ],
            (*lost_end, offset, "rocksdb", bound[0], str(lost.key[2]), "nothing"),
            (*lost_end, place, "rocksdb", bound[0], str(lost.physical_offset), "nothing"),
            (
                *(gone.key[0], None, None, f"key {gone.keys[0]}", "rocksdb"),
                *(Kind.MISSING_INDEX_ROW, str(gone.physical_offset), "nothing"),
            ),
            (
                *(never.key[0], None, None, "key never", "rocksdb"),
                *(Kind.WRONG_INDEX_ROW, "nothing", str(never.physical_offset)),
            ),
            (
                *(stale.key[0], None, None, f"key_stamp {stale.keys[0]}", "rocksdb"),
                *(Kind.WRONG_INDEX_ROW, str(stale.entry.store_time_ms // 1000), "1"),
            ),
        ],
        key=str,
    )
    assert not result.equal
    assert result.by_field == {"key": 2, "key_stamp": 1, "max_offset": 3, "max_place": 3}
    written = spark.read.parquet(str(output)).collect()
    assert {Difference(*row) for row in written} == set(wanted)
    text = result.summary()
    assert f"key never, topic {never.key[0]!r}: wrong index row: expected nothing" in text
    assert "max_offset, topic 'alien', queue 3: wrong bound: expected nothing, found 5" in text


@pytest.mark.spark
def test_an_index_row_that_no_store_wrote_ends_the_verification(
    spark: SparkSession, tmp_path: Path
) -> None:
    store = Store(tmp_path, 50)
    engine = RocksEngine.open(store.database, DERIVED)
    try:
        engine.write(KvBatch(puts={INDEX: [(b"\0\0\0\x7f" + bytes(30), bytes(4))]}))
    finally:
        engine.close()
    with pytest.raises(PythonException, match="an index key whose topic length is wrong"):
        verify(spark, store.settings())


@pytest.mark.spark
def test_a_pinned_end_leaves_out_what_came_later(spark: SparkSession, tmp_path: Path) -> None:
    store = Store(tmp_path, 100)
    end = store.writer.end
    store.writer.extend([Entry() for _ in range(10)])
    store.writer.flush()
    # The database says where it stands; file queues do not.
    assert verify(spark, store.settings(files=None)).equal
    assert not verify(spark, store.settings(database=None)).equal
    assert verify(spark, store.settings(database=None, end=end)).equal
    assert verify(spark, store.settings(end=end)).equal
    # Ends of queues that went on behind it are not taken for wrong.
    assert verify(spark, store.settings(end=store.writer.rows[50].physical_offset)).equal


@pytest.mark.spark
def test_a_log_with_two_records_for_one_place_equals_its_queues(
    spark: SparkSession, tmp_path: Path
) -> None:
    writer = LogWriter(tmp_path / "log", 1 << 14)
    for offset in (0, 1, 2, 1, 2):
        writer.append(Entry(queue_offset=offset, body=bytes(offset)))
    writer.flush()
    write_database(tmp_path / "kvcq", writer)
    result = verify(spark, VerifySettings(log=tmp_path / "log", database=tmp_path / "kvcq"))
    assert result.bad_buckets > 0
    assert result.equal


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "files"), [("both", True), ("rocksdb", False), ("prefilled", True)]
)
def test_stores_of_rocketmq_agree_with_themselves(
    spark: SparkSession, tmp_path: Path, name: str, files: bool
) -> None:
    root = extract_golden(tmp_path, name)
    queues = root / "consumequeue"
    settings = VerifySettings(
        log=root / "commitlog", files=queues if files else None, database=queues
    )
    result = verify(spark, settings)
    assert result.equal
    assert min(result.units.values()) > 1000


@pytest.mark.spark
def test_there_must_be_something_to_compare_with(spark: SparkSession, tmp_path: Path) -> None:
    with pytest.raises(SourceOptionError, match="give file queues, a database, or both"):
        verify(spark, VerifySettings(log=tmp_path))


def units(count: int, **changes: int) -> pa.RecordBatch:
    table: dict[str, list[object]] = {
        "topic": ["t"] * count,
        "queue_id": [index % 3 for index in range(count)],
        "queue_offset": list(range(count)),
        "physical_offset": [index * 100 for index in range(count)],
        "record_size": [100] * count,
        "tag_code": [-7] * count,
        "store_time_ms": [index * 1000 for index in range(count)],
        "expiry_stamp_s": list(range(count)),
    }
    for name, value in changes.items():
        table[name][count // 2] = value
    return pa.RecordBatch.from_pydict(table, schema=CONSUMEQUEUE)


def digest_of(*batches: pa.RecordBatch) -> Digest:
    digest = Digest()
    for batch in batches:
        digest.add_units(batch)
    return digest


def test_a_digest_does_not_depend_on_order_or_cuts() -> None:
    batch = units(1000)
    parts = Digest()
    order = np.random.default_rng(1).permutation(1000)
    for piece in np.array_split(order, 7):
        part = digest_of(batch.take(pa.array(piece)))
        parts.merge(pickle.loads(pickle.dumps(part)))  # as it comes from an executor
    whole = digest_of(batch)
    assert whole.units.count == 1000
    assert not len(whole.differing(parts, times=True))


@pytest.mark.parametrize("name", CONSUMEQUEUE.names[3:])
def test_a_change_of_one_field_shows_in_one_bucket(name: str) -> None:
    batch = units(1000)
    one, other = digest_of(batch), digest_of(units(1000, **{name: 12345}))
    assert one.differing(other, times=True).tolist() == [buckets_of_units(batch)[500]]
    timed = name in ("store_time_ms", "expiry_stamp_s")
    assert bool(len(one.differing(other, times=False))) is not timed


def test_a_unit_that_stands_twice_shows() -> None:
    batch = units(1000)
    # Twice, so that a plain exclusive or would cancel it.
    other = digest_of(batch, batch.slice(0, 1), batch.slice(0, 1))
    assert len(digest_of(batch).differing(other, times=False)) == 1
