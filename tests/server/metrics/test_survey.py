"""server/metrics/survey.py: topics, groups and lags, some at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from server.metrics.survey import Lag, Survey
from store.errors import StoreBusyError
from store.message import Message
from store.metadata import SharedGroup
from tests.support.fake_clock import FakeClock
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path, clock) as opened:
        yield opened


def _put(store: MessageStore, clock: FakeClock, topic: str, count: int, queue_id: int = 0) -> int:
    """So many messages, a second after each other; when the first of them was stored."""
    first_ms = clock.now_ms()
    for _ in range(count):
        store.put([Message(topic, b"x", queue_id)])
        clock.advance(1)
    return first_ms


def test_few_names_are_known_at_once(store: MessageStore, clock: FakeClock) -> None:
    first_ms = _put(store, clock, "a", 10)
    _put(store, clock, "b", 4)
    store.commit_offsets("g", [("a", 0, 7), ("b", 0, 4)])
    found = Survey(store, 10, clock.now_ms).go_on()
    assert (found.topics, found.groups) == (2, 1)
    assert found.lags == {"g": {"a": Lag(3, first_ms + 7000), "b": Lag(0, None)}}


def test_topics_of_the_store_itself_are_not_counted(store: MessageStore, clock: FakeClock) -> None:
    store.timers.put([Message("a", b"x", 0)], [clock.now_ms() + 60_000])
    assert Survey(store, 10, clock.now_ms).go_on().topics == 1


def test_queues_of_a_topic_are_one_number(store: MessageStore, clock: FakeClock) -> None:
    _put(store, clock, "a", 3, queue_id=0)
    second_ms = _put(store, clock, "a", 2, queue_id=1)
    store.commit_offsets("g", [("a", 0, 3), ("a", 1, 0), ("a", 2, 0)])
    found = Survey(store, 10, clock.now_ms).go_on()
    assert found.lags == {"g": {"a": Lag(2, second_ms)}}


def test_light_queues_are_one_topic(store: MessageStore, clock: FakeClock) -> None:
    names = [f"%LMQ%{number}" for number in range(20)]
    first_ms = clock.now_ms()
    store.put([Message("a", b"x", 0, light_queues=tuple(names))])
    store.commit_offsets("g", [(name, 0, 0) for name in names])
    found = Survey(store, 10, clock.now_ms).go_on()
    assert found.lags == {"g": {"%LMQ%": Lag(20, first_ms)}}


def test_light_queues_are_counted_over_several_scrapes(
    store: MessageStore, clock: FakeClock
) -> None:
    names = tuple(f"%LMQ%{number}" for number in range(20))
    store.put([Message("a", b"x", 0, light_queues=names)])
    found = Survey(store, 1, clock.now_ms, page=4, rows_at_a_time=8)
    told = [found.go_on().light_queues for _ in range(4)]
    assert told == [None, None, 20, 20]
    assert Survey(store, 1, clock.now_ms).go_on().topics == 1


def test_a_deleted_topic_is_passed_over(store: MessageStore, clock: FakeClock) -> None:
    for topic in ("a", "b"):
        _put(store, clock, topic, 1)
        store.commit_offsets("g", [(topic, 0, 1)])
    found = Survey(store, 10, clock.now_ms)
    store.delete_topic("a")
    assert found.go_on().lags == {"g": {"b": Lag(0, None)}}


def test_the_groups_that_are_farthest_behind_are_told(
    store: MessageStore, clock: FakeClock
) -> None:
    _put(store, clock, "a", 9)
    for offset in range(10):
        store.commit_offsets(f"g{offset}", [("a", 0, offset)])
    found = Survey(store, 3, clock.now_ms).go_on()
    assert sorted(found.lags) == ["g0", "g1", "g2"]
    assert found.groups == 10


def test_groups_of_a_broker_itself_are_not_behind(store: MessageStore, clock: FakeClock) -> None:
    _put(store, clock, "a", 9)
    for group in ("CID_RMQ_SYS_KVCQ_TAKEN", "CID_RMQ_SYS_TRANS", "g"):
        store.commit_offsets(group, [("a", 0, 1)])
    found = Survey(store, 10, clock.now_ms, page=1).go_on()
    assert (found.groups, list(found.lags)) == (1, ["g"])


def test_topics_beyond_the_most_are_one_row(store: MessageStore, clock: FakeClock) -> None:
    for topic in ("a", "b", "c", "d"):
        _put(store, clock, topic, 1)
        store.commit_offsets("g", [(topic, 0, 0)])
    lags = Survey(store, 3, clock.now_ms, topics_of_a_group=2).go_on().lags["g"]
    assert {topic: lag.messages for topic, lag in lags.items()} == {"a": 1, "b": 1, "": 2}


def test_many_names_take_several_scrapes_and_are_told_when_all_are_seen(
    store: MessageStore, clock: FakeClock
) -> None:
    store.create_topics([(f"t{number}", 1) for number in range(30)])
    for number in range(30):
        store.commit_offsets(f"g{number}", [("t0", 0, 0)])
    found = Survey(store, 100, clock.now_ms, page=4, rows_at_a_time=8)
    told = [found.go_on() for _ in range(20)]
    assert (told[0].topics, told[0].groups) == (None, None)
    # 30 topics in 4 scrapes; 60 rows of groups in 8, or one more.
    assert [one.topics for one in told].index(30) == 3
    assert 7 <= [one.groups for one in told].index(30) <= 9
    assert len(told[-1].lags) == 30


def test_what_the_store_raises_is_passed_on_and_the_next_scrape_begins_anew(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.create_topics([("a", 1)])
    found = Survey(store, 10, clock.now_ms)
    with monkeypatch.context() as patch:

        def busy(*_: object) -> None:
            raise StoreBusyError("for now")

        patch.setattr(store, "list_groups", busy)
        with pytest.raises(StoreBusyError):
            found.go_on()
    assert found.go_on().groups == 0


def test_a_shared_group_is_behind_by_what_is_not_done(
    store: MessageStore, clock: FakeClock
) -> None:
    first_ms = _put(store, clock, "a", 10)
    unseen_ms = _put(store, clock, "a", 3, queue_id=1)
    received = store.groups.receive("g", "a", max_messages=4)
    assert {one.queue_id for one in received.deliveries} == {0}
    done, again, *_ = (one.handle for one in received.deliveries)
    store.groups.acknowledge("g", [done])
    store.groups.give_back("g", [again], 60_000)
    found = Survey(store, 10, clock.now_ms).go_on()
    # Nine of queue 0, and those of queue 1, of which it was given nothing yet.
    lag = Lag(12, first_ms + 1000, is_shared=True, in_flight=2, waiting_again=1)
    assert found.lags == {"g": {"a": lag}}
    assert unseen_ms > first_ms
    assert found.dead_letters == {}


def test_a_shared_group_that_is_through_is_not_behind(
    store: MessageStore, clock: FakeClock
) -> None:
    _put(store, clock, "a", 3)
    received = store.groups.receive("g", "a")
    store.groups.acknowledge("g", [one.handle for one in received.deliveries])
    found = Survey(store, 10, clock.now_ms).go_on()
    assert found.lags == {"g": {"a": Lag(0, None, is_shared=True)}}


def test_dead_letters_are_counted_by_group(store: MessageStore, clock: FakeClock) -> None:
    for group, count in (("few", 1), ("many", 3), ("none", 0)):
        store.groups.create(group, SharedGroup(max_deliveries=1))
        _put(store, clock, group, count + 1)
        received = store.groups.receive(group, group, max_messages=max(1, count))
        if count:
            store.groups.give_back(group, [one.handle for one in received.deliveries], 0)
            store.groups.receive(group, group, max_messages=1)
    found = Survey(store, 10, clock.now_ms).go_on()
    assert found.dead_letters == {"few": 1, "many": 3}
    assert Survey(store, 1, clock.now_ms).go_on().dead_letters == {"many": 3}
