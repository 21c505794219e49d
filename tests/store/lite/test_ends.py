"""The end of lite topics: they are deleted, or end by themselves once they are idle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import (
    InvalidArgumentError,
    UnknownTopicError,
)
from store.groups import Outcome
from store.lite import queue_of
from store.lite.subscriptions import CLIENT_TIMEOUT_MS
from store.message import Message
from store.metadata import MessageType
from tests.store.lite.test_lite_topics import (
    ADD,
    REMOVE,
    P,
    acknowledge,
    put,
    ready,
    received,
    texts,
)
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def test_lite_topics_are_listed_and_deleted(store: MessageStore) -> None:
    store.lite.make(P)
    for name in ("b", "a", "aa", "c"):
        put(store, name, "x")
    assert store.lite.listing.names(P, "", "", 10) == ["a", "b", "c", "aa"]
    assert store.lite.listing.names(P, "a", "", 10) == ["a", "aa"]
    assert store.lite.listing.names(P, "", "b", 1) == ["c"]
    assert store.lite.delete(P, ["a", "never", "a"]) == 1
    assert store.lite.listing.names(P, "", "", 10) == ["b", "c", "aa"]


def test_many_lite_topics_are_deleted_with_few_waits(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.lite.make(P)
    names = [f"s{number}" for number in range(150)]
    for name in names:
        put(store, name, "x")
    waits: list[int] = []
    wait_durable = store._appends.wait_durable

    def wait(end: int) -> None:
        waits.append(end)
        wait_durable(end)

    monkeypatch.setattr(store._appends, "wait_durable", wait)
    assert store.lite.delete(P, [*names, "never", *names]) == 150
    assert 0 < len(waits) <= 4
    assert store.lite.listing.names(P, "", "", 10) == []
    put(store, "s7", "again")
    assert store.lite.delete(P, names) == 1


def test_an_idle_lite_topic_ends_with_all_that_groups_have_of_it(
    store: MessageStore, clock: FakeClock
) -> None:
    ready(store)
    store.lite.make(P, expiry_ms=60_000)
    for name in ("idle", "busy", "followed"):
        put(store, name, "x")
    store.lite.sync("g", "c", ADD, ["idle", "followed"])
    held = received(store)
    store.lite.sync("g", "c", REMOVE, ["idle"])
    clock.advance(59)
    assert store.lite.expiry.look() == 0
    put(store, "busy", "y")
    clock.advance(2)
    store.lite.sync("g", "c", ADD, ["followed"])
    assert store.lite.expiry.look() in (0, 1)
    store.lite.expiry.look()
    assert store.lite.listing.names(P, "", "", 10) == ["busy", "followed"]
    of_idle = [each.handle for each in held if each.topic == queue_of(P, "idle")]
    assert store.groups.acknowledge("g", of_idle).outcomes == [Outcome.QUEUE_ENDED]
    assert store.tables.windows("g", queue_of(P, "idle"), [0])[0].next_offset == 0
    put(store, "idle", "z")  # a session that comes back begins anew
    store.lite.sync("g", "c", ADD, ["idle"])
    assert "z" in texts(received(store))


def test_a_clock_that_is_set_back_ends_no_lite_topic(store: MessageStore, clock: FakeClock) -> None:
    """Neither what is put while it is behind, nor that once it is right again."""
    store.lite.make(P, expiry_ms=3_600_000)
    put(store, "before", "x")
    clock.jump(-86_400)
    put(store, "behind", "x")
    assert store.lite.expiry.look() == 0
    clock.jump(86_400)
    clock.advance(1800)
    store.lite.expiry.look()
    assert store.lite.expiry.look() == 0
    names = store.lite.listing.names(P, "", "", 10)
    assert names == ["before", "behind"]
    behind = store.lite.listing.states(P, names)[1]
    assert behind.ends_ms is not None
    assert behind.ends_ms > store.timers.now_ms()
    clock.advance(3600)
    ended = [store.lite.expiry.look() for _ in range(3)]
    assert sum(ended) == 2


def looked(store: MessageStore) -> list[str]:
    """All light queues, when the job has been through them."""
    for _ in range(3):
        store.lite.expiry.look()
    return store.list_light_queues("%LMQ%", None, 99)


@pytest.mark.parametrize("is_again", [False, True], ids=["gone", "again"])
def test_lite_topics_end_with_their_parent(store: MessageStore, is_again: bool) -> None:
    """Also where a topic of its name has been made since; other light queues stay."""
    others = ["%LMQ%plain", "%LMQ%$nobody$x"]
    ready(store)
    for name in ("a", "bb"):
        put(store, name, "x")
    store.put([Message("other", b"x", light_queues=tuple(others))])
    store.lite.sync("g", "c", ADD, ["a"])
    assert len(looked(store)) == 4
    store.delete_topic(P)
    if is_again:
        store.create_topics([(P, 1)])
        put(store, "new", "x")
        others.append(queue_of(P, "new"))
    assert sorted(looked(store)) == sorted(others)
    store.lite.make(P, expiry_ms=60_000)
    put(store, "a", "y")
    assert store.bounds([(queue_of(P, "a"), 0)]) == [(0, 1)]
    assert queue_of(P, "a") in looked(store)


def test_lite_topics_of_a_parent_that_an_earlier_process_deleted_end(tmp_path: Path) -> None:
    clock = FakeClock()
    with open_small(tmp_path / "s", clock) as store:
        store.lite.make(P)
        put(store, "a", "x")
        store._services.jobs.stop()
        store.delete_topic(P)
        assert store.list_light_queues("%LMQ%", None, 9) == [queue_of(P, "a")]
    with open_small(tmp_path / "s", clock) as store:
        assert looked(store) == []
        assert differences(store) == []


def test_a_parent_that_is_made_anew_has_no_lite_topics_of_the_one_before(
    store: MessageStore,
) -> None:
    """Nor their messages in those that go on; also if it was made without `make`."""
    ready(store)
    for name in ("a", "b"):
        put(store, name, "before")
    store.delete_topic(P)
    store.lite.make(P)
    put(store, "a", "after")
    assert store.lite.listing.names(P, "", "", 10) == ["a"]
    store.lite.sync("g", "c", ADD, ["a"])
    assert texts(received(store)) == ["after"]
    store.delete_topic(P)
    store.create_topics([(P, 1)], types={P: MessageType.LITE})
    assert looked(store) == []


def test_a_lite_topic_with_a_redriven_message_ends_with_its_parent(store: MessageStore) -> None:
    ready(store)
    put(store, "a", "x")
    store.lite.sync("g", "c", ADD, ["a"])
    (one,) = received(store)
    store.groups.bury("g", one.handle)
    assert store.groups.redrive("g").redriven == 1
    store.delete_topic(P)
    assert looked(store) == []


def test_after_a_start_a_lite_topic_waits_for_its_clients(tmp_path: Path, clock: FakeClock) -> None:
    """What it holds for later would be lost with it."""
    with open_small(tmp_path / "s", clock) as store:
        ready(store)
        store.lite.make(P, expiry_ms=60_000)
        for name in ("a", "left"):
            put(store, name, "x")
        store.lite.sync("g", "c", ADD, ["a"])
        (one,) = received(store)
        store.groups.give_back("g", [one.handle], 3_600_000)
        clock.advance(61)
    with open_small(tmp_path / "s", clock) as store:
        store.lite.look()
        assert store.lite.listing.names(P, "", "", 10) == ["a", "left"]
        clock.advance(CLIENT_TIMEOUT_MS / 1000)
        store.lite.sync("g", "c", ADD, ["a"])
        store.lite.look()
        assert store.lite.listing.names(P, "", "", 10) == ["a"]
        clock.advance(3600)
        assert texts(received(store)) == ["x"]


def test_a_lite_topic_that_grows_meanwhile_does_not_end(
    store: MessageStore, clock: FakeClock
) -> None:
    store.lite.make(P, expiry_ms=60_000)
    put(store, "a", "x")
    put(store, "b", "x")
    last_ends = store._topic_changes.last_ends([queue_of(P, name) for name in "ab"])
    found = {queue: (1, end) for queue, end in last_ends.items()}
    put(store, "a", "y")
    assert store._topic_changes.delete_idle(found) == 1
    assert store.lite.listing.names(P, "", "", 10) == ["a"]


def test_a_lite_topic_deleted_and_filled_again_during_a_look_does_not_end(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    store.lite.make(P, expiry_ms=60_000)
    put(store, "a", "x")
    clock.advance(61)
    is_idle = store.lite.expiry._is_idle

    def meanwhile(queue: str, end: int, before_ms: int) -> bool:
        found = is_idle(queue, end, before_ms)
        store.lite.delete(P, ["a"])
        put(store, "a", "y")
        return found

    monkeypatch.setattr(store.lite.expiry, "_is_idle", meanwhile)
    assert store.lite.expiry.look() == 0
    assert len(store.pull(queue_of(P, "a"), 0, 0).records) == 1


def test_the_scan_goes_round_in_pieces(store: MessageStore, clock: FakeClock) -> None:
    for parent in ("p", "q", "r"):
        store.lite.make(parent, expiry_ms=60_000 if parent != "q" else 0)
        for number in range(7):
            queue = queue_of(parent, f"s{number}")
            store.put([Message(parent, b"x", light_queues=(queue,))])
    clock.advance(61)
    ended = sum(store.lite.expiry.look(3) for _ in range(30))
    assert ended == store.lite.expiry.expired == 14
    assert [len(store.lite.listing.names(parent, "", "", 10)) for parent in "pqr"] == [0, 7, 0]


def test_the_settings_of_a_parent_go_with_it(store: MessageStore) -> None:
    store.lite.make(P, expiry_ms=60_000, queue_count=2)
    assert store.lite.expiry_ms(P) == 60_000
    assert store.describe_topic(P).queue_count == 2
    for bad in (1, -5, 1 << 60):
        with pytest.raises(InvalidArgumentError, match="expiry_ms"):
            store.lite.make(P, bad)
    store.delete_topic(P)
    with pytest.raises(UnknownTopicError):
        store.lite.expiry_ms(P)
    store.create_topics([(P, 1)])
    with pytest.raises(InvalidArgumentError, match="not made for lite topics"):
        store.lite.expiry_ms(P)


def test_a_lite_topic_that_ends_while_it_is_looked_at_is_no_error(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the group were looked up before, and its queue after the end."""
    ready(store)
    put(store, "a", "a0", "a1", "a2")
    store.lite.sync("g", "c", ADD, ["a"])
    acknowledge(store, received(store, max_messages=2))
    pull, left = store.reads.pull, [1]

    def ended_before(*args: object, **how: object) -> object:
        while left:
            left.pop()
            store.lite.delete(P, ["a"])
            put(store, "a", "new")
        return pull(*args, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(store.reads, "pull", ended_before)
        assert texts(received(store)) == ["new"]
