"""Rows of the files, on stores that RocketMQ wrote and on our own."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from migration.dump import FILES, ROCKSDB, Dump, LogRow
from migration.formats.index import IndexLayout
from migration.state.state import FileLayout
from store.config import StoreConfig
from store.errors import StoreFormatError
from store.message import Message
from store.state import STATE_TOPIC
from tests.support.golden_store import (
    INDEX_ENTRIES,
    INDEX_SLOTS,
    STORES,
    UNITS_PER_FILE,
    expected,
    extract_golden,
)
from tests.support.migrating import open_store
from tests.support.tree import tree_digest

if TYPE_CHECKING:
    from pathlib import Path

LAYOUT = FileLayout(UNITS_PER_FILE, *IndexLayout(INDEX_SLOTS, INDEX_ENTRIES))


@pytest.fixture(params=STORES)
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, Path]:
    return request.param, extract_golden(tmp_path, request.param)


def test_log_of_the_original_is_shown_whole(golden: tuple[str, Path]) -> None:
    name, root = golden
    log = expected(name)["log"]
    rows = list(Dump(root).log())
    records = [row.message for row in rows if row.kind == "record"]
    assert [
        (one.physical_offset, one.topic, one.queue_id, one.queue_offset)
        for one in records
        if one is not None
    ] == [
        (one["physical_offset"], one["topic"], one["queue_id"], one["queue_offset"])
        for one in log["records"]
    ]
    blanks = [[row.physical_offset, row.size] for row in rows if row.kind == "blank"]
    assert blanks == log["blanks"]
    assert not [row for row in rows if row.kind == "damage"]
    assert rows[0].physical_offset == log["start"]


def test_units_of_the_original_are_shown_on_each_side(golden: tuple[str, Path]) -> None:
    name, root = golden
    views = expected(name)["queues"]
    assert sorted(Dump(root).queue_sides()) == sorted(views)
    for side, queues in views.items():
        for queue in queues:
            topic, queue_id = queue["topic"], queue["queue_id"]
            shown = [
                (row.queue_offset, row.physical_offset, row.record_size, row.tag_code)
                for row in Dump(root).queue(side, topic, queue_id, max(0, queue["min"]))
            ]
            assert shown == [tuple(unit[:4]) for unit in queue["units"]], (side, queue["topic"])


def test_index_files_of_the_original_are_asked_for_a_key(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    assert Dump(root).index_sides() == [FILES]
    for query in expected("both")["key_queries"]:
        found = Dump(root, LAYOUT).index(FILES, query["topic"], query["key"])
        assert sorted(row.physical_offset for row in found) == sorted(query["physical_offsets"])


def test_nothing_is_written(golden: tuple[str, Path]) -> None:
    _, root = golden
    before = tree_digest(root)
    for row in Dump(root).log():
        assert row.size > 0
    for side in Dump(root).queue_sides():
        list(Dump(root).queue(side, "orders", 0))
    assert tree_digest(root) == before


def _store(root: Path) -> None:
    store = open_store(StoreConfig(root=root, segment_bytes=8192, preallocate=False))
    try:
        messages = [
            Message("jobs", b"body %d" % number, number % 2, keys=(f"key-{number}",))
            for number in range(100)
        ]
        store.put(messages)
    finally:
        store.close()


def _records(rows: list[LogRow]) -> list[bytes]:
    """Bodies of messages that somebody put."""
    messages = [row.message for row in rows if row.message is not None]
    return [each.body for each in messages if each.topic != STATE_TOPIC]


def test_own_store_is_shown(tmp_path: Path) -> None:
    _store(tmp_path)
    assert Dump(tmp_path).queue_sides() == Dump(tmp_path).index_sides() == [ROCKSDB]
    rows = list(Dump(tmp_path).log())
    assert _records(rows) == [b"body %d" % number for number in range(100)]
    records = [row for row in rows if row.kind == "record"][1:]  # behind the topic's
    odd = list(Dump(tmp_path).queue(ROCKSDB, "jobs", 1, 40))
    assert [row.queue_offset for row in odd] == list(range(40, 50))
    assert [row.physical_offset for row in odd] == [row.physical_offset for row in records[81::2]]
    (entry,) = Dump(tmp_path).index(ROCKSDB, "jobs", "key-7")
    assert (entry.physical_offset, entry.key) == (records[7].physical_offset, "key-7")
    assert len(list(Dump(tmp_path).index(ROCKSDB, "jobs"))) == 100
    assert len(list(Dump(tmp_path).index(ROCKSDB))) == 100


def test_log_is_shown_between_two_places(tmp_path: Path) -> None:
    _store(tmp_path)
    rows = list(Dump(tmp_path).log())
    part = list(Dump(tmp_path).log(rows[10].physical_offset, rows[20].physical_offset))
    assert part == rows[10:20]


def test_damage_is_a_row_and_the_rest_is_shown(tmp_path: Path) -> None:
    _store(tmp_path)
    rows = [row for row in Dump(tmp_path).log() if row.kind == "record"]
    with (tmp_path / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(rows[5].physical_offset + 100)
        file.write(b"\xff\xff")
    shown = list(Dump(tmp_path).log())
    assert shown[5].kind == "damage"
    assert shown[5].reason
    assert (shown[5].physical_offset, shown[5].size) == (rows[5].physical_offset, rows[5].size)
    assert _records(shown) == [b"body %d" % number for number in range(100) if number != 4]


def test_index_files_of_another_size_are_refused(tmp_path: Path) -> None:
    root = extract_golden(tmp_path, "both")
    wrong = FileLayout(UNITS_PER_FILE, *IndexLayout(INDEX_SLOTS - 1, INDEX_ENTRIES))
    with pytest.raises(StoreFormatError, match="bytes, not"):
        list(Dump(root, wrong).index(FILES))


def test_a_key_without_a_topic_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="topic"):
        list(Dump(tmp_path).index(FILES, key="key-1"))


def test_a_directory_without_a_log_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreFormatError):
        list(Dump(tmp_path).log())
