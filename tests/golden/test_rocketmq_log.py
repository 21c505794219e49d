"""The commit logs that RocketMQ wrote decode to what RocketMQ reads in them."""

from __future__ import annotations

import pytest

from store.format.record import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from tests.golden.rocketmq_log import check_keys, check_records, check_units, golden_log
from tests.support.golden_store import SEGMENT_BYTES, STORES, expected

pytestmark = pytest.mark.parametrize("name", STORES)


def test_every_record_decodes_to_what_rocketmq_reads(name: str) -> None:
    check_records(golden_log(name), expected(name)["log"]["records"])


def test_segments_end_where_rocketmq_ends_them(name: str) -> None:
    log = golden_log(name)
    theirs = expected(name)["log"]
    assert (log.start, log.end) == (theirs["start"], theirs["end"])
    assert log.blanks == theirs["blanks"]
    assert len(log.blanks) >= 3
    for offset, size in log.blanks:
        assert (offset + size) % SEGMENT_BYTES == 0


def test_units_derived_from_the_log_are_those_of_its_queues(name: str) -> None:
    for queues in expected(name)["queues"].values():
        check_units(golden_log(name), queues)


def test_keys_derived_from_the_log_are_those_of_its_index(name: str) -> None:
    foreign = check_keys(golden_log(name), expected(name)["key_queries"])
    assert foreign > 0  # the golden data do hold collisions


def test_the_golden_log_holds_every_kind_of_record(name: str) -> None:
    records = golden_log(name).records
    kinds = {record.sys_flag & TRANSACTION_MASK for record in records}
    assert kinds == {0x0, TRANSACTION_PREPARED, 0x8, TRANSACTION_ROLLBACK}
    assert {record.sys_flag & 0x30 for record in records} == {0x00, 0x10, 0x20, 0x30}
    assert any(len(record.topic) > 127 for record in records)
    assert any(record.body == b"" for record in records)
    assert any(record.topic == "SCHEDULE_TOPIC_XXXX" for record in records)
    assert any("INNER_MULTI_DISPATCH" in record.properties for record in records)
