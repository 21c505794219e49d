"""Ends of queues are put back without harm to later ones."""

from __future__ import annotations

from functools import partial

import pytest

import kvcq.tables.last_units
from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine import pages
from kvcq.engine.rocks.options import DERIVED
from kvcq.tables import last_units_of
from store.consume_queue import Bounds, DispatchRequest, LastUnit
from tests.support.memory_engine import MemoryEngine


def request(topic: str, queue_id: int, offset: int, physical: int) -> DispatchRequest:
    return DispatchRequest(topic, queue_id, offset, physical, 100, 0, physical, (), (), True)


@pytest.fixture
def queues() -> KvConsumeQueueStore:
    """Queue N of T ends with a record at N * 100."""
    made = KvConsumeQueueStore(MemoryEngine(DERIVED.names))
    made.dispatch([request("T", number, 5, number * 100) for number in range(20)], 2000)
    made.delete_topic("other", 7)
    return made


def test_all_are_found_page_by_page(
    queues: KvConsumeQueueStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kvcq.tables.last_units, "pages", partial(pages, rows=3))
    expected = [LastUnit("T", number, 5, number * 100) for number in range(20)]
    assert list(last_units_of(queues._engine)) == list(queues.last_units()) == expected


def test_a_queue_goes_on_behind_what_is_put_back() -> None:
    queues = KvConsumeQueueStore(MemoryEngine(DERIVED.names))
    queues.restore_last_units([LastUnit("T", 0, 41, 700)])
    assert queues.next_offsets([("T", 0)]) == [42]
    assert queues.bounds("T", 0, 1000) == Bounds(42, 42)
    queues.dispatch([request("T", 0, 42, 1000)], 1100)
    assert queues.bounds("T", 0, 1000) == Bounds(42, 43)


def test_a_queue_that_knows_more_stays(queues: KvConsumeQueueStore) -> None:
    queues.restore_last_units([LastUnit("T", 3, 4, 200), LastUnit("T", 4, 6, 450)])
    assert queues.next_offsets([("T", 3), ("T", 4)]) == [6, 7]
