"""A deletion: no writer meanwhile, no crash undoes it, and its mark stays while it is needed."""

from __future__ import annotations

import pickle
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from threading import Event
from typing import TYPE_CHECKING, Any

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.tables.keys import FAMILIES
from store.errors import DiskFullError, StoreBusyError, UnknownTopicError
from store.message import Message
from store.metadata import DeleteMark
from tests.store.topics.harness import Appends, Harness, request
from tests.support.interrupts import interrupt
from tests.support.memory_engine import MemoryEngine
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


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

    def full(_marks: Sequence[DeleteMark]) -> None:
        raise DiskFullError("no room for the mark")

    with monkeypatch.context() as patch:
        patch.setattr(harness.metadata, "delete_topics", full)
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
    put = harness.metadata.delete_topics

    def interrupted(marks: Sequence[DeleteMark]) -> None:
        put(marks)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(harness.metadata, "delete_topics", interrupted)
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


def test_a_deletion_that_waits_for_a_stall_holds_up_no_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        store.put([Message("T", b"x", light_queues=("%LMQ%a",)), Message("B", b"x")])
        stalled, over = Event(), Event()
        delete = store.queues.delete_topic

        def stall(name: str, sequence: int) -> None:
            stalled.set()
            if not over.is_set():
                raise StoreBusyError("RocksDB stalls writes")
            delete(name, sequence)

        monkeypatch.setattr(store.queues, "delete_topic", stall)
        with ThreadPoolExecutor() as pool:
            names = ["T", "%LMQ%a"]
            try:
                deleting = [pool.submit(store.delete_topic, name) for name in names[1:]]
                assert stalled.wait(60)
                pool.submit(store.commit_offsets, "g", [("B", 0, 1)]).result(60)
                # Nothing is left of what is deleted, for a later queue of that name to find.
                for call in (
                    lambda: store.commit_offsets("g", [("%LMQ%a", 0, 1)]),
                    lambda: store.bounds([("%LMQ%a", 0)]),
                ):
                    with pytest.raises(UnknownTopicError):
                        call()
                assert not deleting[0].done()
            finally:
                over.set()
            deleting[0].result(60)
        assert store.list_committed("g", None, 9) == [("B", 0, 1)]


def test_many_light_queues_are_deleted_in_one_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with open_small(tmp_path / "store") as store:
        names = [f"%LMQ%{number:05}" for number in range(2500)]
        for first in range(0, 2500, 500):
            store.put([Message("T", b"x", light_queues=tuple(names[first : first + 500]))])
        deleted = []
        delete = store.metadata.delete_topics

        def counted(marks: Sequence[DeleteMark]) -> None:
            deleted.append(len(marks))
            delete(marks)

        monkeypatch.setattr(store.metadata, "delete_topics", counted)
        with pytest.raises(UnknownTopicError):
            store.delete_topics(["%LMQ%00001", "%LMQ%none"])
        assert deleted == []
        assert store.bounds([("%LMQ%00001", 0)]) == [(0, 1)]
        store.delete_topics([*names[1:], names[1]])
        assert deleted == [1000, 1000, 499]
        assert store.list_light_queues("", None, 9) == names[:1]
        store.put([Message("T", b"y", light_queues=(names[1],))])
        assert store.bounds([(names[1], 0)]) == [(0, 1)]
        assert len(store.metadata.delete_marks()) == 2499
        differing = differences(store)
        assert differing == []


def test_marks_of_earlier_deletions_cost_a_deletion_and_a_checkpoint_nothing(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The first is needed, so all of them stay.
    harness.metadata.put_marks([DeleteMark("%LMQ%first", 1 << 40, -1)])
    harness.topics.create([("T", 1), ("U", 1)], 0)
    for first in range(1, 20_001, 1000):
        some = range(first, first + 1000)
        harness.metadata.delete_topics([DeleteMark(f"%LMQ%{n}", n, n) for n in some])
    harness.queues.delete_topic("%LMQ%20000", 20_000)
    topics = harness.reopen()
    read = 0
    scan = MemoryEngine.scan

    def counted(
        self: MemoryEngine,
        family: str,
        start: bytes,
        end: bytes,
        **how: Any,  # noqa: ANN401
    ) -> list[tuple[bytes, bytes]]:
        nonlocal read
        rows = scan(self, family, start, end, **how)
        read += len(rows)
        return rows

    monkeypatch.setattr(MemoryEngine, "scan", counted)
    harness.delete("T", 30_000)
    assert read < 50
    topics.deletions.settle(20_001, 1 << 30, 1 << 30)
    assert read < 100
    assert len(topics.deletions.under_way) == 0
    held = len(pickle.dumps(topics.deletions.dead._answers))
    assert held < 1000
