"""The commit logs that RocketMQ wrote decode to what RocketMQ reads in them."""

from __future__ import annotations

from collections import defaultdict

import pytest

from store.record import TRANSACTION_MASK, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, java_hash
from tests.golden.rocketmq_log import as_expected, golden_log
from tests.support.golden_store import SEGMENT_BYTES, STORES, expected

pytestmark = pytest.mark.parametrize("name", STORES)


def _without_crc_item(record: dict[str, object]) -> dict[str, object]:
    """We do not hand the CRC item out as a property; RocketMQ does."""
    properties = record["properties"]
    assert isinstance(properties, dict)
    return record | {"properties": {k: v for k, v in properties.items() if k != "__CRC32#"}}


def test_every_record_decodes_to_what_rocketmq_reads(name: str) -> None:
    ours = [as_expected(message) for message in golden_log(name).records]
    theirs = [_without_crc_item(record) for record in expected(name)["log"]["records"]]
    assert len(ours) == len(theirs)
    for mine, its in zip(ours, theirs, strict=True):
        assert mine == its


def test_segments_end_where_rocketmq_ends_them(name: str) -> None:
    log = golden_log(name)
    theirs = expected(name)["log"]
    assert (log.start, log.end) == (theirs["start"], theirs["end"])
    assert log.blanks == theirs["blanks"]
    assert len(log.blanks) >= 3
    for offset, size in log.blanks:
        assert (offset + size) % SEGMENT_BYTES == 0


def test_units_derived_from_the_log_are_those_of_its_queues(name: str) -> None:
    units = golden_log(name).units()
    for view, queues in expected(name)["queues"].items():
        not_empty = [queue for queue in queues if queue["max"] > queue["min"]]
        assert {(queue["topic"], queue["queue_id"]) for queue in not_empty} == set(units), view
        for queue in not_empty:
            derived = units[queue["topic"], queue["queue_id"]]
            assert [[offset, *unit] for offset, unit in derived] == queue["units"]
            assert [unit.physical_offset for _, unit in derived] == queue["pulled"]
            assert derived[0][0] == queue["min"]
            assert derived[-1][0] == queue["max"] - 1


def test_keys_derived_from_the_log_are_those_of_its_index(name: str) -> None:
    keys = golden_log(name).keys()
    by_hash: dict[int, set[int]] = defaultdict(set)
    for (topic, key), offsets in keys.items():
        by_hash[java_hash(f"{topic}#{key}")].update(offsets)
    foreign = 0
    for query in expected(name)["key_queries"]:
        topic, key = query["topic"], query["key"]
        theirs = query["physical_offsets"]
        ours = keys.get((topic, key), [])
        # RocketMQ compares hashes alone: what it returns besides belongs to another key.
        assert set(ours) <= set(theirs) <= by_hash[java_hash(f"{topic}#{key}")] | set(ours)
        foreign += len(set(theirs) - set(ours))
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
