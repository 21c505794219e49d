"""The RocksDB queues that RocketMQ wrote, read with our engine, keys and values."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import FamilyProfile, Profile
from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, UNITS, unpack_bounds_key, unpack_unit_key
from kvcq.tables.values import unpack_i64, unpack_max, unpack_unit
from tests.support.golden_store import QUEUE_DIRECTORY, STORES, expected, extract_golden

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: The families of RocketMQ's database; the one of message keys is ours alone.
ROCKETMQ = Profile(families=(FamilyProfile(name=UNITS), FamilyProfile(name=BOUNDS)))

_FIRST, _LAST = b"", b"\xff" * 8


@pytest.fixture(params=STORES)
def name(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def engine(name: str, tmp_path: Path) -> Iterator[RocksEngine]:
    root = extract_golden(tmp_path, name)
    engine = RocksEngine.open_read_only(root / QUEUE_DIRECTORY, ROCKETMQ)
    yield engine
    engine.close()


def test_units_of_rocketmqs_database_are_read(name: str, engine: RocksEngine) -> None:
    theirs = {
        (queue["topic"], queue["queue_id"], unit[0]): tuple(unit[1:])
        for queue in expected(name)["queues"]["rocksdb"]
        for unit in queue["units"]
    }
    ours = {
        unpack_unit_key(key): tuple(unpack_unit(value))
        for key, value in engine.scan(UNITS, _FIRST, _LAST)
    }
    log_start = expected(name)["log"]["start"]
    expired = {key for key, unit in ours.items() if unit[0] < log_start}
    assert {key: unit for key, unit in ours.items() if key not in expired} == theirs
    assert bool(expired) == (name == "prefilled")


def test_bounds_of_rocketmqs_database_are_read(name: str, engine: RocksEngine) -> None:
    rows = {
        unpack_bounds_key(key): unpack_max(value)
        for key, value in engine.scan(BOUNDS, _FIRST, _LAST)
        if key != DISPATCHED_KEY
    }
    for queue in expected(name)["queues"]["rocksdb"]:
        row = rows.get((queue["topic"], "max", queue["queue_id"]))
        if row is None:
            assert queue["max"] == 0  # PREPARED and ROLLBACK records only
            continue
        assert row[1] == queue["max"] - 1
        if queue["units"]:
            assert row == (queue["units"][-1][1], queue["units"][-1][0])


def test_checkpoint_of_rocketmqs_database_is_the_end_of_the_last_unit(
    name: str, engine: RocksEngine
) -> None:
    checkpoint = engine.get(BOUNDS, DISPATCHED_KEY)
    assert checkpoint is not None
    end = unpack_i64(checkpoint)
    records = expected(name)["log"]["records"]
    last = records[-1]
    assert end <= last["physical_offset"] + last["record_size"]
    ends = {record["physical_offset"] + record["record_size"] for record in records}
    assert end in ends
