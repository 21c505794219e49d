"""Lite topics over a real store: subscriptions, receives, who is told of what, and the end."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from store.errors import (
    InvalidArgumentError,
    LiteGroupError,
    LiteQuotaError,
    UnknownLiteClientError,
    UnknownTopicError,
)
from store.format.record import unpack_record
from store.groups import AtOffset, AtTime, Edge, Outcome
from store.lite import Action, FromEnd, LiteParent, LiteTopic, queue_of
from store.lite.clients import LOST_MS
from store.lite.receiving import MOST_OF_ONE
from store.lite.subscriptions import CLIENT_TIMEOUT_MS
from store.message import Message
from store.metadata import LiteGroup, MessageType, SharedGroup
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery, Where
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
    seen: list[str] = []
    while got := received(store, "c", max_messages=7):
        seen += texts(got)
        acknowledge(store, got)
    assert sorted(seen) == sorted(f"o{number}" for number in range(30))
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


def test_a_group_that_was_deleted_has_no_subscriptions(store: MessageStore) -> None:
    ready(store)
    store.lite.sync("g", "c", ADD, ["a"])
    store.delete_group("g")
    assert store.lite.subscriptions.clients == 0
    ready(store)
    with pytest.raises(UnknownLiteClientError):
        received(store)


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


# --- the end of lite topics ------------------------------------------------------------------


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


def test_a_topic_that_is_not_there_has_no_list_of_lite_topics(store: MessageStore) -> None:
    with pytest.raises(UnknownTopicError):
        store.lite.listing.names("missing", "", "", 10)
    store.lite.make(P)
    assert store.lite.listing.names(P, "", "", 10) == []


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


def test_a_lite_topic_that_grows_meanwhile_does_not_end(
    store: MessageStore, clock: FakeClock
) -> None:
    store.lite.make(P, expiry_ms=60_000)
    put(store, "a", "x")
    put(store, "b", "x")
    ends = {queue_of(P, name): 1 for name in "ab"}
    put(store, "a", "y")
    assert store.delete_idle(ends) == 1
    assert store.lite.listing.names(P, "", "", 10) == ["a"]


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


# --- lists -------------------------------------------------------------------------------------


def test_a_lite_topic_says_where_it_stands(store: MessageStore, clock: FakeClock) -> None:
    ready(store)
    store.lite.make(P, expiry_ms=60_000)
    first_ms = clock.now_ms()
    put(store, "a", "x", "y")
    clock.advance(10)
    put(store, "b", "x")
    store.lite.sync("g", "c", ADD, ["b"])
    store.lite.sync("g", "d", ADD, ["b", "silent"])
    assert store.lite.listing.states(P, ["a", "never", "b"]) == [
        LiteTopic("a", 0, 2, first_ms, first_ms + 60_000, 0),
        LiteTopic("b", 0, 1, first_ms + 10_000, None, 2),
    ]
    store.lite.make(P)
    assert [one.ends_ms for one in store.lite.listing.states(P, ["a", "b"])] == [None, None]


def test_parents_are_listed_and_count_no_further_than_they_are_to(store: MessageStore) -> None:
    ready(store)
    for parent in ("pq", "other"):
        store.lite.make(parent, expiry_ms=90_000)
    store.create_topics([("plain", 1)])
    for name in ("a", "b", "c"):
        put(store, name, "x")
    store.lite.sync("g", "c", ADD, ["a"])
    listing = store.lite.listing
    assert listing.parents("", "", 9, 2) == [
        LiteParent("other", 90_000, 0, has_more=False, clients=0),
        LiteParent(P, 0, 2, has_more=True, clients=1),
        LiteParent("pq", 90_000, 0, has_more=False, clients=0),
    ]
    assert [one.topic for one in listing.parents("p", "", 9, 1)] == [P, "pq"]
    assert [one.topic for one in listing.parents("p", P, 9, 1)] == ["pq"]
    assert [one.topic for one in listing.parents("", "other", 1, 1)] == [P]
    assert listing.parent(P, 3) == LiteParent(P, 0, 3, has_more=False, clients=1)
    assert listing.parent("plain", 3) is None


@pytest.mark.parametrize("changed", [False, True])
def test_a_topic_for_lite_messages_is_a_parent(store: MessageStore, changed: bool) -> None:
    """However it became one: by kvcq lite create, or by its type as RocketMQ's tools make it."""
    store.create_topics([(P, 1)], types={} if changed else {P: MessageType.LITE})
    if changed:
        assert not store.lite.is_parent(P)
        store.take(P, MessageType.LITE)
    assert store.lite.expiry_ms(P) == 0
    assert [one.topic for one in store.lite.listing.parents("", "", 9, 1)] == [P]
    store.lite.make(P, expiry_ms=60_000)
    store.take(P, MessageType.NORMAL)
    store.take(P, MessageType.LITE)
    assert store.lite.expiry_ms(P) == 60_000


# --- a random schedule -----------------------------------------------------------------------


@pytest.mark.parametrize("in_order", [False, True])
@pytest.mark.parametrize("kind", ["shared", "exclusive", "wildcard"])
def test_whoever_waits_would_receive_nothing(
    store: MessageStore, clock: FakeClock, kind: str, in_order: bool
) -> None:
    """After every step, of each client that has nothing ready: a receive that goes by no ready set,
    from each of its names, is given nothing either. At the end all messages were delivered."""
    ready(
        store,
        in_order=in_order,
        is_exclusive=kind == "exclusive",
        is_wildcard=kind == "wildcard",
    )
    chance = random.Random(7)
    names = [f"s{number}" for number in range(4)]
    subscribed: dict[str, set[str]] = {}
    held: list[Delivery] = []
    sent, done = 0, set()
    for _ in range(250):
        client = chance.choice("cde")
        match chance.choice(["put", "put", "receive", "receive", "settle", "settle", "sync", "go"]):
            case "put":
                put(store, chance.choice(names), f"m{sent}")
                sent += 1
            case "sync":
                wanted = chance.sample(names, chance.randint(0, 3)) if kind != "wildcard" else []
                store.lite.sync("g", client, COMPLETE, wanted)
                subscribed[client] = set(wanted)
                if kind == "exclusive":
                    now_has = set(store.lite.subscriptions._groups["g"].clients[client].names)
                    for other in subscribed:
                        subscribed[other] -= now_has
                    subscribed[client] = now_has
            case "receive" if client in subscribed:
                held += received(store, client, max_messages=chance.randint(1, 4))
            case "settle" if held:
                one = held.pop(chance.randrange(len(held)))
                if chance.random() < 0.7:
                    outcomes = store.groups.acknowledge("g", [one.handle]).outcomes
                    if outcomes == [Outcome.DONE]:
                        done.add(unpack_record(one.record).body)
                else:
                    store.groups.give_back("g", [one.handle], chance.choice([0, 3000]))
            case "go":
                clock.advance(chance.randint(0, 6))
        for who, wanted_names in subscribed.items():
            now_ms = store._times.steady_ms()
            look_ms = store.lite.subscriptions.next_look_ms("g", who, now_ms)
            if look_ms is None or look_ms > now_ms:
                for name in names if kind == "wildcard" else wanted_names:
                    assert not is_deliverable(store, name, now_ms, in_order=in_order), (who, name)
    store.lite.sync("g", "last", COMPLETE, names if kind != "wildcard" else [])
    for _ in range(500):
        got = received(store, "last")
        acknowledge(store, got)
        done.update(unpack_record(each.record).body for each in got)
        if len(done) == sent:
            return
        clock.advance(1)
    raise AssertionError(f"{sent - len(done)} of {sent} messages were not delivered")


def is_deliverable(store: MessageStore, name: str, now_ms: int, *, in_order: bool) -> bool:
    """By the rows and the queue alone."""
    queue = queue_of(P, name)
    ((window),) = store.tables.windows("g", queue, [0])
    (end,) = store.queues.next_offsets([(queue, 0)])
    in_flight = {at: lease for lease in window.leases for at in lease.offsets()}
    waiting = {at for at, _ in window.keys if at not in in_flight}
    undone = sorted({*in_flight, *waiting, *range(window.next_offset, end)})
    able = [at for at in undone if at not in in_flight or in_flight[at].is_over(now_ms)]
    return bool(able) and (not in_order or able[0] == undone[0])


def test_a_lite_topic_that_ends_while_it_is_looked_at_is_no_error(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows of the group were looked up before, and its queue after the end."""
    ready(store)
    put(store, "a", "a0", "a1", "a2")
    store.lite.sync("g", "c", ADD, ["a"])
    acknowledge(store, received(store, max_messages=2))
    pull, left = store.pull, [1]

    def ended_before(*args: object, **how: object) -> object:
        while left:
            left.pop()
            store.lite.delete(P, ["a"])
            put(store, "a", "new")
        return pull(*args, **how)  # type: ignore[arg-type]

    with monkeypatch.context() as patch:
        patch.setattr(store, "pull", ended_before)
        assert texts(received(store)) == ["new"]
