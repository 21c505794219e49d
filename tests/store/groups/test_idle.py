"""A group that has nothing to do takes no memory and no rows, however many queues there are."""

from __future__ import annotations

import gc
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from store.message import Message
from store.state.rows import windows_range
from tests.support.stores import open_small
from tests.support.until import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

QUEUES = 10_000
GROUPS = 3
#: Python allocates that much more in a process that does anything at all.
SLACK_BYTES = 16 << 10


@pytest.mark.parametrize("queues", [QUEUES, pytest.param(10 * QUEUES, marks=pytest.mark.slow)])
def test_idle_groups_on_many_queues_take_no_memory(
    tmp_path: Path, clock: FakeClock, queues: int
) -> None:
    topics = [f"T{number}" for number in range(queues // QUEUES)]
    with open_small(tmp_path / "store", clock) as store:
        store.create_topics([(topic, QUEUES) for topic in topics])
        tracemalloc.start()  # before what caches keep, which is replaced later
        try:
            _receive(store, "before", topics)
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            for number in range(GROUPS):
                _receive(store, f"g{number}", topics)
            gc.collect()
            # At any moment a thread may have a piece of the log in memory, which it reads.
            wait_until(lambda: tracemalloc.get_traced_memory()[0] - before < SLACK_BYTES)
        finally:
            tracemalloc.stop()
        # A group that was given something has a row for that queue, and for no other.
        store.put([Message(topics[0], b"a", 7)])
        [delivery] = store.groups.receive("g0", topics[0]).deliveries
        store.groups.acknowledge("g0", [delivery.handle])
        store.wait_visible()
        assert len(store.tables._rows.scan(*windows_range("g0"))) == 1
        assert not store.tables._rows.scan(*windows_range("g1"))


def _receive(store: MessageStore, group: str, topics: list[str]) -> None:
    for topic in topics:
        assert store.groups.receive(group, topic).deliveries == []
