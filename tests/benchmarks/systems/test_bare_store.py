"""The raw probe writes what a reader of ours takes, and the rows of its units."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import pytest
from rocksdict import Options, Rdict

from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, max_key, pack_i64, unit_key
from kvcq_client import LIGHT_PREFIX, split_records
from tests.benchmarks.systems.bare_store import BareStore, bodies_of

if TYPE_CHECKING:
    from pathlib import Path


def test_records_are_ours_and_rows_are_those_of_queues_and_light_queues(tmp_path: Path) -> None:
    root = tmp_path / "bare"
    body = os.urandom(100)
    light = [f"{LIGHT_PREFIX}{number}" for number in range(3)]
    with BareStore(root, [("a", 0), ("b", 2)], light) as store:
        store.put(body, [0, 1, 0], [slice(0, 1), slice(0, 3), slice(2, 3)])
        store.put(body, [0, 0], [slice(0, 0)] * 2)
        store.sync()
        end = store._at
    records = (root / "log").read_bytes()[:end]
    messages = split_records(records, [0, 0, 1, 2, 3])
    assert [message.topic for message in messages] == ["a", "b", "a", "a", "a"]
    assert {message.body for message in messages} == {body}
    database = Rdict(str(root / "db"), Options(raw_mode=True), {BOUNDS: Options(raw_mode=True)})
    units = {unit_key("a", 0, offset) for offset in range(4)} | {unit_key("b", 2, 0)}
    units |= {unit_key(light[0], 0, offset) for offset in range(2)}
    units |= {unit_key(light[1], 0, 0), *(unit_key(light[2], 0, offset) for offset in range(2))}
    assert set(database.keys()) == units
    bounds = database.get_column_family(BOUNDS)
    found: Any = bounds.get(max_key("a", 0))
    assert found[8:] == pack_i64(3)
    assert bounds.get(DISPATCHED_KEY) == pack_i64(end)
    bounds.close()
    database.close()


def test_records_are_read_back_with_their_bodies_checked(tmp_path: Path) -> None:
    body = os.urandom(100)
    with BareStore(tmp_path / "bare", [("a", 0)]) as store:
        store.put(body, [0] * 5)
        records = store.read(1, 3)
    assert bodies_of(records) == [body] * 3
    with pytest.raises(ValueError, match="the body at 0 is damaged"):
        bodies_of(records.replace(body, bytes(100), 1))
