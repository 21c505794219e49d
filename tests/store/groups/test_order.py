"""Groups in order: one message of a message group at a time; attempts that are made again."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.groups import Outcome, Received
from store.groups.order import SCAN_AHEAD, stretches
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore

IN_ORDER = SharedGroup(in_order=True)


def put(store: MessageStore, *texts: str, tag: str = "") -> None:
    """The text's first letter is its ordering key; "-": it has none."""
    messages = []
    for text in texts:
        key = {} if text[0] == "-" else {"__SHARDINGKEY": text[0]}
        messages.append(Message("T", text.encode(), 0, tag=tag, properties=key))
    store.put(messages)


def receive(store: MessageStore, **wishes: object) -> list[Delivery]:
    return store.groups.receive("g", "T", **wishes).deliveries  # type: ignore[arg-type]


def texts(found: list[Delivery]) -> list[str]:
    return [body.decode() for body in bodies([each.record for each in found])]


def acknowledge(store: MessageStore, *found: Delivery) -> None:
    outcomes = store.groups.acknowledge("g", [each.handle for each in found]).outcomes
    assert outcomes == [Outcome.DONE] * len(found)


def test_one_message_of_a_message_group_is_with_a_receiver_at_a_time(store: MessageStore) -> None:
    store.groups.create("g", IN_ORDER)
    put(store, "a1", "a2", "b1", "-1", "b2", "-2", "a3")
    first = receive(store)
    assert texts(first) == ["a1", "b1", "-1"]
    assert store.groups.receive("g", "T") == Received([], first[0].until_ms, nonces=[])
    acknowledge(store, first[1])
    second = receive(store)
    assert texts(second) == ["b2"]
    acknowledge(store, first[0], *second)
    (a2,) = receive(store)
    put(store, "b3", "c1")
    assert texts([a2, *receive(store)]) == ["a2", "b3", "c1"]
    acknowledge(store, a2)
    assert texts(receive(store)) == ["a3"]


def test_a_poisoned_message_holds_up_its_own_message_group_alone(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", IN_ORDER)
    put(store, "a1", "a2", *[f"b{n}" for n in range(5)])
    seen = []
    for _ in range(12):
        found = receive(store)
        for each in found:
            if texts([each]) == ["a1"]:
                store.groups.give_back("g", [each.handle], 1000)
            else:
                acknowledge(store, each)
                seen += texts([each])
        clock.advance(1)
    assert seen == [f"b{n}" for n in range(5)]
    (a1,) = receive(store)
    assert a1.deliveries == 13  # there is no maximum
    acknowledge(store, a1)
    assert texts(receive(store)) == ["a2"]


def test_a_dead_letter_lets_the_next_of_its_message_group_go(
    store: MessageStore, clock: FakeClock
) -> None:
    told: list[tuple[str, str]] = []
    store.groups.create("g", SharedGroup(in_order=True, max_deliveries=1))
    store.groups.on_change(lambda group, topic: told.append((group, topic)))
    put(store, "a1", "a2")
    assert texts(receive(store, invisible_ms=1)) == ["a1"]
    clock.advance(1)
    assert texts(receive(store)) == ["a2"]
    assert ("g", "T") in told


def test_who_waits_is_told_when_the_message_before_is_done(store: MessageStore) -> None:
    told: list[tuple[str, str]] = []
    store.groups.create("g", IN_ORDER)
    put(store, "a1", "a2")
    (a1,) = receive(store)
    assert receive(store) == []
    store.groups.on_change(lambda group, topic: told.append((group, topic)))
    acknowledge(store, a1)
    assert told == [("g", "T")]


def test_a_message_that_waits_costs_no_read(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.groups.create("g", IN_ORDER)
    put(store, *[f"a{n}" for n in range(300)])
    (first,) = receive(store)
    offsets: list[int] = []
    pull = store.reads.pull

    def counted(topic: str, queue_id: int, offset: int, **wishes: int) -> object:
        pulled = pull(topic, queue_id, offset, **wishes)  # type: ignore[arg-type]
        offsets.extend(pulled.queue_offsets)
        return pulled

    monkeypatch.setattr(store.reads, "pull", counted)
    for _ in range(5):
        assert receive(store) == []
    seen = sorted(offsets)
    assert len(seen) == len(set(seen))  # those that were not read with the first
    end = store.log.appended_offset
    offsets.clear()
    assert receive(store) == []
    assert (offsets, store.log.appended_offset) == ([], end)
    acknowledge(store, first)
    assert texts(receive(store)) == ["a1"]
    assert offsets == [1]


def test_a_queue_is_looked_through_so_far_and_no_farther(store: MessageStore) -> None:
    store.groups.create("g", IN_ORDER)
    put(store, *["a"] * SCAN_AHEAD)
    put(store, "b-behind")
    (first,) = receive(store)
    assert receive(store) == []
    (row,) = store.tables.list_windows("g", None, 9)
    assert row[2].next_offset == SCAN_AHEAD
    acknowledge(store, first)
    assert texts(receive(store)) == ["a", "b-behind"]


def test_limits_of_messages_bytes_and_flight_hold_in_order(store: MessageStore) -> None:
    store.groups.create("g", SharedGroup(in_order=True, most_in_flight=3))
    put(store, "a" * 500, "a" * 10, "b" * 500, "c" * 500, "d" * 500)
    assert [each[0] for each in texts(receive(store, max_messages=1))] == ["a"]
    assert [each[0] for each in texts(receive(store, max_bytes=1))] == ["b"]
    got = receive(store)
    assert [each[0] for each in texts(got)] == ["c"]
    assert receive(store) == []
    acknowledge(store, *got)
    assert [each[0] for each in texts(receive(store))] == ["d"]


def test_what_a_filter_does_not_want_holds_nothing_up(store: MessageStore) -> None:
    store.groups.create("g", IN_ORDER)
    put(store, "a1", tag="no")
    put(store, "a2", "a3", tag="yes")
    got = receive(store, tag_filter="yes")
    assert texts(got) == ["a2"]
    acknowledge(store, *got)
    assert texts(receive(store, tag_filter="yes")) == ["a3"]


@pytest.mark.parametrize("in_order", [True, False])
def test_an_attempt_that_is_made_again_is_given_the_same(tmp_path: Path, in_order: bool) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        store.groups.create("g", SharedGroup(in_order=in_order))
        put(store, "a1", "b1", "c1")
        first = receive(store, max_messages=2, attempt_id="one", invisible_ms=1000)
        assert receive(store, attempt_id="one") == first
        other = receive(store, attempt_id="two")
        assert texts(other) == ["c1"]
    with open_small(tmp_path / "s", clock) as store:
        end = store.log.appended_offset
        assert receive(store, attempt_id="one") == first
        assert store.log.appended_offset == end
        acknowledge(store, first[0])
        assert receive(store, attempt_id="one") == first[1:]
        settings = store.groups.describe("g")
        assert settings is not None
        store.groups.update("g", settings._replace(is_paused=True))
        assert receive(store, attempt_id="one") == first[1:]  # it has them, paused or not
        assert receive(store, attempt_id="three") == []
        assert receive(store, attempt_id="one", max_messages=0) == first[1:]
        assert receive(store, attempt_id="three", max_messages=0) == []
        store.groups.update("g", settings)
        put(store, "e1")
        assert receive(store, attempt_id="one", max_messages=0) == first[1:]
        assert receive(store, attempt_id="four", max_messages=0) == []
        assert texts(receive(store, attempt_id="five")) == ["e1"]
        clock.advance(1)
        (again,) = receive(store, attempt_id="one")
        assert (again.deliveries, again.handle != first[1].handle) == (2, True)
        acknowledge(store, again, *other)
        put(store, "d1")
        assert texts(receive(store, attempt_id="one")) == ["d1"]
        assert differences(store) == []


def test_what_was_given_back_is_no_attempts_any_more(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, "a", "b")
    got = receive(store, max_messages=1, attempt_id="one")
    store.groups.give_back("g", [got[0].handle], 60_000)
    assert texts(receive(store, attempt_id="one")) == ["b"]


def test_stretches_are_of_neighbours() -> None:
    assert [list(each) for each in stretches([1, 2, 5, 7, 8])] == [[1, 2], [5], [7, 8]]
    assert list(stretches([])) == []
