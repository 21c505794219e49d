"""Deletions leave reads as fast as they were: no heap of range deletions in memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED, metadata_profile
from kvcq.metadata_store import MetadataStore
from kvcq.tables.keys import FAMILIES
from kvcq.tables.removal import MOST_SINGLY
from store.consume_queue import DispatchRequest, LastUnit
from store.metadata import DeleteMark, TopicConfig
from tests.support.engines import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

SIZE = 100


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(tmp_path / "kvcq", DERIVED)
    yield opened
    opened.close()


@pytest.fixture
def meta(tmp_path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(tmp_path / "meta", metadata_profile())
    yield opened
    opened.close()


def range_deletions(engine: RocksEngine) -> int:
    return int(engine.statistics()["range_deletions_in_memory"])


def fill(store: KvConsumeQueueStore, topic: str, count: int) -> None:
    start = store.dispatched_offset
    store.dispatch(
        [
            DispatchRequest(topic, 0, n, start + n * SIZE, SIZE, 0, n, (f"k{n}",), (), True)
            for n in range(count)
        ],
        start + count * SIZE,
    )


@pytest.mark.parametrize("count", [1, MOST_SINGLY, MOST_SINGLY + 1])
def test_a_deleted_topic_leaves_no_row_however_many_it_had(engine: RocksEngine, count: int) -> None:
    store = KvConsumeQueueStore(engine)
    for topic in ("A", "B", "C"):
        fill(store, topic, count)
    store.delete_topic("B", 1)
    for family in FAMILIES:
        assert not [key for key, _ in engine.scan(family, *ALL) if b"\x01B\x01" in key]
    assert store.next_offsets([("A", 0), ("B", 0), ("C", 0)]) == [count, 0, count]
    # Units and index rows are many at the last count, the row of bounds is one.
    assert range_deletions(engine) == (2 if count > MOST_SINGLY else 0)


def test_a_pull_after_thousands_of_deletions_costs_what_it_did_before(engine: RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    fill(store, "live", 20)
    names = [f"%LMQ%{number}" for number in range(3000)]
    for name in names:
        fill(store, name, 1)

    def after_a_deletion(first: int) -> float:
        """Processor time of the fastest of some pulls, each the first one after a deletion."""
        took = []
        for number in range(first, first + 10):
            store.delete_topic(names[number], number + 1)
            before = time.thread_time()
            store.read_units("live", 0, 5, 10)
            took.append(time.thread_time() - before)
        return min(took)

    early = after_a_deletion(20)
    for number in range(30, 2980):
        store.delete_topic(names[number], number + 1)
    # With a range deletion for each it was forty times as much.
    assert after_a_deletion(2980) < 5 * early


def test_range_deletions_of_large_topics_leave_memory(engine: RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    for number in range(40):
        fill(store, f"T{number}", MOST_SINGLY + 1)
    for number in range(20):
        store.delete_topic(f"T{number}", number + 1)
    store.maintain()
    assert range_deletions(engine) == 40  # few: a flush would cost more than they do
    for number in range(20, 40):
        store.delete_topic(f"T{number}", number + 1)
    store.maintain()
    assert range_deletions(engine) == 0
    assert engine.statistics()["default.l0_files"] + engine.statistics()["offset.l0_files"] > 0
    assert store.names() == []
    assert engine.scan("default", *ALL) == engine.scan("index", *ALL) == []


def test_metadata_of_deleted_topics_and_groups_leaves_none_either(meta: RocksEngine) -> None:
    store = MetadataStore(meta)
    for number in range(100):
        name = f"T{number}"
        store.put_topics([TopicConfig(name, 4, 1, 0)], sync=False)
        store.commit_offsets("g", [(name, queue_id, 5) for queue_id in range(4)])
        store.put_last_units([LastUnit(name, 0, 9, 900)])
        store.delete_topics([DeleteMark(name, 1000, number + 1)])
    assert [page for page in store.last_units() if page] == []
    assert store.list_committed("g", None, 10) == []
    store.delete_group("g")
    assert range_deletions(meta) == 0
    # Groups with many offsets are removed by range; the memtable is not left full of that.
    for number in range(70):
        store.commit_offsets(f"g{number}", [("T", n, 5) for n in range(MOST_SINGLY + 1)])
        store.delete_group(f"g{number}")
    assert range_deletions(meta) < 64
    assert store.list_groups(None, 1000) == []
