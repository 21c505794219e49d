"""Shared groups: what is received, acknowledged, given back, and delivered again."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from store.errors import (
    GroupExistsError,
    GroupKindError,
    InvalidArgumentError,
    UnknownGroupError,
    UnknownTopicError,
)
from store.groups import MOST_DELAY_MS, MOST_HANDLES, MOST_INVISIBLE_MS, Outcome, Received
from store.groups.rounds import Rounds
from store.message import Message
from store.metadata import SharedGroup
from store.state import STATE_TOPIC
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

DONE, LATE, ENDED = Outcome.DONE, Outcome.NOT_IN_FLIGHT, Outcome.QUEUE_ENDED


def put(store: MessageStore, *texts: str, topic: str = "T", queue_id: int = 0, **more: str) -> None:
    store.put([Message(topic, text.encode(), queue_id, **more) for text in texts])  # type: ignore[arg-type]


def receive(store: MessageStore, topic: str = "T", **wishes: object) -> list[Delivery]:
    return store.groups.receive("g", topic, **wishes).deliveries  # type: ignore[arg-type]


def texts(deliveries: list[Delivery]) -> list[str]:
    return [body.decode() for body in bodies([each.record for each in deliveries])]


def handles(deliveries: list[Delivery]) -> list[str]:
    return [each.handle for each in deliveries]


def acknowledge(store: MessageStore, deliveries: list[Delivery]) -> list[Outcome]:
    return store.groups.acknowledge("g", handles(deliveries)).outcomes


def test_members_share_the_messages_of_all_queues(store: MessageStore) -> None:
    store.groups.create("g")
    for queue_id in range(4):
        put(store, *[f"{queue_id}-{n}" for n in range(5)], queue_id=queue_id)
    seen = []
    while got := receive(store, max_messages=3):
        seen += texts(got)
    assert sorted(seen) == [f"{queue_id}-{n}" for queue_id in range(4) for n in range(5)]
    assert receive(store) == []


def test_groups_that_receive_in_turn_get_to_every_queue(store: MessageStore) -> None:
    store.create_topics([("T", 2)])
    for queue_id in (0, 1):
        put(store, *"abcd", queue_id=queue_id)
    seen: dict[str, list[int]] = {"g": [], "h": []}
    for _ in range(4):
        for group, queues in seen.items():
            found = store.groups.receive(group, "T", max_messages=1).deliveries
            queues += [each.queue_id for each in found]
    assert [sorted(queues) for queues in seen.values()] == [[0, 0, 1, 1]] * 2


def test_counts_of_receives_are_bounded() -> None:
    rounds = Rounds(most=2)
    assert [rounds.take("g", topic) for topic in "ababc"] == [0, 1, 1, 2, 4]
    assert rounds.take("g", "a") == 5, "it begins anywhere"
    assert rounds.take("g", "c") == 5
    rounds.give_back("g", "c")
    assert rounds.take("g", "c") == 5
    assert [rounds.take("g", "%LMQ%x") for _ in range(2)] == [0, 0]


def test_what_is_acknowledged_is_not_delivered_again(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g")
    put(store, "a", "b", "c")
    got = receive(store, invisible_ms=1000)
    assert acknowledge(store, got[::2]) == [DONE, DONE]
    clock.advance(1)
    again = receive(store)
    assert (texts(again), [each.deliveries for each in again]) == (["b"], [2])
    assert acknowledge(store, again + got) == [DONE, LATE, LATE, LATE]
    clock.advance(3600)
    assert receive(store) == []


def test_a_receive_acknowledges_what_came_before_it_in_one_record(store: MessageStore) -> None:
    put(store, "a", "b", "c", "d")
    first = receive(store, max_messages=2)
    records = store._appends._topics.next_own(STATE_TOPIC)
    found = store.groups.receive("g", "T", max_messages=1, acknowledge=handles(first))
    assert store._appends._topics.next_own(STATE_TOPIC) == records + 1
    assert (texts(found.deliveries), found.outcomes) == (["c"], [DONE, DONE])
    again = [*handles(found.deliveries), first[0].handle]
    assert store.groups.receive("g", "T", acknowledge=again).outcomes == [DONE, LATE]
    assert differences(store) == []


def test_what_a_receive_acknowledges_makes_room_for_it(store: MessageStore) -> None:
    store.groups.create("g", SharedGroup(most_in_flight=2))
    put(store, "a", "b", "c")
    first = receive(store)
    assert receive(store) == []
    assert texts(receive(store, acknowledge=handles(first))) == ["c"]


def test_the_next_of_a_key_comes_with_the_acknowledgement_of_the_one_before(
    store: MessageStore,
) -> None:
    store.groups.create("g", SharedGroup(in_order=True))
    store.put([Message("T", body, properties={"__SHARDINGKEY": "k"}) for body in (b"a", b"b")])
    first = receive(store)
    assert texts(first) == ["a"]
    assert texts(receive(store, acknowledge=handles(first))) == ["b"]


def test_what_is_acknowledged_stays_so_when_nothing_can_be_received(store: MessageStore) -> None:
    put(store, "a")
    first = receive(store)
    found = store.groups.receive("g", "unknown", acknowledge=handles(first))
    assert (found.deliveries, found.outcomes) == ([], [DONE])
    with pytest.raises(UnknownTopicError):
        receive(store, topic="unknown")
    assert acknowledge(store, first) == [LATE]
    assert differences(store) == []


def test_a_handle_is_good_until_the_message_is_delivered_again(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g")
    put(store, "a", "b")
    first, second = receive(store, invisible_ms=1000)
    clock.advance(5)
    assert acknowledge(store, [first]) == [DONE]  # late, but nobody else has it
    (again,) = receive(store)
    assert acknowledge(store, [second, again, again]) == [LATE, DONE, LATE]


def test_messages_come_back_when_their_time_is_over_and_not_before(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g", SharedGroup(invisible_ms=30_000))
    put(store, "a")
    received = store.groups.receive("g", "T")
    assert received.deliveries[0].until_ms == clock.now_ms() + 30_000
    clock.advance(29.999)
    assert store.groups.receive("g", "T") == Received(
        [], received.deliveries[0].until_ms, nonces=[]
    )
    clock.advance(0.001)
    assert [each.deliveries for each in receive(store)] == [2]


def test_a_receiver_holds_on_to_a_message_with_the_same_handle(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g")
    put(store, "a", "b")
    first, second = receive(store, invisible_ms=1000)
    clock.advance(0.9)
    answer = store.groups.change_invisible("g", [first.handle], 5000)
    assert answer.outcomes == [DONE]
    clock.advance(4.9)
    assert texts(receive(store)) == ["b"]
    assert acknowledge(store, [first, second]) == [DONE, LATE]


def test_what_is_given_back_comes_after_its_delay(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g")
    put(store, "a", "b")
    first, second = receive(store)
    store.groups.give_back("g", [first.handle], 10_000)
    store.groups.give_back("g", [second.handle])
    assert acknowledge(store, [first]) == [LATE]
    (got,) = receive(store)
    assert (texts([got]), got.deliveries) == (["b"], 2)
    clock.advance(9.9)
    assert receive(store) == []
    clock.advance(0.1)
    assert texts(receive(store)) == ["a"]
    assert acknowledge(store, [got]) == [DONE]


def test_handles_survive_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "store", clock) as store:
        store.groups.create("g")
        put(store, "a", "b")
        first, second = receive(store)
        assert acknowledge(store, [first]) == [DONE]
    with open_small(tmp_path / "store", clock) as store:
        assert receive(store) == []
        assert acknowledge(store, [first, second]) == [LATE, DONE]
        clock.advance(3600)
        assert receive(store) == []


def test_groups_of_both_kinds_refuse_each_others_calls(store: MessageStore) -> None:
    put(store, "a")
    store.groups.create("g")
    store.commit_offsets("offsets", [("T", 0, 1)])
    calls: list[Callable[[], object]] = [
        lambda: store.commit_offsets("g", [("T", 0, 1)]),
        lambda: store.committed_offsets("g", [("T", 0)]),
        lambda: store.groups.receive("offsets", "T"),
        lambda: store.groups.update("offsets", SharedGroup()),
    ]
    for refused in calls:
        with pytest.raises(GroupKindError):
            refused()
    with pytest.raises(GroupExistsError):
        store.groups.create("offsets")
    with pytest.raises(GroupExistsError):
        store.groups.create("g", SharedGroup(max_deliveries=3))
    assert store.groups.create("g") == SharedGroup(max_deliveries=17)
    assert store.groups.describe("offsets") is None
    assert store.groups.describe("g") == SharedGroup(max_deliveries=17)


def test_a_group_is_made_when_it_first_receives_where_the_setting_says_so(
    tmp_path: Path, clock: FakeClock
) -> None:
    for makes in (False, True):
        with open_small(tmp_path / f"{makes}", clock, auto_create_groups=makes) as store:
            put(store, "a")
            with pytest.raises(UnknownTopicError):
                store.groups.receive("new", "nowhere")
            assert store.list_groups(None, 9) == []
            if makes:
                (got,) = store.groups.receive("new", "T").deliveries
                assert store.groups.acknowledge("new", [got.handle]).outcomes == [DONE]
                assert store.groups.describe("new") == SharedGroup(max_deliveries=17)
            else:
                with pytest.raises(UnknownGroupError):
                    store.groups.receive("new", "T")
            assert differences(store) == []


def test_bad_input_names_its_field_and_changes_nothing(store: MessageStore) -> None:
    store.groups.create("g")
    store.groups.create("other")
    put(store, "a")
    (got,) = receive(store)
    (others,) = store.groups.receive("other", "T").deliveries
    end = store.log.appended_offset
    groups = store.groups
    calls: list[tuple[str, Callable[[], object]]] = [
        ("group", lambda: groups.receive("", "T")),
        ("topic", lambda: groups.receive("g", "")),
        ("max_messages", lambda: receive(store, max_messages=0)),
        ("max_messages", lambda: receive(store, max_messages=1 << 20)),
        ("max_bytes", lambda: receive(store, max_bytes=0)),
        ("invisible_ms", lambda: receive(store, invisible_ms=0)),
        ("invisible_ms", lambda: receive(store, invisible_ms=MOST_INVISIBLE_MS + 1)),
        ("invisible_ms", lambda: groups.change_invisible("g", [got.handle], 0)),
        ("delay_ms", lambda: groups.give_back("g", [got.handle], -1)),
        ("delay_ms", lambda: groups.give_back("g", [got.handle], MOST_DELAY_MS + 1)),
        ("acknowledge[1]", lambda: receive(store, acknowledge=[got.handle, others.handle])),
        ("acknowledge", lambda: receive(store, acknowledge=[got.handle] * (MOST_HANDLES + 1))),
        ("handles", lambda: groups.acknowledge("g", [])),
        ("handles", lambda: groups.acknowledge("g", [got.handle] * (MOST_HANDLES + 1))),
        ("handles[1]", lambda: groups.acknowledge("g", [got.handle, others.handle])),
        ("handles[1]", lambda: groups.acknowledge("g", [got.handle, got.handle[:-1]])),
        ("handles[0]", lambda: groups.acknowledge("g", ["ü" * 9])),
        ("handles[0]", lambda: groups.acknowledge("g", ["A" * 100_000])),
        ("max_deliveries", lambda: groups.create("new", SharedGroup(max_deliveries=0))),
        ("invisible_ms", lambda: groups.create("new", SharedGroup(invisible_ms=0))),
        ("most_in_flight", lambda: groups.update("g", SharedGroup(most_in_flight=0))),
    ]
    for field, refused in calls:
        with pytest.raises(InvalidArgumentError) as caught:
            refused()
        assert caught.value.field == field
    assert store.log.appended_offset == end
    assert acknowledge(store, [got]) == [DONE]


def test_no_more_is_in_flight_than_the_group_allows(store: MessageStore) -> None:
    store.groups.create("g", SharedGroup(most_in_flight=5))
    put(store, *"abcdefgh")
    got = receive(store)
    assert texts(got) == [*"abcde"]
    assert receive(store) == []
    assert acknowledge(store, got[3:]) == [DONE, DONE]  # out of order
    assert texts(receive(store)) == [*"fg"]


def test_a_filter_passes_what_it_does_not_want(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g")
    for n in range(10):
        put(store, f"{n}", tag="even" if n % 2 == 0 else "odd")
    got = receive(store, tag_filter="even", invisible_ms=1)
    assert texts(got) == [*"02468"]
    clock.advance(1)
    assert texts(receive(store)) == [*"02468"]
    (row,) = store.tables.list_windows("g", None, 9)
    assert row[2].next_offset == 10


def test_limits_of_bytes_hold_but_for_one_message(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, "x" * 500, "y" * 500, "z" * 500)
    assert [len(text) for text in texts(receive(store, max_bytes=1300))] == [500, 500]
    assert [len(text) for text in texts(receive(store, max_bytes=1))] == [500]


def test_what_is_too_long_for_a_response_comes_with_the_next_one(
    store: MessageStore, clock: FakeClock
) -> None:
    store.groups.create("g")
    put(store, "a" * 2000, "b" * 2000)
    for _ in range(2):
        receive(store, max_messages=1, invisible_ms=1000)
    clock.advance(1)
    received = store.groups.receive("g", "T", max_bytes=3000)
    assert len(received.deliveries) == 1
    assert received.next_look_ms == store.lease_time_ms()


def test_what_is_too_long_for_a_response_becomes_a_dead_letter_with_the_next_one(
    store: MessageStore, clock: FakeClock
) -> None:
    store.create_topics([("T", 2)])
    store.groups.create("g", SharedGroup(max_deliveries=1))
    put(store, "a" * 2000, queue_id=1)
    for _ in range(2):
        receive(store, max_messages=1, invisible_ms=1000)
    clock.advance(1)
    put(store, "b" * 2000, queue_id=0)
    received = store.groups.receive("g", "T", max_bytes=3000)
    assert texts(received.deliveries) == ["b" * 2000]
    assert received.next_look_ms == store.lease_time_ms()
    assert receive(store) == []
    assert store.groups.dead_letters("g") == 1


def test_a_jump_of_the_clock_frees_nothing_at_once(store: MessageStore, clock: FakeClock) -> None:
    store.groups.create("g")
    put(store, "a")
    receive(store, invisible_ms=3_600_000)
    clock.jump(365 * 86_400)
    assert receive(store) == []
    clock.advance(3600)
    assert texts(receive(store)) == ["a"]


def test_a_clock_that_is_set_back_holds_nothing_for_ever(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "store", clock) as store:
        store.groups.create("g")
        put(store, "a")
        receive(store, invisible_ms=60_000)
        clock.jump(-365 * 86_400)
        clock.advance(59)
        assert receive(store) == []
        clock.advance(1)
        assert texts(receive(store, invisible_ms=60_000)) == ["a"]
    with open_small(tmp_path / "store", clock) as store:
        clock.advance(60)
        assert texts(receive(store)) == ["a"]


def test_calls_that_wait_for_each_other_become_one_record(store: MessageStore) -> None:
    store.groups.create("g")
    put(store, *[f"{n}" for n in range(64)])
    results: list[list[Delivery]] = []
    store.groups._turns.turn.acquire()
    threads = [
        threading.Thread(target=lambda: results.append(receive(store, max_messages=4)))
        for _ in range(16)
    ]
    for thread in threads:
        thread.start()
    while len(store.groups._turns.waiting) < 16:
        pass
    (records,) = store.queues.next_offsets([(STATE_TOPIC, 0)])
    store.groups._turns.turn.release()
    for thread in threads:
        thread.join()
    store.wait_visible()
    assert store.queues.next_offsets([(STATE_TOPIC, 0)]) == [records + 1]
    found = sorted(int(text) for got in results for text in texts(got))
    assert found == list(range(64))


def test_an_idle_queue_and_an_idle_group_take_no_memory(store: MessageStore) -> None:
    for n in range(50):
        store.groups.create(f"g{n}")
        put(store, "a")
        store.groups.receive(f"g{n}", "T")
    parts = [*vars(store.groups).values(), *vars(store.groups._turns).values()]
    held = [value for value in parts if isinstance(value, (list, dict, set))]
    assert not any(held)
