"""Topics: which exist, and from where on their records count."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from store.consume_queue import DispatchRequest
from store.errors import (
    InvalidArgumentError,
    TopicExistsError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.metadata import KEEP_ALL, MessageType, Retention
from store.state import (
    STATE_TOPIC,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
    dead_key,
    pack_offset,
)
from store.topics import TopicsNeededError
from tests.store.topics.harness import Harness, request

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.topics import Topics


@pytest.fixture
def harness(tmp_path: Path) -> Harness:
    return Harness(tmp_path)


def test_records_below_the_creation_are_dead(harness: Harness) -> None:
    assert not harness.topics.admission.is_live("T", 1 << 40)
    harness.create("T", at=1000)
    assert not harness.topics.admission.is_live("T", 999)
    assert harness.topics.admission.is_live("T", 1000)
    assert harness.topics.admission.admit(request("T", 1000)) == request("T", 1000)
    assert harness.topics.admission.admit(request("T", 999)) is None
    harness.delete("T", at=2000)
    assert not harness.topics.admission.is_live("T", 1500)
    harness.create("T", at=3000)
    for topics in (harness.topics, harness.reopen()):
        assert not topics.admission.is_live("T", 1500)
        assert topics.admission.is_live("T", 3000)


def test_a_message_of_a_dead_topic_stays_in_its_light_queues(harness: Harness) -> None:
    admitted = harness.topics.admission.admit(request("gone", 50, ("%LMQ%a", 3), ("%LMQ%b", 4)))
    assert admitted == DispatchRequest("%LMQ%a", 0, 3, 50, 100, 7, 5, (), (("%LMQ%b", 4),), True)


def test_records_that_an_older_format_left_dead_in_a_light_queue_stay_so(harness: Harness) -> None:
    harness.create("T", at=0)
    harness.state.put_counted([(dead_key("%LMQ%a"), pack_offset(200))])
    topics = harness.reopen()
    light = (("%LMQ%a", 0), ("%LMQ%b", 0))
    admitted = topics.admission.admit(request("T", 150, *light))
    assert admitted is not None
    assert admitted.light_queues == (("%LMQ%b", 0),)
    admitted = topics.admission.admit(request("T", 200, *light))
    assert admitted is not None
    assert admitted.light_queues == light
    assert topics.admission.admit(request("gone", 150, ("%LMQ%a", 0))) is None
    # A record that ends the queue tells of it from then on, and lies above what was dead before.
    harness.put(request("T", 200, ("%LMQ%a", 0)))
    harness.delete("%LMQ%a")
    for topics in (harness.topics, harness.reopen()):
        assert topics.admission.is_live("%LMQ%a", harness.end)
        assert not topics._dead.has_any


def test_loading_names_the_topics_to_be_made_and_finds_offsets(harness: Harness) -> None:
    harness.put(request("%LMQ%a", 0, queue_offset=0)._replace(queue_id=0))
    with pytest.raises(TopicsNeededError) as needed:
        harness.topics.load([("T", 1)], ["%LMQ%a", "%LMQ%b"], harness.end)
    made = harness.topics.automatic(needed.value.names)
    assert made == [TopicsMade(["T"], 4, made[0].created_ms, KEEP_ALL)]
    at = harness.append(made)
    for _ in range(2):
        assert harness.topics.load([("T", 1)], ["%LMQ%a", "%LMQ%b"], harness.end) == [0, 1, 0]
        harness.topics.made(made, harness.end)
    harness.dispatch()
    assert harness.topics.get("T").created_offset == at
    harness.put(request("T", harness.end, queue_offset=8))
    assert harness.topics.load([("T", 1), ("T", 0)], [], harness.end) == [9, 0]
    with pytest.raises(UnknownQueueError):
        harness.topics.load([("T", 4)], [], harness.end)
    with pytest.raises(UnknownQueueError):
        harness.topics.load([("new", 4)], [], harness.end)
    for bad in ("%LMQ%x", "a b", "CHECKPOINT_TOPIC", "", STATE_TOPIC):
        with pytest.raises(InvalidArgumentError):
            harness.topics.load([(bad, 0)], [], harness.end)


def test_topics_made_just_now_have_the_queues_that_their_record_says(harness: Harness) -> None:
    """Their first append may find no segment; the settings may be others when it is made again."""
    made = harness.topics.automatic(["T"])
    harness.append(made)
    harness.topics.made(made, harness.end)
    harness.topics.reconfigure(replace(harness.config, default_queue_count=8))
    assert harness.topics.load([("T", 3)], [], harness.end) == [0]
    with pytest.raises(UnknownQueueError):
        harness.topics.load([("T", 4)], [], harness.end)
    harness.topics.reconfigure(replace(harness.config, default_queue_count=1))
    assert harness.topics.load([("T", 3)], [], harness.end) == [0]


def test_loading_makes_no_topic_where_that_is_off(tmp_path: Path) -> None:
    harness = Harness(tmp_path, auto=False)
    with pytest.raises(UnknownTopicError):
        harness.topics.load([("T", 0)], [], 0)


def test_what_is_decided_counts_for_the_next_decision_and_not_yet_for_readers(
    harness: Harness,
) -> None:
    topics = harness.topics
    made = harness.append(topics.create([("T", 2)]))
    assert topics.create([("T", 2)]) == []
    with pytest.raises(TopicExistsError):
        topics.create([("T", 3)])
    assert topics.load([("T", 1)], [], harness.end) == [0]
    before = {"T": topics.ends.get("T")}
    assert not topics.have_ended(before)
    with pytest.raises(UnknownTopicError):
        topics.get("T")
    assert not topics.admission.is_live("T", harness.end)
    harness.dispatch()
    assert topics.get("T").created_offset == made
    assert topics.admission.is_live("T", made)

    harness.append(topics.end(["T"]))
    with pytest.raises(TopicsNeededError):
        topics.load([("T", 1)], [], harness.end)
    with pytest.raises(UnknownTopicError):
        topics.end(["T"])
    with pytest.raises(UnknownTopicError):
        topics.have_ended(before)
    assert topics.get("T").created_offset == made
    again = harness.append(topics.create([("T", 5)]))
    with pytest.raises(UnknownTopicError):  # another one of the name
        topics.have_ended(before)
    harness.dispatch()
    assert topics.have_ended(before)
    assert topics.get("T")[1:4:2] == (5, again)


@pytest.mark.parametrize("name", ["T", "%LMQ%a"])
def test_a_queue_begins_anew_before_its_rows_are_gone(harness: Harness, name: str) -> None:
    topics = harness.topics
    harness.create("T", 2)
    harness.put(request("T", harness.end, ("%LMQ%a", 6), queue_offset=6))
    asked = ([("T", 1)], ["%LMQ%a"])
    assert topics.load(*asked, harness.end) == [7, 7]
    assert topics.hot_keys("T") == [("T", 0), ("T", 1)]
    assert topics.hot_keys("%LMQ%a") == ["%LMQ%a"]
    harness.append(topics.end([name]))
    if name == "T":
        harness.append(topics.create([("T", 2)]))
    assert harness.queues.next_offsets([("T", 1), ("%LMQ%a", 0)]) == [7, 7]
    expected = [0 if name == "T" else 7, 0 if name == "%LMQ%a" else 7]
    assert topics.load(*asked, harness.end) == expected
    harness.dispatch()
    assert topics.load(*asked, harness.end) == expected


def test_a_retention_that_is_the_same_makes_no_record(harness: Harness) -> None:
    topics = harness.topics
    harness.create("T")
    assert topics.keep("T", lambda kept: kept) == []
    change = topics.keep("T", lambda kept: kept._replace(messages=5))
    assert change == [TopicKeeps("T", Retention(messages=5))]
    harness.append(change)
    assert topics.keep("T", lambda kept: kept._replace(messages=5)) == []
    with pytest.raises(TopicExistsError, match="another retention"):
        topics.create([("T", 2)], {"T": KEEP_ALL})
    assert topics.create([("T", 2)], {"T": Retention(messages=5)}) == []
    harness.append([TopicEnded("T")])
    with pytest.raises(UnknownTopicError):
        topics.keep("T", lambda kept: kept)


def test_a_type_is_given_when_a_topic_is_made_and_can_be_changed(harness: Harness) -> None:
    topics = harness.topics
    wanted = [("F", 2), ("T", 2)]
    types = {"F": MessageType.FIFO, "T": MessageType.ANY}
    harness.append(topics.create(wanted, types=types))
    assert topics.create(wanted, types=types) == topics.create(wanted) == []
    with pytest.raises(TopicExistsError, match="another message type"):
        topics.create([("F", 2)], types={"F": MessageType.ANY})
    assert topics.take("F", MessageType.FIFO) == []
    change = topics.take("F", MessageType.NORMAL)
    assert change == [TopicTakes("F", MessageType.NORMAL)]
    harness.append(change)
    harness.dispatch()
    assert topics.get("F").message_type == MessageType.NORMAL
    assert topics.get("T").message_type == MessageType.ANY
    with pytest.raises(UnknownTopicError):
        topics.take("none", MessageType.FIFO)


def test_records_of_the_state_are_numbered_whoever_opened_last(harness: Harness) -> None:
    def next_number(topics: Topics) -> int:
        topics.deciding([], 0)
        found = topics.load([(STATE_TOPIC, 0)], [], harness.end)[0]
        topics.decided(is_appended=True)
        return found

    state = request(STATE_TOPIC, 0, queue_offset=4)._replace(queue_id=0)
    harness.put(state)
    assert next_number(harness.topics) == 5
    assert next_number(harness.topics) == 5
    harness.topics.own_appended({STATE_TOPIC: 6})
    assert next_number(harness.topics) == 6  # known before it is dispatched
    harness.put(state._replace(physical_offset=100, queue_offset=5))
    assert next_number(harness.reopen()) == 6


def test_a_look_that_races_with_a_creation_is_not_kept(
    harness: Harness, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The reader has asked, the answer is "no such topic", and then it is made.
    get = harness.state.get
    answered = threading.Event()
    go_on = threading.Event()

    def slow(key: bytes) -> bytes | None:
        found = get(key)
        if threading.current_thread().name == "reader":
            answered.set()
            go_on.wait(30)
        return found

    monkeypatch.setattr(harness.state, "get", slow)
    is_live = harness.topics.admission.is_live
    reader = threading.Thread(target=is_live, args=("T", 10), name="reader")
    reader.start()
    assert answered.wait(30)
    harness.create("T", at=0)
    go_on.set()
    reader.join()
    assert harness.topics.admission.is_live("T", 10)
    assert harness.topics.admission.admit(request("T", 10)) is not None


def test_queues_that_may_be_read(harness: Harness) -> None:
    harness.create("T", 2)
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
    harness.put(request("T", harness.end, ("%LMQ%a", 0)))
    harness.topics.require_queue("%LMQ%a", 0)


@pytest.mark.parametrize(
    "wanted",
    [
        [("a b", 1)],
        [("A", -1)],
        [("A", 1 << 20)],
        [("D", 1), ("D", 2)],
        [(STATE_TOPIC, 1)],
        [("%LMQ%a", 1)],
    ],
)
def test_a_refused_topic_is_named(harness: Harness, wanted: Sequence[tuple[str, int]]) -> None:
    with pytest.raises(InvalidArgumentError, match=r"topics\[\d\]"):
        harness.topics.create([("other", 1), *wanted])
