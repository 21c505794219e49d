"""Topics: from where on their records count, and what a deletion leaves behind."""

from __future__ import annotations

import threading
from contextlib import nullcontext
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.memory import MemoryEngine
from kvcq.metadata_store import MetadataStore
from kvcq.tables.keys import FAMILIES
from store.consume_queue import DispatchRequest
from store.errors import (
    InvalidArgumentError,
    StoreBusyError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.log.watermark import Watermark
from store.topics.table import Topics
from tests.support.fake_clock import FakeClock
from tests.support.stores import small_config

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from store.log import CommitLog
    from store.log.queue_offsets import QueueKey
    from store.metadata import TopicConfig


class Appends:
    """An append path whose log ends there, and is dispatched."""

    def __init__(self, end: int, during: Callable[[], None] = lambda: None) -> None:
        self.log = cast("CommitLog", SimpleNamespace(hot_queues=self, appended_offset=end))
        self.dispatched = Watermark("dispatched", end)
        self.forgotten: list[QueueKey] = []
        self._during = during

    def forget(self, keys: Iterable[QueueKey]) -> None:
        self.forgotten += keys

    def held(self) -> AbstractContextManager[None]:
        return nullcontext()

    def drain(self, end: int) -> None:
        assert end == self.log.appended_offset
        self._during()


class Harness:
    """Topics on engines in memory; `reopen` makes them anew, as opening does."""

    def __init__(self, root: Path, *, auto: bool = True) -> None:
        self.config = small_config(root, auto_create_topics=auto)
        self.metadata = MetadataStore(MemoryEngine())
        self.queues = KvConsumeQueueStore(MemoryEngine(FAMILIES))
        self.topics = self.reopen()

    def reopen(self) -> Topics:
        self.topics = Topics(self.config, self.metadata, self.queues, FakeClock())
        return self.topics

    def delete(self, name: str, below: int) -> None:
        self.topics.deletions.delete(name, self.topics.queue_count, Appends(below))


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def request(topic: str, at: int, *light: tuple[str, int], queue_offset: int = 0) -> DispatchRequest:
    return DispatchRequest(topic, 1, queue_offset, at, 100, 7, 5, ("k",), light, True)


def test_records_below_the_creation_are_dead(harness: Harness) -> None:
    assert not harness.topics.admission.is_live("T", 1 << 40)
    harness.topics.create([("T", 2)], 1000)
    assert not harness.topics.admission.is_live("T", 999)
    assert harness.topics.admission.is_live("T", 1000)
    assert harness.topics.admission.admit(request("T", 1000)) == request("T", 1000)
    assert harness.topics.admission.admit(request("T", 999)) is None
    harness.delete("T", 2000)
    assert not harness.topics.admission.is_live("T", 1500)
    harness.topics.create([("T", 2)], 3000)
    assert not harness.topics.admission.is_live("T", 1500)
    assert harness.topics.admission.is_live("T", 3000)


def test_a_message_of_a_dead_topic_stays_in_its_light_queues(harness: Harness) -> None:
    admitted = harness.topics.admission.admit(request("gone", 50, ("%LMQ%a", 3), ("%LMQ%b", 4)))
    assert admitted == DispatchRequest("%LMQ%a", 0, 3, 50, 100, 7, 5, (), (("%LMQ%b", 4),), True)


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
    assert topics.deletions.redo() == 1
    assert harness.queues.queue_ids("T") == []
    assert harness.queues.queue_ids("U") == [1]
    assert topics.deletions.redo() == 0
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
            harness.topics.load([("T", 0)], 10)
        with pytest.raises(StoreBusyError):
            harness.topics.create([("T", 2)], 10)
        with pytest.raises(StoreBusyError):
            deletions.delete("T", harness.topics.queue_count, Appends(10))
        raise StoreBusyError("dispatch lags")

    appends = Appends(10, refused)
    with pytest.raises(StoreBusyError, match="lags"):
        deletions.delete("T", harness.topics.queue_count, appends)
    assert appends.forgotten == ["T", ("T", 0), ("T", 1)]
    assert harness.topics.load([("T", 0)], 10) == [0]
    with pytest.raises(UnknownTopicError):
        deletions.delete("none", harness.topics.queue_count, Appends(10))


def test_loading_makes_topics_and_finds_offsets(harness: Harness) -> None:
    harness.queues.dispatch([request("%LMQ%a", 0, queue_offset=0)._replace(queue_id=0)], 100)
    loaded = harness.topics.load([("T", 1), "%LMQ%a", "%LMQ%b"], 500)
    assert loaded == [0, 1, 0]
    assert harness.topics.get("T").created_offset == 500
    harness.queues.dispatch([request("T", 500, queue_offset=8)], 600)
    assert harness.topics.load([("T", 1), ("T", 0)], 600) == [9, 0]
    with pytest.raises(UnknownQueueError):
        harness.topics.load([("T", 4)], 600)
    for bad in ("%LMQ%x", "a b", "CHECKPOINT_TOPIC", ""):
        with pytest.raises(InvalidArgumentError):
            harness.topics.load([(bad, 0)], 600)


def test_loading_makes_no_topic_where_that_is_off(tmp_path: Path) -> None:
    harness = Harness(tmp_path, auto=False)
    with pytest.raises(UnknownTopicError):
        harness.topics.load([("T", 0)], 0)
    assert harness.metadata.topics(["T"]) == [None]


def test_what_a_cut_took_counts_from_there(harness: Harness) -> None:
    harness.topics.create([("Old", 1)], 100)
    harness.topics.create([("New", 1)], 900)
    harness.queues.dispatch([request("Old", 0, ("%LMQ%a", 0))], 950)
    harness.delete("%LMQ%a", 950)
    for expected in (2, 0):
        topics = harness.reopen()
        assert topics.after_cut(500) == expected
        assert not topics.admission.is_live("New", 499)
        assert topics.admission.is_live("New", 500)
        assert not topics.admission.is_live("Old", 99)
        assert topics.admission.is_live("Old", 100)
        admitted = topics.admission.admit(request("Old", 500, ("%LMQ%a", 0)))
        assert admitted is not None
        assert admitted.light_queues == (("%LMQ%a", 0),)


def test_a_look_that_races_with_a_creation_is_not_kept(harness: Harness) -> None:
    # The reader has asked, the answer is "no such topic", and then it is made.
    topics = harness.metadata.topics
    answered = threading.Event()
    go_on = threading.Event()

    def slow(names: Sequence[str]) -> list[TopicConfig | None]:
        found = topics(names)
        if threading.current_thread().name == "reader":
            answered.set()
            go_on.wait(30)
        return found

    harness.metadata.topics = slow  # type: ignore[method-assign]  # a stand-in that waits
    is_live = harness.topics.admission.is_live
    reader = threading.Thread(target=is_live, args=("T", 10), name="reader")
    reader.start()
    assert answered.wait(30)
    harness.topics.create([("T", 1)], 0)
    go_on.set()
    reader.join()
    assert harness.topics.admission.is_live("T", 10)
    assert harness.topics.admission.admit(request("T", 10)) is not None


def test_queues_that_may_be_read(harness: Harness) -> None:
    harness.topics.create([("T", 2)], 0)
    harness.topics.require_queue("T", 1)
    for topic, queue_id, error in (
        ("T", 2, UnknownQueueError),
        ("T", -1, UnknownQueueError),
        ("U", 0, UnknownTopicError),
        ("%LMQ%a", 0, UnknownTopicError),
        ("%LMQ%a", 1, UnknownQueueError),
    ):
        with pytest.raises(error):
            harness.topics.require_queue(topic, queue_id)
    harness.queues.dispatch([request("T", 0, ("%LMQ%a", 0))], 100)
    harness.topics.require_queue("%LMQ%a", 0)
