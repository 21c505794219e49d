"""Repair writes what a rebuild would write, beside everything else, and brings nothing back."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine import KvBatch
from kvcq.keys import UNITS, topic_range, unit_prefix
from store.errors import CorruptRecordError, DamagedQueueError, StoreBusyError
from store.message import Message
from tests.support.rebuild import differences, live_engine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest
    from store.message_store import MessageStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store") as opened:
        for number in range(300):
            opened.put(
                [
                    Message("T", b"x" * 200, number % 2, light_queues=("%LMQ%a",)),
                    Message("U", b"x", keys=("k",)),
                ]
            )
        yield opened


def lose(store: MessageStore, topic: str, queue_id: int) -> None:
    prefix = unit_prefix(topic, queue_id)
    live_engine(store).write(KvBatch(delete_ranges=[(UNITS, prefix, prefix + b"\xff" * 8)]))


@pytest.mark.parametrize(("topic", "queue_id", "count"), [("T", 1, 150), ("%LMQ%a", 0, 300)])
def test_a_lost_queue_is_made_again(
    store: MessageStore, topic: str, queue_id: int, count: int
) -> None:
    lose(store, topic, queue_id)
    assert store._repair.rebuild(topic, queue_id) == count
    assert differences(store) == []


def test_a_repair_of_what_is_whole_changes_nothing(store: MessageStore) -> None:
    store._repair.rebuild("T", 0)
    assert store._repair.rebuild("none", 0) == 0
    assert differences(store) == []


def test_a_repair_brings_no_deleted_topic_back(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The rows are looked up, then the topic is deleted, then they would be written.
    restore = KvConsumeQueueStore.restore
    looked_up, go_on = threading.Event(), threading.Event()

    def slow(self: KvConsumeQueueStore, requests: Sequence[DispatchRequest]) -> None:
        looked_up.set()
        go_on.wait(30)
        restore(self, requests)

    monkeypatch.setattr(KvConsumeQueueStore, "restore", slow)
    store._repair.start("T", 0)
    assert looked_up.wait(30)
    deleting = threading.Thread(target=store.delete_topic, args=("T",))
    deleting.start()
    deleting.join(0.05)
    go_on.set()
    deleting.join()
    store._repair.wait()
    assert live_engine(store).scan(UNITS, *topic_range("T")) == []
    assert differences(store) == []


def test_one_repair_at_a_time_and_none_after_the_end(store: MessageStore) -> None:
    lose(store, "T", 0)
    store._repair.start("T", 0)
    store._repair.wait()
    assert store._repair.done == 1
    store._repair.stop()
    store._repair.start("T", 0)
    store._repair.wait()
    assert store._repair.done == 1


def test_a_repair_that_met_a_stall_is_tried_again(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def stalled(*_: object) -> None:
        raise StoreBusyError("write stall")

    lose(store, "T", 0)
    with monkeypatch.context() as patch:
        patch.setattr(KvConsumeQueueStore, "restore", stalled)
        store._repair.start("T", 0)
        store._repair.wait()
    assert store._repair.done == 0
    with pytest.raises(DamagedQueueError):
        store.pull("T", 0, 0)
    store._repair.wait()
    assert len(store.pull("T", 0, 0).records) == 32


def test_damage_in_the_log_ends_a_repair_and_is_said(
    store: MessageStore, caplog: pytest.LogCaptureFixture
) -> None:
    segment = store.log._segments.find(0)
    assert segment is not None
    segment.buffer[60] ^= 1
    with pytest.raises(CorruptRecordError):
        store._repair.rebuild("T", 0)
    store._repair.start("T", 0)
    store._repair.wait()
    assert store._repair.done == 0
    assert "could not be rebuilt" in caplog.text
    segment.buffer[60] ^= 1
