"""After so many deliveries, or at once when it is given up, a message is a dead letter, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import (
    InvalidArgumentError,
    UnknownTopicError,
)
from store.format.record import unpack_record
from store.message import Message
from store.metadata import SharedGroup
from tests.store.groups.test_shared import DONE, LATE, acknowledge, put, receive, texts
from tests.support.rebuild import differences
from tests.support.stores import bodies

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_after_the_maximum_there_is_one_dead_letter(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=2))
    put(store, "fine")
    store.put(
        [Message("T", b"poison", tag="t", keys=("k",), properties={"UNIQ_KEY": "id", "p": "v"})]
    )
    for number in (1, 2):
        got = receive(store, invisible_ms=1000)
        assert [each.deliveries for each in got] == [number] * len(got)
        if number == 1:
            assert acknowledge(store, got[:1]) == [DONE]
        clock.advance(1)
    assert receive(store) == receive(store) == []
    store.wait_visible()
    (record,) = store.pull("%DLQ%g", 0, 0).records
    letter = unpack_record(record)
    assert (letter.body, letter.tag, letter.keys) == (b"poison", "t", ("k",))
    assert letter.properties["p"] == "v"
    origin = {name: value for name, value in letter.properties.items() if "ORIGIN" in name}
    assert origin == {
        "DLQ_ORIGIN_TOPIC": "T",
        "DLQ_ORIGIN_MESSAGE_ID": "id",
        "DLQ_ORIGIN_QUEUE": "0",
        "DLQ_ORIGIN_OFFSET": "1",
    }
    assert store.query("%DLQ%g", "id").records == [record]
    assert receive(store) == []


def test_many_dead_letters_go_in_turns(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=1))
    put(store, *[f"{n}" for n in range(100)])
    assert len(receive(store, max_messages=100, invisible_ms=1)) == 100
    clock.advance(1)
    put(store, "new")
    seen = []
    for _ in range(6):
        received = store.groups.receive("g", "T", max_messages=10)
        seen += texts(received.deliveries)
    assert seen == ["new"]
    store.wait_visible()
    found = bodies(list(store.pull("%DLQ%g", 0, 0, max_messages=200).records))
    assert found == [b"%d" % n for n in range(100)]


def test_a_dead_letter_beside_many_deliveries_with_long_names(
    store: MessageStore, clock: FakeClock
) -> None:
    """The entries take more than a record usually has, and are in one with the dead letter."""
    topic, group, count = "t" * 120, "g" * 120, 1000
    store.create_topics([(topic, count)])
    store.groups.create(group, SharedGroup(max_deliveries=1))
    store.put([Message(topic, b"poison")])
    store.groups.receive(group, topic, invisible_ms=1)
    clock.advance(1)
    store.put([Message(topic, b"good", queue_id) for queue_id in range(count)])
    found = store.groups.receive(group, topic, max_messages=1024).deliveries
    assert len(found) == count
    assert store.groups.dead_letters(group) == 1
    done = store.groups.acknowledge(group, [each.handle for each in found]).outcomes
    assert done == [DONE] * count
    assert differences(store) == []


def test_a_message_that_is_given_up_is_a_dead_letter_at_once(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=None))
    put(store, "poison", "good", tag="t")
    poison, good = receive(store)
    assert store.groups.bury("g", poison.handle).outcomes == [DONE]
    assert store.groups.bury("g", poison.handle).outcomes == [LATE]
    assert acknowledge(store, [poison, good]) == [LATE, DONE]
    clock.advance(3600)
    assert receive(store) == []
    (letter,) = store.groups.list_dead_letters("g")
    record = unpack_record(letter.record)
    assert (record.body, record.tag, letter.topic) == (b"poison", "t", "T")
    with pytest.raises(InvalidArgumentError):
        store.groups.bury("g", "no handle")
    assert store.groups.redrive("g").redriven == 1
    assert texts(receive(store)) == ["poison"]


def test_a_topic_that_dead_letters_make_is_there_for_the_next_call(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=1))
    store.groups.create("letters")
    put(store, "poison")
    receive(store, invisible_ms=1)
    clock.advance(1)
    with pytest.raises(UnknownTopicError):
        store.groups.receive("letters", "%DLQ%g")
    assert receive(store) == []
    store.wait_visible()
    assert texts(store.groups.receive("letters", "%DLQ%g").deliveries) == ["poison"]


def test_a_delivery_that_was_not_begun_does_not_count(store: MessageStore) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=2))
    put(store, "a")
    for _ in range(5):
        [found] = receive(store)
        assert found.deliveries == 1
        store.groups.give_back("g", [found.handle], 0, not_begun=True)
    for deliveries in (1, 2):
        [found] = receive(store)
        assert found.deliveries == deliveries
        store.groups.give_back("g", [found.handle], 0)
    assert receive(store) == []
    assert store.groups.dead_letters("g") == 1
