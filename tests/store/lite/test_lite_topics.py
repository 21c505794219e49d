"""Lite topics over a real store: subscriptions, receives, and who is told of what."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import (
    InvalidArgumentError,
    LiteGroupError,
    LiteQuotaError,
    UnknownGroupError,
    UnknownLiteClientError,
)
from store.format.record import unpack_record
from store.groups import AtOffset, AtTime, Edge, Outcome
from store.lite import Action, FromEnd, queue_of
from store.lite.clients import LOST_MS
from store.lite.receiving import MOST_OF_ONE
from store.lite.subscriptions import CLIENT_TIMEOUT_MS, Subscriptions
from store.message import Message
from store.metadata import LiteGroup, SharedGroup
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery, Where
    from store.lite import Synced
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

ADD, REMOVE, COMPLETE, LEAVE = Action.ADD, Action.REMOVE, Action.COMPLETE, Action.LEAVE
P = "p"


def ready(store: MessageStore, group: str = "g", **how: object) -> None:
    """A parent and a group on it."""
    store.lite.make(P)
    in_order = bool(how.pop("in_order", False))
    lite = LiteGroup(P, **how)  # type: ignore[arg-type]
    store.groups.create(group, SharedGroup(lite=lite, in_order=in_order, invisible_ms=10_000))


def put(store: MessageStore, name: str, *texts: str) -> None:
    store.put([Message(P, text.encode(), light_queues=(queue_of(P, name),)) for text in texts])


def received(
    store: MessageStore, client: str = "c", group: str = "g", **wishes: object
) -> list[Delivery]:
    return store.lite.receive(group, client, **wishes).deliveries  # type: ignore[arg-type]


def texts(deliveries: list[Delivery]) -> list[str]:
    return [unpack_record(each.record).body.decode() for each in deliveries]


def acknowledge(store: MessageStore, deliveries: list[Delivery], group: str = "g") -> None:
    if deliveries:
        done = store.groups.acknowledge(group, [each.handle for each in deliveries])
        assert set(done.outcomes) == {Outcome.DONE}


def test_a_client_receives_what_it_is_subscribed_to(store: MessageStore) -> None:
    ready(store)
    put(store, "a", "a0")
    put(store, "b", "b0")
    store.lite.sync("g", "c", ADD, ["a", "new"])
    got = received(store)
    assert (texts(got), got[0].topic) == (["a0"], queue_of(P, "a"))
    acknowledge(store, got)
    assert received(store) == []
    put(store, "new", "n0")  # it was not there when it was subscribed to
    put(store, "b", "b1")
    assert texts(received(store)) == ["n0"]
    store.lite.sync("g", "c", REMOVE, ["new"])
    store.lite.sync("g", "c", ADD, ["b"])
    assert texts(received(store)) == ["b0", "b1"]


def test_names_take_turns_and_one_gives_eight_at_most(store: MessageStore) -> None:
    ready(store)
    put(store, "loud", *[f"l{number}" for number in range(20)])
    put(store, "a", "a0")
    put(store, "b", "b0")
    store.lite.sync("g", "c", ADD, ["loud", "a", "b"])
    first = texts(received(store, max_messages=10))
    assert first == [*[f"l{number}" for number in range(MOST_OF_ONE)], "a0", "b0"]
    assert texts(received(store, max_messages=10)) == [f"l{number}" for number in range(8, 18)]
    assert texts(received(store)) == ["l18", "l19"]


def test_two_clients_share_a_name_and_hear_of_what_the_other_leaves(
    store: MessageStore, clock: FakeClock
) -> None:
    ready(store)
    woken: list[tuple[str, str]] = []
    for client in "cd":
        store.lite.sync("g", client, ADD, ["a"])
        assert received(store, client) == []
    store.lite.subscriptions.add_listener(lambda *who: woken.append(who))
    put(store, "a", "a0", "a1")
    assert sorted(woken) == [("g", "c"), ("g", "d")]
    mine = received(store, "c")
    assert texts(mine) == ["a0", "a1"]
    assert received(store, "d") == []
    assert store.lite.receive("g", "d").next_look_ms == mine[0].until_ms
    store.lite.sync("g", "c", LEAVE)
    clock.advance(10)
    assert texts(received(store, "d")) == ["a0", "a1"]
    assert store.lite.subscriptions.clients == 1


def test_a_session_in_order_is_with_one_client_at_a_time(store: MessageStore) -> None:
    ready(store, in_order=True)
    for client in "cd":
        store.lite.sync("g", client, ADD, ["a"])
    put(store, "a", "a0", "a1")
    first = received(store, "c")
    assert (texts(first), received(store, "d"), received(store, "c")) == (["a0"], [], [])
    acknowledge(store, first)
    assert texts(received(store, "d")) == ["a1"]


def test_what_is_given_back_is_ready_again(store: MessageStore, clock: FakeClock) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a"])
    put(store, "a", "a0")
    got = received(store)
    store.groups.give_back("g", [got[0].handle], 0)
    got = received(store)
    assert (texts(got), got[0].deliveries) == (["a0"], 2)
    store.groups.give_back("g", [got[0].handle], 5000)
    found = store.lite.receive("g", "c")
    assert found.deliveries == []
    clock.advance(5)
    assert texts(received(store)) == ["a0"]
    store.groups.reset("g", queue_of(P, "a"), None, Edge.EARLIEST)
    assert texts(received(store)) == ["a0"]


def test_after_a_restart_clients_synchronise_and_go_on(tmp_path: Path, clock: FakeClock) -> None:
    with open_small(tmp_path / "s", clock) as store:
        ready(store)
        store.lite.sync("g", "c", ADD, ["a"])
        put(store, "a", "a0", "a1", "a2")
        acknowledge(store, received(store, max_messages=1))
        held = received(store, max_messages=1)
        assert texts(held) == ["a1"]
    with open_small(tmp_path / "s", clock) as store:
        with pytest.raises(UnknownLiteClientError, match="no subscriptions of client 'c'"):
            received(store)
        store.lite.sync("g", "c", COMPLETE, ["a"])
        assert texts(received(store)) == ["a2"]
        clock.advance(10)
        assert texts(received(store)) == ["a1", "a2"]
        assert store.lite.expiry_ms(P) == 0


def test_the_last_subscriber_of_an_exclusive_group_wins(
    store: MessageStore, clock: FakeClock
) -> None:
    ready(store, is_exclusive=True)
    put(store, "a", "a0")
    store.lite.sync("g", "c", ADD, ["a", "b"])
    store.lite.sync("g", "d", ADD, ["a"])
    found = store.lite.receive("g", "c")
    assert (found.deliveries, found.lost) == ([], ["a"])
    assert store.lite.receive("g", "c").lost == []
    again = store.lite.sync("g", "c", COMPLETE, ["a", "b"])
    assert (again.lost, again.subscribed) == (["a"], 1)  # a stale set does not steal it back
    assert texts(received(store, "d")) == ["a0"]
    clock.advance(LOST_MS / 1000)
    store.lite.sync("g", "d", COMPLETE, ["a"])
    assert store.lite.sync("g", "c", COMPLETE, ["a", "b"]).added == ["a"]
    assert store.lite.receive("g", "d").lost == ["a"]
    assert store.lite.sync("g", "d", ADD, ["a"]).added == ["a"]  # by name it does


def test_a_late_call_changes_nothing(store: MessageStore) -> None:
    ready(store)
    store.lite.sync("g", "c", COMPLETE, ["a", "b"], version=5)
    assert store.lite.sync("g", "c", COMPLETE, ["z"], version=4).subscribed == 2
    assert store.lite.sync("g", "c", COMPLETE, ["z"], version=6).subscribed == 1


def test_a_wildcard_group_gets_what_was_there_and_what_comes(store: MessageStore) -> None:
    store.lite.make(P)
    for number in range(30):
        put(store, f"old{number}", f"o{number}")
    store.put([Message("other", b"x", light_queues=("%LMQ%$other$z",))])
    ready(store, is_wildcard=True)
    store.lite.sync("g", "c", COMPLETE)
    assert store.statistics()["store.lite_passes"] == 1
    seen: list[str] = []
    while got := received(store, "c", max_messages=7):
        seen += texts(got)
        acknowledge(store, got)
    assert sorted(seen) == sorted(f"o{number}" for number in range(30))
    assert store.statistics()["store.lite_passes"] == 0
    put(store, "brand-new", "n0")
    assert texts(received(store, "d")) == ["n0"]
    with pytest.raises(InvalidArgumentError, match="from all lite topics of 'p'"):
        store.lite.sync("g", "c", ADD, ["a"])


def test_a_wildcard_group_of_the_latest_begins_once_for_all_lite_topics(
    tmp_path: Path, clock: FakeClock
) -> None:
    with open_small(tmp_path, clock) as store:
        store.lite.make(P)
        for name in ("a", "b", "c"):
            put(store, name, "old")
        lite = LiteGroup(P, is_wildcard=True)
        store.groups.create("g", SharedGroup(lite=lite, from_latest=True))
        put(store, "young", "younger than the group")
        store.lite.sync("g", "c", COMPLETE)
        acknowledge(store, got := received(store))
        assert texts(got) == ["younger than the group"]
        appended = store.log.appended_offset
        assert received(store) == []
        assert store.log.appended_offset == appended, "nothing is noted of what it has not to do"
        put(store, "a", "new")
        put(store, "first", "of all")
    with open_small(tmp_path, clock) as store:  # these it learns of by going through all
        store.lite.sync("g", "c", COMPLETE)
        acknowledge(store, got := received(store))
        assert sorted(texts(got)) == ["new", "of all"]
        assert received(store) == []
        assert differences(store) == []


@pytest.mark.parametrize(
    ("start", "expected"),
    [
        (None, ["a0", "a1", "a2", "a3"]),
        (Edge.EARLIEST, ["a0", "a1", "a2", "a3"]),
        (Edge.LATEST, []),
        (AtOffset(2), ["a2", "a3"]),
        (AtOffset(99), []),
        (FromEnd(1), ["a3"]),
        (FromEnd(99), ["a0", "a1", "a2", "a3"]),
        (AtTime(2_000_000_002_000), ["a2", "a3"]),
    ],
    ids=str,
)
def test_where_a_subscription_begins(
    store: MessageStore, clock: FakeClock, start: Where | FromEnd | None, expected: list[str]
) -> None:
    ready(store)
    for number in range(4):
        put(store, "a", f"a{number}")
        clock.advance(1)
    store.lite.sync("g", "c", ADD, ["a", "not-there"], start=start)
    assert texts(received(store)) == expected
    put(store, "a", "later")
    assert "later" in texts(received(store))
    # Who is subscribed already stays where it is.
    store.lite.sync("g", "c", COMPLETE, ["a"], start=Edge.EARLIEST)
    assert received(store) == []


def test_quotas_and_names_are_checked(store: MessageStore) -> None:
    ready(store, client_quota=3)
    store.lite.sync("g", "c", ADD, ["a", "b"])
    with pytest.raises(LiteQuotaError, match="4 lite topics are more than the 3 that a client"):
        store.lite.sync("g", "c", ADD, ["d", "e"])
    assert store.lite.sync("g", "c", COMPLETE, ["d", "e", "a"]).subscribed == 3
    for bad, field in [("ab$c", 1), ("", 1), ("x" * 65, 1), ("ü", 1)]:
        with pytest.raises(InvalidArgumentError) as error:
            store.lite.sync("g", "c", ADD, ["ok", bad])
        assert error.value.field == f"lite_topics[{field}]"
    store.lite.subscriptions._most_subscribed = 4
    with pytest.raises(LiteQuotaError, match="that a server may be subscribed to"):
        store.lite.sync("g", "d", ADD, ["a", "b"])
    assert store.lite.subscriptions.subscribed == 3


def test_a_group_is_for_lite_topics_or_for_others(store: MessageStore) -> None:
    ready(store)
    store.groups.create("plain")
    put(store, "a", "a0")
    with pytest.raises(LiteGroupError, match="receives from lite topics of 'p' only"):
        store.groups.receive("g", P)
    with pytest.raises(LiteGroupError, match="not bound to lite topics"):
        store.lite.sync("plain", "c", ADD, ["a"])
    assert len(store.groups.receive("plain", P).deliveries) == 1
    settings = store.groups.describe("g")
    assert settings is not None
    with pytest.raises(InvalidArgumentError, match="only its client_quota can be changed"):
        store.groups.update("g", settings._replace(lite=LiteGroup("other")))
    store.groups.update("g", settings._replace(lite=LiteGroup(P, client_quota=7)))
    store.create_topics([("bare", 1)])
    store.groups.create("h", SharedGroup(lite=LiteGroup("bare")))
    with pytest.raises(InvalidArgumentError, match="'bare' is not made for lite topics"):
        store.lite.sync("h", "c", ADD, ["a"])
    wrong = SharedGroup(lite=LiteGroup(P, is_exclusive=True, is_wildcard=True))
    with pytest.raises(InvalidArgumentError, match=r"lite\.exclusive"):
        store.groups.create("w", wrong)


def test_a_group_that_is_paused_keeps_its_names_ready(store: MessageStore) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a"])
    put(store, "a", "a0")
    settings = store.groups.describe("g")
    assert settings is not None
    store.groups.update("g", settings._replace(is_paused=True))
    assert received(store) == []
    store.groups.update("g", settings)
    assert texts(received(store)) == ["a0"]


@pytest.mark.parametrize("wildcard", [False, True])
def test_a_group_of_the_latest_begins_while_it_is_paused(
    store: MessageStore, wildcard: bool
) -> None:
    store.lite.make(P)
    put(store, "a", "before")
    settings = SharedGroup(lite=LiteGroup(P, is_wildcard=wildcard), from_latest=True)
    store.groups.create("g", settings._replace(is_paused=True))
    if not wildcard:
        store.lite.sync("g", "c", ADD, ["a"])
    assert received(store) == []
    put(store, "a", "paused")
    assert received(store) == []
    store.groups.update("g", settings)
    assert texts(received(store)) == ["paused"]


def test_what_is_delivered_as_a_group_is_resumed_reaches_its_receiver(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(store)
    settings = store.groups.describe("g")
    assert settings is not None
    store.groups.update("g", settings._replace(is_paused=True))
    store.lite.sync("g", "c", ADD, ["a"])
    put(store, "a", "x")
    receives = store.lite.subscriptions.receives

    def resumed(*args: object) -> list[str]:
        store.groups.update("g", settings)
        return receives(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store.lite.subscriptions, "receives", resumed)
    assert texts(received(store)) == ["x"]


def test_a_group_that_was_deleted_has_no_subscriptions(store: MessageStore) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a"])
    store.delete_group("g")
    assert store.lite.subscriptions.clients == 0
    ready(store)
    with pytest.raises(UnknownLiteClientError):
        received(store)


def test_a_client_of_a_group_that_was_made_anew_is_the_one_that_calls() -> None:
    subscriptions = Subscriptions()
    for client in ("c", "d"):
        subscriptions.sync("g", LiteGroup("p"), client, ADD, ["a"], 0, 0)
    subscriptions.sync("g", LiteGroup("q"), "c", ADD, ["a"], 0, 0)
    assert subscriptions.receives("g", LiteGroup("q"), "c", 0) == []
    with pytest.raises(UnknownLiteClientError):
        subscriptions.receives("g", LiteGroup("q"), "d", 0)


def test_a_start_in_a_group_that_is_deleted_meanwhile_leaves_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(store)
    put(store, "a", "x")
    sync = store.lite.subscriptions.sync

    def deleted(*args: object) -> Synced:
        store.delete_group("g")
        return sync(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(store.lite.subscriptions, "sync", deleted)
    with pytest.raises(UnknownGroupError):
        store.lite.sync("g", "c", ADD, ["a"], start=Edge.LATEST)
    assert store.tables.windows("g", queue_of(P, "a"), [0])[0].next_offset == 0


def test_an_attempt_made_again_gets_the_same(store: MessageStore) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a", "b"])
    put(store, "a", "a0")
    put(store, "b", "b0")
    first = received(store, attempt_id="one")
    put(store, "a", "a1")
    again = received(store, attempt_id="one")
    assert [each.handle for each in again] == [each.handle for each in first]
    assert texts(received(store, attempt_id="two")) == ["a1"]


def test_clients_that_are_gone_leave(store: MessageStore, clock: FakeClock) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a"])
    store.lite.sync("g", "d", ADD, ["a"])
    clock.advance(CLIENT_TIMEOUT_MS / 2000)
    received(store, "d")
    clock.advance(CLIENT_TIMEOUT_MS / 2000)
    store.lite.look()
    assert store.lite.subscriptions.clients == 1
    assert received(store, "d") == []
