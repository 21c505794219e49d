"""A deletion: no writer meanwhile, no crash undoes it, and its mark stays while it is needed."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.tables.keys import FAMILIES
from store.errors import DiskFullError, StoreBusyError, UnknownTopicError
from store.message import Message
from tests.store.topics.harness import Appends, Harness, request
from tests.support.interrupts import interrupt
from tests.support.memory_engine import MemoryEngine
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.metadata import DeleteMark


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_a_deleted_light_queue_is_taken_out_of_older_records(harness: Harness) -> None:
    harness.topics.create([("T", 2)], 0)
    harness.queues.dispatch([request("T", 0, ("%LMQ%a", 0))], 100)
    harness.delete("%LMQ%a", 100)
    for topics in (harness.topics, harness.reopen()):
        light = (("%LMQ%a", 0), ("%LMQ%b", 0))
        admitted = topics.admission.admit(request("T", 50, *light))
        assert admitted is not None
        assert admitted.light_queues == (("%LMQ%b", 0),)
        admitted = topics.admission.admit(request("T", 100, *light))
        assert admitted is not None
        assert admitted.light_queues == light
        assert topics.admission.admit(request("gone", 50, ("%LMQ%a", 0))) is None
    # The mark stays while its records are in the log.
    harness.topics.deletions.settle(harness.queues.applied_deletions, 99, 1000)
    assert len(harness.metadata.delete_marks()) == 1
    harness.topics.deletions.settle(harness.queues.applied_deletions, 100, 1000)
    assert harness.metadata.delete_marks() == []


def test_deletions_that_a_crash_took_are_done_again(harness: Harness) -> None:
    harness.topics.create([("T", 2), ("U", 2)], 0)
    harness.queues.dispatch([request("T", 0), request("U", 100)], 200)
    harness.delete("T", 200)
    assert harness.queues.applied_deletions == 1
    # The database comes back as it was before: its rows, and no deletion.
    harness.queues = KvConsumeQueueStore(MemoryEngine(FAMILIES))
    harness.queues.dispatch([request("T", 0), request("U", 100)], 200)
    topics = harness.reopen()
    assert topics.deletions.finish_marked() == 1
    assert harness.queues.queue_ids("T") == []
    assert harness.queues.queue_ids("U") == [1]
    assert topics.deletions.finish_marked() == 0
    topics.deletions.settle(0, 0, 1000)
    assert len(harness.metadata.delete_marks()) == 1
    topics.deletions.settle(1, 0, 199)  # a crash may come back with records above the checkpoint
    assert len(harness.metadata.delete_marks()) == 1
    topics.deletions.settle(1, 0, 200)
    assert harness.metadata.delete_marks() == []
    harness.topics.create([("T", 2)], 200)
    harness.delete("T", 300)  # numbers go on, also without marks
    assert harness.queues.applied_deletions == 2


def test_a_topic_that_is_deleted_takes_no_writers(harness: Harness) -> None:
    harness.topics.create([("T", 2)], 0)
    deletions = harness.topics.deletions

    def refused() -> None:
        with pytest.raises(StoreBusyError):
            harness.topics.load([("T", 0)], [], 10)
        with pytest.raises(StoreBusyError):
            harness.topics.create([("T", 2)], 10)
        with pytest.raises(StoreBusyError):
            deletions.delete("T", harness.topics.queue_count, Appends(10))
        raise StoreBusyError("dispatch lags")

    appends = Appends(10, refused)
    with pytest.raises(StoreBusyError, match="lags"):
        deletions.delete("T", harness.topics.queue_count, appends)
    assert appends.forgotten == ["T", ("T", 0), ("T", 1)]
    assert harness.topics.load([("T", 0)], [], 10) == [0]
    with pytest.raises(UnknownTopicError):
        deletions.delete("none", harness.topics.queue_count, Appends(10))


def test_without_room_for_the_mark_nothing_of_the_topic_is_touched(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topics.create([("T", 2)], 0)

    def full(_mark: DeleteMark) -> None:
        raise DiskFullError("no room for the mark")

    with monkeypatch.context() as patch:
        patch.setattr(harness.metadata, "delete_topic", full)
        with pytest.raises(DiskFullError):
            harness.delete("T", 10)
    assert harness.topics.load([("T", 0)], [], 10) == [0]
    harness.delete("T", 10)
    with pytest.raises(UnknownTopicError):
        harness.delete("T", 10)


def test_a_mark_that_was_made_though_the_call_failed_counts(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topics.create([("T", 2)], 0)
    put = harness.metadata.delete_topic

    def interrupted(mark: DeleteMark) -> None:
        put(mark)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(harness.metadata, "delete_topic", interrupted)
        with pytest.raises(KeyboardInterrupt):
            harness.delete("T", 10)
    with pytest.raises(StoreBusyError):
        harness.topics.load([("T", 0)], [], 10)
    harness.delete("T", 10)  # finishes it
    assert harness.queues.applied_deletions == 1
    with pytest.raises(UnknownTopicError):
        harness.delete("T", 10)


def test_rows_that_met_a_full_disk_are_removed_by_the_next_deletion_of_the_name(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topics.create([("T", 2)], 0)
    harness.queues.dispatch([request("T", 0)], 100)

    def full(_topic: str, _sequence: int) -> None:
        raise DiskFullError("no room")

    with monkeypatch.context() as patch:
        patch.setattr(harness.queues, "delete_topic", full)
        with pytest.raises(DiskFullError):
            harness.delete("T", 100)
        with pytest.raises(DiskFullError):
            harness.delete("T", 100)
    harness.delete("T", 100)
    assert harness.queues.queue_ids("T") == []
    harness.topics.create([("T", 2)], 100)


def test_an_interrupt_anywhere_is_mended_by_the_next_deletion(tmp_path: Path) -> None:
    at, reached = 1, True
    while reached:
        with open_small(tmp_path / f"at-{at}") as store:
            store.put([Message("T", b"1")])
            reached = interrupt(partial(store.delete_topic, "T"), at, packages=("store",))
            with suppress(UnknownTopicError):  # it was deleted
                store.delete_topic("T")
            end = store.put([Message("T", b"2")]).end_offset
            assert len(store.pull("T", 0, 0, max_messages=9).records) == 1, (at, end)
        at += 7
    assert at > 100


def test_a_mark_that_some_queues_lack_ends_no_later_deletion_of_the_name(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness.topics.create([("T", 2), ("U", 2)], 0)
    harness.delete("T", 10)
    harness.topics.create([("T", 2)], 10)
    deletions = harness.topics.deletions
    # As of two sides, one of which is stopped.
    monkeypatch.setattr(KvConsumeQueueStore, "applied_deletions", 0)

    def meanwhile() -> None:
        with pytest.raises(StoreBusyError):
            harness.delete("T", 20)
        harness.delete("U", 20)
        with pytest.raises(StoreBusyError):
            harness.topics.load([("T", 0)], [], 20)

    deletions.delete("T", harness.topics.queue_count, Appends(20, meanwhile))
    assert not deletions.under_way
    with pytest.raises(UnknownTopicError):
        harness.delete("T", 20)
