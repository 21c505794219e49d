"""Dead letters: listed, put again to where they came from, deleted; each of them once."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING
from unittest.mock import patch

import pytest

from store.errors import InvalidArgumentError, UnknownGroupError
from store.format.record import parse_message_id, unpack_record
from store.groups import DeadLetter
from store.message import Message
from store.metadata import SharedGroup
from store.puts import append_path
from tests.store.groups.test_shared import put, receive, texts
from tests.support.rebuild import differences
from tests.support.stores import bodies, open_small

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from store.groups import Redriven
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

DLQ = "%DLQ%g"
LIGHT = "%LMQ%l"


def put_letter(
    store: MessageStore, body: bytes, properties: Mapping[str, str] | None = None
) -> None:
    """As another program wrote it: callers may not."""
    with patch.object(append_path, "check_no_group_topics"):
        store.put([Message(DLQ, body, properties=properties)])


def bury(
    store: MessageStore, clock: FakeClock, *topics: str, settings: SharedGroup | None = None
) -> None:
    """What the topics have is dead letters now."""
    try:
        store.groups.describe("g")
    except UnknownGroupError:
        store.groups.create("g", settings or SharedGroup(max_deliveries=1))
    for topic in topics or ("T",):
        while receive(store, topic, max_messages=100, invisible_ms=1):
            pass
        clock.advance(0.001)
        while store.groups.receive("g", topic).next_look_ms is not None:
            pass
    store.wait_visible()


def letters(store: MessageStore) -> list[str]:
    store.wait_visible()
    found = store.groups.list_dead_letters("g", limit=1000)
    assert len(found) == store.groups.dead_letters("g")
    return [body.decode() for body in bodies([each.record for each in found])]


def said(done: Redriven) -> tuple[int, int, bool]:
    return done.redriven, done.left, done.complete


def test_a_dead_letter_says_what_it_was(store: MessageStore, clock: FakeClock) -> None:
    put(store, "other")
    clock.advance(5)
    bury(store, clock)
    store.put([Message("T", b"poison", 2, properties={"UNIQ_KEY": "id"})])
    clock.advance(5)
    bury(store, clock)
    first, second = store.groups.list_dead_letters("g")
    assert second._replace(record=b"") == DeadLetter(
        offset=1,
        place=1,
        topic="T",
        queue_id=2,
        queue_offset=0,
        message_id="id",
        deliveries=1,
        time_ms=clock.now_ms(),
        record=b"",
    )
    assert (first.queue_id, first.queue_offset) == (0, 0)
    assert store.groups.list_dead_letters("g", after=0) == [second]
    assert store.groups.list_dead_letters("g", limit=1) == [first]
    assert store.groups.dead_letters("g") == 2


def test_the_id_in_a_dead_letter_gets_the_message(store: MessageStore, clock: FakeClock) -> None:
    put(store, "poison")
    bury(store, clock)
    [letter] = store.groups.list_dead_letters("g")
    _, physical_offset = parse_message_id(letter.message_id)
    assert unpack_record(store.get(physical_offset)).body == b"poison"


def test_what_is_redriven_is_as_it_was_put(store: MessageStore, clock: FakeClock) -> None:
    was = Message(
        "T",
        b"poison",
        3,
        tag="t",
        keys=("k1", "k2"),
        properties={"UNIQ_KEY": "id", "p": "v", "__SHARDINGKEY": "order 7"},
        flag=5,
        born_time_ms=77,
    )
    store.put([was])
    bury(store, clock)
    before = store.pull("T", 3, 0).records[0]
    done = store.groups.redrive("g")
    assert said(done) == (1, 0, True)
    store.wait_visible()
    again = store.pull("T", 3, 1).records[0]
    left, right = unpack_record(before), unpack_record(again)
    for field in ("topic", "queue_id", "flag", "sys_flag", "born_time_ms", "reconsume_times"):
        assert getattr(left, field) == getattr(right, field), field
    assert (left.body, left.properties) == (right.body, right.properties)
    assert letters(store) == []
    (delivery,) = receive(store, invisible_ms=1)
    assert (delivery.queue_offset, delivery.deliveries) == (1, 1)


def test_it_may_die_again(store: MessageStore, clock: FakeClock) -> None:
    put(store, "poison")
    for number in range(3):
        bury(store, clock)
        (letter,) = store.groups.list_dead_letters("g")
        assert (letter.offset, letter.queue_offset) == (number, number)
        assert said(store.groups.redrive("g")) == (1, 0, True)
    assert differences(store) == []


@pytest.mark.parametrize("after", [(1 << 63) - 2, (1 << 63) - 1])
def test_behind_the_last_offset_there_is_none(
    store: MessageStore, clock: FakeClock, after: int
) -> None:
    put(store, "poison")
    bury(store, clock)
    assert store.groups.list_dead_letters("g", after) == []
    assert store.groups.redrive("g", after=after).redriven == 0
    assert store.groups.dead_letters("g") == 1


def test_nothing_is_redriven_twice(store: MessageStore, clock: FakeClock) -> None:
    put(store, *[f"{n}" for n in range(100)])
    bury(store, clock)
    assert said(store.groups.redrive("g", [3, 50, 3, 99, 100, 7])) == (4, 0, True)
    assert said(store.groups.redrive("g", [3, 50, 99])) == (0, 0, True)
    assert letters(store) == [f"{n}" for n in range(100) if n not in (3, 7, 50, 99)]
    assert said(store.groups.redrive("g", max_messages=40)) == (40, 0, False)
    assert said(store.groups.redrive("g")) == (56, 0, True)
    assert said(store.groups.redrive("g")) == (0, 0, True)
    assert letters(store) == []
    got = texts(receive(store, max_messages=1000))
    assert sorted(got, key=int) == [f"{n}" for n in range(100)]
    assert differences(store) == []


def test_callers_at_the_same_time_share_them(store: MessageStore, clock: FakeClock) -> None:
    put(store, *[f"{n}" for n in range(300)])
    bury(store, clock)
    counts: list[int] = []

    def redrive() -> None:
        counts.append(store.groups.redrive("g").redriven)

    threads = [threading.Thread(target=redrive) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sum(counts) == 300
    got = texts(receive(store, max_messages=1000))
    assert sorted(got, key=int) == [f"{n}" for n in range(300)]


def test_a_light_queue_gets_its_own_back_and_the_topic_beside_it_nothing(
    store: MessageStore, clock: FakeClock
) -> None:
    store.put([Message("T", b"a", light_queues=(LIGHT, "%LMQ%other")), Message("T", b"b")])
    bury(store, clock, LIGHT)
    (letter,) = store.groups.list_dead_letters("g")
    assert (letter.topic, letter.queue_id, letter.queue_offset) == (LIGHT, 0, 0)
    assert said(store.groups.redrive("g")) == (1, 0, True)
    store.wait_visible()
    assert texts(receive(store, LIGHT)) == ["a"]
    assert store.bounds([("T", 0), ("%LMQ%other", 0), (LIGHT, 0)]) == [(0, 2), (0, 1), (0, 2)]


def test_what_came_from_a_topic_that_is_gone_is_left(store: MessageStore, clock: FakeClock) -> None:
    put(store, "a", topic="U")
    put(store, "b", "c")
    bury(store, clock, "U", "T")
    put_letter(store, b"by hand")
    forged = {"DLQ_ORIGIN_TOPIC": "rmq_sys_kvcq_state"}
    put_letter(store, b"forged", forged)
    store.delete_topic("U")
    done = store.groups.redrive("g", max_messages=2)
    assert (said(done), done.last) == ((1, 1, False), 1)
    done = store.groups.redrive("g", after=done.last)
    assert (said(done), done.last) == ((1, 2, True), 4)
    assert letters(store) == ["a", "by hand", "forged"]
    store.create_topics([("U", 1)])
    assert said(store.groups.redrive("g")) == (1, 2, True)


def test_a_topic_with_fewer_queues_takes_them_all(store: MessageStore, clock: FakeClock) -> None:
    store.put([Message("T", b"a", 3)])
    bury(store, clock)
    store.delete_topic("T")
    store.create_topics([("T", 2)])
    assert said(store.groups.redrive("g")) == (1, 0, True)
    store.wait_visible()
    assert bodies(list(store.pull("T", 1, 0).records)) == [b"a"]


def test_deleted_ones_are_done(store: MessageStore, clock: FakeClock) -> None:
    put(store, "a", "b", "c")
    bury(store, clock)
    assert store.groups.delete_dead_letters("g", [0, 2, 2, 5])[0] == 2
    assert store.groups.delete_dead_letters("g", [0, 2])[0] == 0
    assert letters(store) == ["b"]
    assert said(store.groups.redrive("g")) == (1, 0, True)
    assert differences(store) == []


def test_they_end_with_their_topic_and_outlive_their_group(
    store: MessageStore, clock: FakeClock
) -> None:
    put(store, "a", "b")
    bury(store, clock)
    assert said(store.groups.redrive("g", [0])) == (1, 0, True)
    store.delete_group("g")
    assert letters(store) == ["b"]
    assert said(store.groups.redrive("g")) == (1, 0, True)
    store.delete_topic(DLQ)
    store.wait_visible()
    for call in (store.groups.dead_letters, store.groups.list_dead_letters, store.groups.redrive):
        with pytest.raises(UnknownGroupError):
            call("g")
    put(store, "c")
    bury(store, clock)
    assert letters(store) == ["a", "b", "a", "b", "c"]  # the new group begins with the oldest
    assert [each.offset for each in store.groups.list_dead_letters("g")] == [0, 1, 2, 3, 4]
    assert differences(store) == []


def test_a_group_without_any_has_none(store: MessageStore) -> None:
    store.groups.create("g")
    assert store.groups.dead_letters("g") == 0
    assert store.groups.list_dead_letters("g") == []
    assert said(store.groups.redrive("g")) == (0, 0, True)
    assert store.groups.delete_dead_letters("g", [1])[0] == 0


def test_it_survives_a_restart(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "store", clock) as store:
        put(store, *[f"{n}" for n in range(10)])
        bury(store, clock)
        store.groups.redrive("g", [0, 5])
        store.groups.delete_dead_letters("g", [9])
    with open_small(tmp_path / "store", clock) as store:
        assert letters(store) == ["1", "2", "3", "4", "6", "7", "8"]
        assert said(store.groups.redrive("g", [0, 5, 9])) == (0, 0, True)
        assert said(store.groups.redrive("g")) == (7, 0, True)


def test_what_is_over_its_time_is_no_dead_letter(store: MessageStore, clock: FakeClock) -> None:
    put(store, "old")
    bury(store, clock, settings=SharedGroup(max_deliveries=1, dead_letters_keep_ms=60_000))
    clock.advance(30)
    put(store, "new")
    bury(store, clock)
    clock.advance(30)
    assert [each.offset for each in store.groups.list_dead_letters("g")] == [1]
    assert said(store.groups.redrive("g", [0])) == (0, 0, True)
    assert said(store.groups.redrive("g")) == (1, 0, True)


@pytest.mark.parametrize(
    ("wishes", "field"),
    [
        ({"offsets": [-1]}, "offsets[0]"),
        ({"offsets": [0, 1 << 63]}, "offsets[1]"),
        ({"offsets": range(1001)}, "offsets"),
        ({"max_messages": 0}, "max_messages"),
        ({"max_messages": 1001}, "max_messages"),
    ],
)
def test_bad_wishes_name_their_field(
    store: MessageStore, wishes: dict[str, object], field: str
) -> None:
    store.groups.create("g")
    with pytest.raises(InvalidArgumentError) as caught:
        store.groups.redrive("g", **wishes)  # type: ignore[arg-type]
    assert caught.value.field == field


def test_calls_that_name_nothing_are_refused(store: MessageStore) -> None:
    store.groups.create("g")
    with pytest.raises(InvalidArgumentError, match="offsets"):
        store.groups.delete_dead_letters("g", [])
    with pytest.raises(InvalidArgumentError, match="limit"):
        store.groups.list_dead_letters("g", limit=0)
    with pytest.raises(UnknownGroupError):
        store.groups.redrive("other")
