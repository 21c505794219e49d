"""Deletions leave reads as fast as they were: no heap of range deletions in memory."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import RocksEngine
from kvcq.engine.rocks.options import DERIVED
from kvcq.state_store import KvStateStore
from kvcq.tables.keys import FAMILIES, STATE
from kvcq.tables.removal import MOST_SINGLY
from store.consume_queue import DispatchRequest
from store.metadata import KEEP_ALL
from store.state import (
    Committed,
    GroupEnded,
    GroupMade,
    Tables,
    TopicEnded,
    TopicsMade,
    changes_of,
)
from tests.support.engines import ALL

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.state import Entry

SIZE = 100


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[RocksEngine]:
    opened = RocksEngine.open(tmp_path / "kvcq", DERIVED)
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
    store.delete_topic("B", store.dispatched_offset)
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
            store.delete_topic(names[number], store.dispatched_offset)
            before = time.thread_time()
            store.read_units("live", 0, 5, 10)
            took.append(time.thread_time() - before)
        return min(took)

    early = after_a_deletion(20)
    for number in range(30, 2980):
        store.delete_topic(names[number], store.dispatched_offset)
    # With a range deletion for each it was forty times as much.
    assert after_a_deletion(2980) < 5 * early


def test_range_deletions_of_large_topics_leave_memory(engine: RocksEngine) -> None:
    store = KvConsumeQueueStore(engine)
    for number in range(40):
        fill(store, f"T{number}", MOST_SINGLY + 1)
    for number in range(20):
        store.delete_topic(f"T{number}", store.dispatched_offset)
    store.maintain()
    assert range_deletions(engine) == 40  # few: a flush would cost more than they do
    for number in range(20, 40):
        store.delete_topic(f"T{number}", store.dispatched_offset)
    store.maintain()
    assert range_deletions(engine) == 0
    assert engine.statistics()["default.l0_files"] + engine.statistics()["offset.l0_files"] > 0
    assert store.names() == []
    assert engine.scan("default", *ALL) == engine.scan("index", *ALL) == []


def test_a_state_of_deleted_topics_and_groups_leaves_none_either(engine: RocksEngine) -> None:
    state = KvStateStore(engine)

    def say(*entries: Entry) -> None:
        at = state.point
        state.apply(changes_of(entries, at, state), at + SIZE)

    for number in range(100):
        name = f"T{number}"
        say(TopicsMade([name], 4, 1, KEEP_ALL))
        say(GroupMade("g", b""), *[Committed("g", name, queue_id, 5) for queue_id in range(4)])
        say(TopicEnded(name))
    assert Tables(state).list_committed("g", None, 10) == []
    say(GroupEnded("g"))
    assert range_deletions(engine) == 0
    # Groups with many offsets are removed by range; the memtable is not left full of that.
    for number in range(70):
        group = f"g{number}"
        say(GroupMade(group, b""), *[Committed(group, "T", n, 5) for n in range(MOST_SINGLY + 1)])
        say(GroupEnded(group))
    KvConsumeQueueStore(engine).maintain()
    assert range_deletions(engine) < 64
    assert Tables(state).list_groups(None, 1000) == []
    assert [key for key, _ in engine.scan(STATE, b"", b"\xff")] == [b"p"]
