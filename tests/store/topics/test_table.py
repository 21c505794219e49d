"""Topics: which exist, and from where on their records count."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from store.consume_queue import DispatchRequest
from store.errors import InvalidArgumentError, UnknownQueueError, UnknownTopicError
from tests.store.topics.harness import Harness, request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.metadata import TopicConfig


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


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


def test_loading_makes_topics_and_finds_offsets(harness: Harness) -> None:
    harness.queues.dispatch([request("%LMQ%a", 0, queue_offset=0)._replace(queue_id=0)], 100)
    loaded = harness.topics.load([("T", 1)], ["%LMQ%a", "%LMQ%b"], 500)
    assert loaded == [0, 1, 0]
    assert harness.topics.get("T").created_offset == 500
    harness.queues.dispatch([request("T", 500, queue_offset=8)], 600)
    assert harness.topics.load([("T", 1), ("T", 0)], [], 600) == [9, 0]
    with pytest.raises(UnknownQueueError):
        harness.topics.load([("T", 4)], [], 600)
    for bad in ("%LMQ%x", "a b", "CHECKPOINT_TOPIC", ""):
        with pytest.raises(InvalidArgumentError):
            harness.topics.load([(bad, 0)], [], 600)


def test_loading_makes_no_topic_where_that_is_off(tmp_path: Path) -> None:
    harness = Harness(tmp_path, auto=False)
    with pytest.raises(UnknownTopicError):
        harness.topics.load([("T", 0)], [], 0)
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
