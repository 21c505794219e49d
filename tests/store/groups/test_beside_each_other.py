"""Receivers, producers and deletions beside each other, in threads."""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.errors import UnknownTopicError
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from store.state import STATE_TOPIC
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def run_all(*calls: Callable[[], None]) -> None:
    """Each in a thread of its own; what one raises is raised."""
    raised: list[BaseException] = []

    def run(call: Callable[[], None]) -> None:
        try:
            call()
        except BaseException as error:  # noqa: BLE001 - for the test's own thread
            raised.append(error)

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert not any(thread.is_alive() for thread in threads)
    if raised:
        raise raised[0]


@pytest.mark.parametrize("mode", list(FlushMode))
def test_each_message_is_delivered_to_one_receiver_once(tmp_path: Path, mode: FlushMode) -> None:
    total, members = 600, 8
    with open_small(tmp_path / "s", FakeClock(), flush_mode=mode) as store:
        store.groups.create("g", SharedGroup(most_in_flight=40))
        store.create_topics([("T", 4)])
        seen: Counter[bytes] = Counter()
        counting = threading.Lock()

        def put(queue_id: int) -> None:
            for number in range(total // 4 // 5):
                texts = [b"%d-%d-%d" % (queue_id, number, each) for each in range(5)]
                store.put([Message("T", text, queue_id) for text in texts])

        def work() -> None:
            while sum(seen.values()) < total:
                found = store.groups.receive("g", "T", max_messages=7).deliveries
                if found:
                    handles = [each.handle for each in found]
                    outcomes = store.groups.acknowledge("g", handles).outcomes
                    assert set(outcomes) == {Outcome.DONE}
                    with counting:
                        seen.update(bodies([each.record for each in found]))

        run_all(*[lambda at=at: put(at) for at in range(4)], *[work] * members)
        assert len(seen) == total
        assert set(seen.values()) == {1}
        store.wait_visible()
        windows = store.tables.list_windows("g", None, 9)
        assert [(window.in_flight, window.next_offset) for *_, window in windows] == [(0, 150)] * 4
        assert store.queues.next_offsets([(STATE_TOPIC, 0)])[0] > 2
        assert differences(store) == []


def test_deletions_beside_receivers_leave_nothing_in_flight(tmp_path: Path) -> None:
    light = "%LMQ%l"
    with open_small(tmp_path / "s", FakeClock(), flush_mode=FlushMode.ASYNC) as store:
        store.groups.create("g")
        store.create_topics([("T", 1)])
        is_over = threading.Event()

        def make() -> None:
            try:
                for life in range(25):
                    store.put([Message("T", b"%d" % life, light_queues=(light,))] * 3)
                    store.delete_topic(light)
            finally:
                is_over.set()

        def work() -> None:
            while not is_over.is_set():
                try:
                    found = store.groups.receive("g", light).deliveries
                except UnknownTopicError:
                    continue
                offsets = [each.queue_offset for each in found]
                assert offsets == sorted(set(offsets))
                assert all(offset < 3 for offset in offsets)
                if found:
                    store.groups.acknowledge("g", [each.handle for each in found])

        run_all(make, work, work)
        store.wait_visible()
        assert store.tables.list_windows("g", None, 9) == []
        assert differences(store) == []
