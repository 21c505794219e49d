"""Lite topics and their groups are taken over from a broker, and given back to it."""

from __future__ import annotations

from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from migration.broker_config import read_config
from migration.check import check_store
from migration.release import Home, release
from migration.steps.adopting import adopt
from store.format import unpack_record
from store.lite import Action, queue_of
from store.message import Message
from store.metadata import LiteGroup, SharedGroup
from tests.migration.steps.test_inheriting import NOW_MS, opened
from tests.support.fake_clock import FakeClock
from tests.support.waiting_broker import WaitingBroker
from tests.support.written_broker import LAYOUT

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

PARENT = "questions"
DAY_MS = 24 * 3_600_000


@pytest.fixture
def broker(tmp_path: Path) -> WaitingBroker:
    """Two lite topics of three messages; the group is done with one of them in the first."""
    broker = WaitingBroker(tmp_path / "store", NOW_MS)
    broker.create(PARENT)
    broker.attributes[PARENT] = {"message.type": "LITE", "lite.topic.expiration": "1440"}
    for name in ("tea", "milk"):
        for number in range(3):
            broker.put(
                PARENT,
                light=(queue_of(PARENT, name),),
                body=b"%s %d" % (name.encode(), number),
                store_time_ms=NOW_MS,
            )
    broker.groups["windows"] = {
        "attributes": {"lite.bind.topic": PARENT, "lite.sub.model": "Exclusive"},
        "groupName": "windows",
        "retryMaxTimes": 16,
    }
    broker.offsets[f"{queue_of(PARENT, 'tea')}@windows"] = {0: 1}
    return broker


def received(store: MessageStore, *names: str) -> list[str]:
    """What a new client is given of each lite topic, which it acknowledges."""
    store.lite.sync("windows", "client", Action.ADD, names)
    found = []
    while deliveries := store.lite.receive("windows", "client").deliveries:
        found += [unpack_record(each.record).body.decode() for each in deliveries]
        store.groups.acknowledge("windows", [each.handle for each in deliveries])
    return sorted(found)


def test_a_group_goes_on_where_it_was_in_each_lite_topic(broker: WaitingBroker) -> None:
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        assert store.lite.expiry_ms(PARENT) == DAY_MS
        lite = LiteGroup(PARENT, is_exclusive=True)
        assert store.groups.describe("windows") == SharedGroup(17, in_order=True, lite=lite)
        assert received(store, "tea", "milk") == ["milk 0", "milk 1", "milk 2", "tea 1", "tea 2"]
    assert [each for each in check_store(root) if each.is_fault] == []


def test_lite_topics_go_back_and_are_taken_again(broker: WaitingBroker) -> None:
    root = broker.stop()
    before = read_config(root)
    for turn in range(2):
        adopt(root, layout=LAYOUT)
        with closing(opened(root, FakeClock(NOW_MS))) as store:
            wanted = ["tea 1", "tea 2"] if not turn else ["more"]
            assert received(store, "tea") == wanted
            store.put([Message(PARENT, b"more", light_queues=(queue_of(PARENT, "tea"),))])
        release(root, home=Home.FILES)
        found = read_config(root)
        assert found.lite_parents == before.lite_parents == {PARENT: DAY_MS}
        assert found.groups == before.groups


def test_a_broker_is_given_lite_topics_and_groups_that_were_made_here(
    broker: WaitingBroker,
) -> None:
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    every = SharedGroup(lite=LiteGroup("answers", 5, is_wildcard=True), in_order=True)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        store.lite.make("answers", 90_000)
        store.lite.make("forever")
        store.groups.create("agents", every)
        store.put([Message("answers", b"one", light_queues=(queue_of("answers", "a"),))])
    release(root, home=Home.FILES)
    found = read_config(root)
    assert found.lite_parents == {PARENT: DAY_MS, "answers": 120_000, "forever": 0}
    assert found.groups["agents"]["attributes"] == {
        "lite.bind.topic": "answers",
        "lite.sub.client.quota": "5",
        "lite.sub.wildcard": "true",
    }
    adopt(root, layout=LAYOUT)
    with closing(opened(root, FakeClock(NOW_MS))) as store:
        settings = store.groups.describe("agents")
        assert settings is not None
        assert settings.lite == every.lite
        assert store.lite.sync("agents", "client", Action.COMPLETE).subscribed == 0
        assert len(store.lite.receive("agents", "client").deliveries) == 1
