"""A deletion: no writer meanwhile, no crash undoes it, and its mark stays while it is needed."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.tables.keys import FAMILIES
from store.errors import StoreBusyError, UnknownTopicError
from tests.store.topics.harness import Appends, Harness, request
from tests.support.memory_engine import MemoryEngine

if TYPE_CHECKING:
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
