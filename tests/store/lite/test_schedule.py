"""A random schedule of clients over a real store: who has nothing ready would receive nothing."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from store.format.record import unpack_record
from store.groups import Outcome
from store.lite import queue_of
from tests.store.lite.test_lite_topics import COMPLETE, P, acknowledge, put, ready, received

if TYPE_CHECKING:
    from store.groups import Delivery
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


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
