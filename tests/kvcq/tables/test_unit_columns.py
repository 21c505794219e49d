"""A unit has one hash, wherever it was read from, and another one when a number of it differs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq.errors import CorruptValueError
from kvcq.tables.dispatch_batch import build_batch
from kvcq.tables.keys import UNITS, unit_key
from kvcq.tables.unit_columns import units_of_queues, units_of_requests, units_of_rows
from migration.formats.unit import pack_units, unpack_units
from store.consume_queue import DispatchRequest
from store.light_queue import LMQ_PREFIX

names = st.sampled_from(["orders", "payments", "größe"])
light_names = st.sampled_from([f"{LMQ_PREFIX}one", f"{LMQ_PREFIX}two"])


@st.composite
def requests(draw: st.DrawFn) -> list[DispatchRequest]:
    return [
        DispatchRequest(
            topic=draw(names),
            queue_id=draw(st.integers(0, 3)),
            queue_offset=number,
            physical_offset=100 * number,
            record_size=draw(st.integers(50, 100)),
            tag_code=draw(st.integers(-(1 << 63), (1 << 63) - 1)),
            store_time_ms=draw(st.integers(0, 1 << 41)),
            keys=(),
            light_queues=tuple((name, number) for name in draw(st.lists(light_names, max_size=3))),
            in_queue=draw(st.booleans()),
        )
        for number in range(draw(st.integers(0, 6)))
    ]


@given(requests())
def test_units_of_the_log_and_of_rocksdb_have_the_same_hashes(
    derived: list[DispatchRequest],
) -> None:
    stored = sorted(set(build_batch(derived, 1).puts.get(UNITS, [])))
    wanted, there = units_of_requests(derived), units_of_rows(stored)
    assert len(wanted) == len(there)
    assert sorted(wanted.rows()) == sorted(there.rows())
    assert sorted(wanted.hashes().tolist()) == sorted(there.hashes().tolist())
    one_by_one = [
        int(wanted.where(np.array([number])).hashes()[0]) for number in range(len(wanted))
    ]
    assert wanted.hashes().tolist() == one_by_one


@given(requests())
def test_units_of_files_have_the_hashes_of_the_log_without_times(
    derived: list[DispatchRequest],
) -> None:
    wanted = replace(units_of_requests(derived), store_time_ms=None)
    rows = list(wanted.rows())
    there = units_of_queues(
        [queue for queue, _, _ in rows],
        [np.array([offset]) for _, offset, _ in rows],
        [unpack_units(pack_units(list(unit))) for _, _, unit in rows],
    )
    assert list(there.rows()) == rows
    assert there.hashes().tolist() == wanted.hashes().tolist()


@pytest.mark.parametrize(
    "change",
    [
        {"topic": "payments"},
        {"queue_id": 2},
        {"queue_offset": 8},
        {"physical_offset": 701},
        {"record_size": 61},
        {"tag_code": -2},
        {"store_time_ms": 1_001},
    ],
)
def test_each_number_and_the_place_are_part_of_the_hash(change: dict[str, Any]) -> None:
    (there,) = units_of_requests([_REQUEST]).hashes()
    (other,) = units_of_requests([_REQUEST._replace(**change)]).hashes()
    assert there != other


def test_rocketmqs_shorter_rows_are_read_and_others_are_refused() -> None:
    (row,) = build_batch([_REQUEST], 1).puts[UNITS]
    key, value = row
    assert units_of_rows([(key, value[:28])]).hashes() == units_of_rows([row]).hashes()
    for wrong in (value[:27], value + b"\0", b"\xff" + value[1:], value[:8] + bytes(24)):
        with pytest.raises(CorruptValueError):
            units_of_rows([row, (unit_key("orders", 0, 8), wrong)])


_REQUEST = DispatchRequest("orders", 0, 7, 700, 60, -3, 1_000, (), (), in_queue=True)
