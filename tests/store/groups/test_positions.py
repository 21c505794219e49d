"""Where groups begin, where they are, where a reset sets them; pauses, and who hears of changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import (
    GroupKindError,
    InvalidArgumentError,
    OffsetOutOfRangeError,
    UnknownGroupError,
    UnknownQueueError,
    UnknownTopicError,
)
from store.groups import AtOffset, AtTime, Edge, Outcome, Received, SharedQueue
from store.message import Message
from store.metadata import SharedGroup
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

LIGHT = "%LMQ%l"


def put(store: MessageStore, *texts: str, queue_id: int = 0) -> None:
    store.put([Message("T", text.encode(), queue_id, light_queues=(LIGHT,)) for text in texts])


def receive(store: MessageStore, topic: str = "T", group: str = "g") -> list[str]:
    found = store.groups.receive(group, topic).deliveries
    return [body.decode() for body in bodies([each.record for each in found])]


@pytest.mark.parametrize("topic", ["T", LIGHT])
def test_a_group_from_the_latest_begins_behind_its_first_receive(
    tmp_path: Path, clock: FakeClock, topic: str
) -> None:
    with open_small(tmp_path / "s", clock) as store:
        put(store, "old")
        store.groups.create("g", SharedGroup(from_latest=True))
        put(store, "before")
        assert receive(store, topic) == []
        put(store, "a")
        put(store, "b", queue_id=3)  # its queue had no message then
    with open_small(tmp_path / "s", clock) as store:
        assert sorted(receive(store, topic)) == ["a", "b"]
        put(store, "c")
        assert receive(store, topic) == ["c"]
        assert differences(store) == []


def test_the_first_receive_of_several_is_one_beginning(store: MessageStore) -> None:
    put(store, "old")
    store.groups.create("g", SharedGroup(from_latest=True))
    assert receive(store) == receive(store) == []
    put(store, "new")
    assert receive(store) == ["new"]
    assert differences(store) == []


@pytest.mark.parametrize("topic", ["T", LIGHT])
def test_what_is_younger_than_the_group_is_received_from_its_beginning(
    store: MessageStore, topic: str
) -> None:
    store.groups.create("g", SharedGroup(from_latest=True))
    with pytest.raises(UnknownTopicError):  # a worker that waits for it to be made
        receive(store, topic)
    put(store, "first")
    assert receive(store, topic) == ["first"]
    store.delete_topic(topic)
    put(store, "anew")
    assert receive(store, topic) == ["anew"]


def test_a_paused_group_begins_and_hands_nothing_over(store: MessageStore) -> None:
    put(store, "old")
    settings = store.groups.create("g", SharedGroup(from_latest=True, is_paused=True))
    assert receive(store) == []
    put(store, "new")
    assert store.groups.receive("g", "T") == Received([], None, nonces=[])
    store.groups.update("g", settings._replace(is_paused=False))
    assert receive(store) == ["new"]


def test_what_is_in_flight_may_be_acknowledged_in_a_paused_group(store: MessageStore) -> None:
    settings = store.groups.create("g")
    put(store, "a", "b")
    first, second = store.groups.receive("g", "T").deliveries
    store.groups.update("g", settings._replace(is_paused=True))
    assert store.groups.acknowledge("g", [first.handle]).outcomes == [Outcome.DONE]
    assert store.groups.give_back("g", [second.handle]).outcomes == [Outcome.DONE]
    assert receive(store) == []
    store.groups.update("g", settings)
    assert receive(store) == ["b"]


def test_what_is_given_back_waits_as_the_backoff_says(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", SharedGroup(backoff_ms=(1000, 60_000)))
    put(store, "a")
    for wait_ms in (1000, 60_000, 60_000):
        (got,) = store.groups.receive("g", "T").deliveries
        store.groups.give_back("g", [got.handle])
        clock.advance(wait_ms / 1000 - 0.001)
        assert receive(store) == []
        clock.advance(0.001)
    (got,) = store.groups.receive("g", "T", invisible_ms=5).deliveries
    clock.advance(0.005)
    assert receive(store) == ["a"]  # the end of a lease knows no backoff


def test_a_group_in_order_has_a_maximum_only_if_it_is_given_one(store: MessageStore) -> None:
    for group, settings, most in (
        ("a", SharedGroup(), 17),
        ("b", SharedGroup(in_order=True), None),
        ("c", SharedGroup(max_deliveries=3, in_order=True), 3),
        ("d", SharedGroup(max_deliveries=None), None),
    ):
        assert store.groups.create(group, settings).max_deliveries == most
        found = store.groups.describe(group)
        assert found is not None
        assert found.max_deliveries == most


@pytest.mark.parametrize("field", ["in_order", "from_latest"])
def test_what_is_fixed_when_a_group_is_made_cannot_be_changed(
    store: MessageStore, field: str
) -> None:
    settings = store.groups.create("g")
    end = store.log.appended_offset
    with pytest.raises(InvalidArgumentError) as caught:
        store.groups.update("g", settings._replace(**{field: True}))  # type: ignore[arg-type]
    assert caught.value.field == field
    assert store.groups.describe("g") == settings
    assert store.log.appended_offset == end


def test_a_reset_ends_what_is_in_flight_and_says_how_much(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g")
    put(store, *"abcd")
    got = store.groups.receive("g", "T", max_messages=3).deliveries
    store.groups.acknowledge("g", [got[0].handle])
    clock.advance(1)
    at_ms = clock.now_ms()
    put(store, "e")
    store.wait_visible()
    done = store.groups.reset("g", "T", [0], AtTime(at_ms))
    assert done == (
        [
            SharedQueue(
                "T",
                0,
                next_offset=4,
                max_offset=5,
                done_below=4,
                in_flight=0,
                waiting_again=0,
                oldest_time_ms=at_ms,
            )
        ],
        2,
    )
    outcomes = store.groups.acknowledge("g", [each.handle for each in got]).outcomes
    assert outcomes == [Outcome.NOT_IN_FLIGHT] * 3
    assert receive(store) == ["e"]
    assert store.groups.reset("g", "T", None, Edge.EARLIEST).ended_in_flight == 1
    assert receive(store) == [*"abcde"]
    assert [each.deliveries for each in store.groups.receive("g", "T").deliveries] == []
    store.groups.reset("g", "T", None, AtOffset(0))
    store.groups.reset("g", LIGHT, None, Edge.LATEST)
    assert (len(receive(store)), receive(store, LIGHT)) == (5, [])
    assert differences(store) == []


def test_bad_resets_name_what_is_wrong_and_change_nothing(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, "a")
    store.commit_offsets("offsets", [("T", 0, 1)])
    end = store.log.appended_offset
    reset = store.groups.reset
    calls: list[tuple[type[Exception], Callable[[], object]]] = [
        (InvalidArgumentError, lambda: reset("g", "T", [], Edge.LATEST)),
        (InvalidArgumentError, lambda: reset("", "T", None, Edge.LATEST)),
        (InvalidArgumentError, lambda: store.groups.describe_queues("g", 0)),
        (UnknownGroupError, lambda: reset("nobody", "T", None, Edge.LATEST)),
        (UnknownGroupError, lambda: store.groups.describe_queues("nobody")),
        (GroupKindError, lambda: reset("offsets", "T", None, Edge.LATEST)),
        (GroupKindError, lambda: store.groups.describe_queues("offsets")),
        (GroupKindError, lambda: store.groups.list_dead_letters("offsets")),
        (UnknownTopicError, lambda: reset("g", "nowhere", None, Edge.LATEST)),
        (UnknownQueueError, lambda: reset("g", "T", [0, 4], Edge.LATEST)),
        (OffsetOutOfRangeError, lambda: reset("g", "T", [0], AtOffset(2))),
        (OffsetOutOfRangeError, lambda: reset("g", "T", None, AtOffset(1))),
    ]
    for error, refused in calls:
        with pytest.raises(error):
            refused()
    assert store.log.appended_offset == end


def test_who_waits_hears_of_what_may_be_received_without_a_new_message(
    store: MessageStore,
) -> None:
    told: list[tuple[str, str]] = []
    settings = store.groups.create("g", SharedGroup(most_in_flight=2))
    put(store, *"abcd")
    end = store.groups.on_change(lambda group, topic: told.append((group, topic)))

    def told_of(call: Callable[[], object]) -> list[tuple[str, str]]:
        told.clear()
        call()
        store.wait_visible()
        return told

    got = store.groups.receive("g", "T").deliveries
    handles = [each.handle for each in got]
    assert told_of(lambda: store.groups.change_invisible("g", handles[:1], 3_600_000)) == []
    assert told_of(lambda: store.groups.change_invisible("g", handles[:1], 1)) == [("g", "T")]
    assert told_of(lambda: store.groups.give_back("g", handles[:1])) == [("g", "T")]
    assert told_of(lambda: store.groups.acknowledge("g", handles[1:])) == [("g", "T")]
    assert told_of(lambda: store.groups.reset("g", "T", [1], Edge.LATEST)) == [("g", "T")]
    assert told_of(lambda: store.groups.update("g", settings)) == [("g", "")]
    assert told_of(lambda: store.delete_topic("T")) == [("", "T")]
    assert told_of(lambda: store.delete_topic(LIGHT)) == [("", LIGHT)]
    assert told_of(lambda: store.delete_group("g")) == [("g", "")]
    end()
    assert told_of(lambda: store.groups.create("g")) == []


def test_a_group_made_again_begins_with_its_own_first_receive(store: MessageStore) -> None:
    """Where the one before it had begun counts for it no more."""
    store.create_topics([("T", 1)])
    store.groups.create("g", SharedGroup(from_latest=True))
    assert receive(store) == []
    store.delete_group("g")
    put(store, "before")
    store.groups.create("g", SharedGroup(from_latest=True))
    assert receive(store) == []
    put(store, "after")
    assert receive(store) == ["after"]


def lags(store: MessageStore, **page: object) -> list[tuple[str, int, int, int]]:
    found = store.groups.describe_queues("g", **page)  # type: ignore[arg-type] # limit, after
    return [(one.topic, one.queue_id, one.next_offset, one.max_offset) for one in found]


@pytest.mark.parametrize("from_latest", [False, True])
def test_queues_that_a_group_has_not_received_from_are_among_those_where_it_is(
    store: MessageStore, from_latest: bool
) -> None:
    store.create_topics([("T", 4), ("U", 2), ("never", 3)])
    put(store, "old", queue_id=3)
    store.groups.create("g", SharedGroup(from_latest=from_latest))
    for topic in ("U", "T"):
        receive(store, topic)
        store.put([Message(topic, b"new", 1)] * 2)
        store.groups.receive("g", topic, max_messages=1)
    put(store, "new", queue_id=3)
    store.put([Message("U", b"new", 0)] * 5)
    store.wait_visible()
    whole = [
        ("T", 0, 0, 0),
        ("T", 1, 1, 2),
        ("T", 2, 0, 0),
        ("T", 3, 1, 2),
        ("U", 0, 0, 5),
        ("U", 1, 1, 2),
    ]
    assert lags(store) == whole
    for size in (1, 2, 3, 5):
        paged: list[tuple[str, int, int, int]] = []
        while page := lags(store, limit=size, after=paged[-1][:2] if paged else None):
            assert len(page) <= size
            paged += page
        assert paged == whole
    assert lags(store, after=("never", 0)) == []


def test_what_a_queue_keeps_no_longer_is_not_what_a_group_has_before_it(
    store: MessageStore, clock: FakeClock
) -> None:
    store.create_topics([("T", 2)])
    store.keep("T", time_ms=1000)
    for queue_id in (0, 1):
        put(store, "a", "b", queue_id=queue_id)
    store.groups.create("g")
    store.groups.receive("g", "T", max_messages=1)
    clock.advance(2)
    put(store, "c", queue_id=1)
    store.wait_visible()
    assert [one[2:] for one in lags(store)] == [(2, 2), (2, 3)]
