"""The check of rows in RocksDB: exact about each planted fault."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.protocol import KvBatch
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.inspect.findings import Kind
from kvcq.tables.keys import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    STATE,
    UNITS,
    max_key,
    pack_i64,
    unit_key,
)
from kvcq.tables.values import pack_max, unpack_unit
from migration.check import check_store
from store.errors import StoreBusyError, UnknownTopicError
from store.message import Message
from store.state import TopicEnded, offset_key, topic_key
from tests.support.checking import database, faults, fill, flip, only
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import live_engine
from tests.support.rows import index_key, pack_unit
from tests.support.stores import open_small
from tests.support.tree import copy_open
from tests.support.until import wait_until

if TYPE_CHECKING:
    from pathlib import Path


def test_a_missing_unit(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("alpha", 1, 4))]))
    found = faults(root)
    assert {finding.kind for finding in found} == {Kind.MISSING_UNIT}
    for finding in found:
        assert (finding.topic, finding.queue_id, finding.queue_offset) == ("alpha", 1, 4)


def test_a_missing_unit_of_a_topic_that_was_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kvcq.inspect.sums._BUCKETS", 1)  # every row is looked at again
    root = tmp_path / "store"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock, 20)
        store.delete_topic("beta")
        store.create_topics([("beta", 3)])
        fill(store, clock, 12)
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(UNITS, unit_key("beta", 0, 3))]))
    found = faults(root)
    assert {finding.kind for finding in found} == {Kind.MISSING_UNIT}
    assert len(found) == 1


def test_missing_first_and_last_units(root: Path) -> None:
    with database(root) as engine:
        keys = [unit_key("alpha", 1, 0), unit_key("beta", 0, 14)]
        engine.write(KvBatch(deletes=[(UNITS, key) for key in keys]))
    kinds = {finding.kind for finding in faults(root)}
    assert kinds == {Kind.MISSING_UNIT, Kind.WRONG_BOUND}


@pytest.mark.parametrize("change", ["size", "tag", "time", "stamp", "offset"])
def test_a_wrong_unit(root: Path, change: str) -> None:
    key = unit_key("alpha", 1, 4)
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, key) or b"")
        other = unpack_unit(engine.get(UNITS, unit_key("alpha", 0, 4)) or b"")
        value = pack_unit(
            {
                "size": unit._replace(record_size=unit.record_size + 1),
                "tag": unit._replace(tag_code=1),
                "time": unit._replace(store_time_ms=unit.store_time_ms + 1),
                "stamp": unit,
                "offset": other,  # a record of another queue
            }[change]
        )
        if change == "stamp":
            value = value[:-1] + b"\x00"
        engine.write(KvBatch(puts={UNITS: [(key, value)]}))
    assert only(root, Kind.WRONG_UNIT).queue_offset == 4


def test_a_unit_that_points_at_no_record(root: Path) -> None:
    key = unit_key("alpha", 1, 4)
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, key) or b"")
        moved = unit._replace(physical_offset=unit.physical_offset + 1)
        engine.write(KvBatch(puts={UNITS: [(key, pack_unit(moved))]}))
    assert only(root, Kind.NO_RECORD).physical_offset == moved.physical_offset


def test_two_units_of_one_record(root: Path) -> None:
    # As a light queue gets them when one offset is given out twice.
    with database(root) as engine:
        value = engine.get(UNITS, unit_key("%LMQ%light", 0, 3)) or b""
        engine.write(KvBatch(puts={UNITS: [(unit_key("%LMQ%light", 0, 4), value)]}))
    kinds = {finding.kind for finding in faults(root)}
    assert kinds == {Kind.WRONG_UNIT, Kind.FALLING_OFFSET}


def test_a_unit_behind_the_end_of_its_queue(root: Path) -> None:
    with database(root) as engine:
        value = engine.get(UNITS, unit_key("alpha", 1, 4)) or b""
        engine.write(KvBatch(puts={UNITS: [(unit_key("alpha", 1, 99), value)]}))
    kinds = {finding.kind for finding in faults(root)}
    assert {Kind.WRONG_UNIT, Kind.WRONG_BOUND} <= kinds


def test_missing_and_wrong_bounds(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(BOUNDS, max_key("alpha", 1))]))
    assert only(root, Kind.MISSING_BOUND).queue_id == 1
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 13)) or b"")
        stale = pack_max(unit.physical_offset, 13)
        engine.write(KvBatch(puts={BOUNDS: [(max_key("alpha", 1), stale)]}))
    assert only(root, Kind.WRONG_BOUND).queue_offset == 14


def test_a_bound_without_units(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(puts={BOUNDS: [(max_key("alpha", 3), pack_max(0, 0))]}))
    assert only(root, Kind.WRONG_BOUND).queue_id == 3


def test_families_at_two_points(root: Path) -> None:
    # The checkpoint is behind the units: as if families had been flushed one by one.
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("beta", 1, 14)) or b"")
        row = (DISPATCHED_KEY, pack_i64(unit.physical_offset))
        engine.write(KvBatch(puts={BOUNDS: [row]}))
    found = check_store(root)
    assert {finding.kind for finding in found} == {Kind.OLD_DATABASE, Kind.BEYOND_CHECKPOINT}
    places = {finding.place for finding in found if finding.is_fault}
    assert places == {UNITS, BOUNDS, INDEX}


@pytest.mark.parametrize("value", [b"", b"\xff" * 21])
def test_a_topic_with_an_impossible_row(root: Path, value: bytes) -> None:
    with database(root) as engine:
        engine.write(KvBatch(puts={STATE: [(topic_key("alpha"), value)]}))
    assert repr(topic_key("alpha")) in only(root, Kind.STATE).place


def test_an_impossible_bound_of_a_queue_that_a_group_receives_from(tmp_path: Path) -> None:
    root = tmp_path / "store"
    with open_small(root) as store:
        store.put([Message("T", b"x")])
        store.groups.create("g")
        assert store.groups.receive("g", "T").deliveries
    with database(root) as engine:
        engine.write(KvBatch(puts={BOUNDS: [(max_key("T", 0), b"")]}))
    assert only(root, Kind.BAD_ROW).place == BOUNDS


def test_a_checkpoint_ahead_of_a_closed_log(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(puts={BOUNDS: [(DISPATCHED_KEY, pack_i64(1 << 40))]}))
    assert only(root, Kind.AHEAD_OF_LOG).physical_offset == 1 << 40


def test_missing_and_wrong_index_rows(root: Path) -> None:
    with database(root) as engine:
        unit = unpack_unit(engine.get(UNITS, unit_key("alpha", 1, 4)) or b"")
        key = index_key("alpha", "k4", unit.store_time_ms, unit.physical_offset)
        value = engine.get(INDEX, key) or b""
        assert value
        engine.write(KvBatch(deletes=[(INDEX, key)]))
    assert only(root, Kind.MISSING_INDEX_ROW).physical_offset == unit.physical_offset
    wrong = index_key("alpha", "other", unit.store_time_ms, unit.physical_offset)
    with database(root) as engine:
        engine.write(KvBatch(puts={INDEX: [(key, value), (wrong, value)]}))
    assert "other" in only(root, Kind.WRONG_INDEX_ROW).found


def test_rows_of_a_topic_that_does_not_exist(root: Path) -> None:
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(STATE, topic_key("beta"))]))
    found = faults(root)
    assert {finding.kind for finding in found} == {Kind.DEAD_ROW, Kind.STATE}
    dead = [finding for finding in found if finding.kind is Kind.DEAD_ROW]
    assert {finding.topic for finding in dead} == {"beta"}


@pytest.mark.parametrize("what", ["missing", "changed", "extra"])
def test_a_row_of_state_that_the_log_does_not_give(root: Path, what: str) -> None:
    key = topic_key("beta")
    with database(root) as engine:
        row = engine.get(STATE, key) or b""
        changed = row[:-1] + bytes([row[-1] ^ 1])
        batch = {
            "missing": KvBatch(deletes=[(STATE, offset_key("group", "alpha", 0))]),
            "changed": KvBatch(puts={STATE: [(offset_key("group", "alpha", 0), changed)]}),
            "extra": KvBatch(puts={STATE: [(topic_key("nobody"), row)]}),
        }[what]
        engine.write(batch)
    finding = only(root, Kind.STATE)
    assert ("no row" in (str(finding.expected), str(finding.found))) == (what != "changed")


def test_state_is_held_against_the_newest_sealed_snapshot(tmp_path: Path) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock)
        store.snapshots.take()
        store.commit_offsets("group", [("alpha", 0, 3)])
    assert faults(root) == []
    with database(root) as engine:
        engine.write(KvBatch(deletes=[(STATE, topic_key("beta"))]))
    assert Kind.STATE in {finding.kind for finding in faults(root)}


@pytest.mark.parametrize("name", ["state.sst", "ends.sst", "sealed", "mark"])
def test_a_damaged_snapshot(tmp_path: Path, name: str) -> None:
    root, clock = tmp_path / "store", FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock)
        store.snapshots.take()
    [path] = (root / "snapshots").glob(f"*/{name}")
    flip(path, path.stat().st_size // 2, 0x10)
    assert {finding.kind for finding in faults(root)} == {Kind.SNAPSHOT}
    with open_small(root, clock) as store:
        assert len(store.list_topics("", None, 9)) == 2


def test_rows_of_no_layout(root: Path) -> None:
    with database(root) as engine:
        engine.write(
            KvBatch(
                puts={
                    UNITS: [(b"\x00\x00\x00\x01\x01", b"x"), (unit_key("alpha", 1, 4), b"x" * 5)],
                    BOUNDS: [(b"\x00", b"")],
                    INDEX: [(b"\x00\x00", b"")],
                }
            )
        )
    kinds = [finding.kind for finding in faults(root)]
    assert kinds.count(Kind.BAD_ROW) == 4


def test_a_damaged_database(root: Path) -> None:
    engine = RocksEngine.open(root / "kvcq", DERIVED)
    for name in engine._profile.names:
        engine.compact(name)
    engine.close()
    for path in (root / "kvcq").glob("*.sst"):
        for position in range(10, path.stat().st_size, 300):
            flip(path, position, 0x10)
    assert Kind.DATABASE in {finding.kind for finding in faults(root)}


@pytest.mark.parametrize("name", ["alpha", "%LMQ%a"])
def test_rows_of_what_is_about_to_end_are_no_fault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """Killed between the state's rows and those of the queues."""
    root, image = tmp_path / "store", tmp_path / "image"
    clock = FakeClock()
    with open_small(root, clock) as store:
        fill(store, clock, 20)
        store.put([Message("alpha", b"", light_queues=("%LMQ%a",))])

        def stall(*_: object) -> None:
            raise StoreBusyError("planted")

        with monkeypatch.context() as stalled:
            stalled.setattr(store.queues, "delete_topic", stall)
            end = store._appends.decide(lambda: [TopicEnded(name)])
            wait_until(lambda: store.state.point >= end)
            store._appends.flush()
            live_engine(store).flush()
            copy_open(root, image)
    assert faults(image) == []
    with open_small(image, clock) as store, pytest.raises(UnknownTopicError):
        store.bounds([(name, 0)])
