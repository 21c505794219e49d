from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from migration.state.routes import SideName
from migration.state.routing import Route, RoutingPolicy, Rule, parse_rules
from migration.state.state import Phase
from tests.support.migrating import (
    LIGHT,
    TOPICS,
    advance,
    check_messages,
    config,
    differences,
    done,
    live,
    messages,
    open_store,
)

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


def test_a_hybrid_keeps_no_directories_of_what_left_the_files(
    store: MessageStore, root: Path
) -> None:
    advance(store, Phase.ROCKSDB)
    (root / "consumequeue" / "idle" / "0").mkdir(parents=True)  # of a topic without messages
    (root / "consumequeue" / "bare").mkdir()
    done(live(store).set_routing(RoutingPolicy(parse_rules(["orders=files"]), Route.ROCKSDB)))
    live(store).finish()
    assert [each.name for each in (root / "consumequeue").iterdir()] == ["orders"]


HYBRID = RoutingPolicy((Rule("audit-*", Route.FILES), Rule(LIGHT, Route.FILES)), Route.ROCKSDB)


def names_on(store: MessageStore, name: SideName) -> set[str]:
    side = live(store).double.side(name)
    return set() if side is None else {last[0] for last in side.store.last_units()}


def test_a_hybrid_is_a_state_to_stay_in(store: MessageStore, root: Path) -> None:
    done(live(store).start(HYBRID))
    assert names_on(store, SideName.ROCKSDB) == {"orders", "payments"}
    advance(store, Phase.FINISHED)
    store.put(messages(600, 80))
    store.wait_visible()
    assert names_on(store, SideName.FILES) == {"audit-eu", "audit-us", LIGHT}
    assert names_on(store, SideName.ROCKSDB) == {"orders", "payments"}
    assert check_messages(store, 680) == 680
    assert differences(store) == []
    assert store.list_light_queues("", None, 10) == [LIGHT]
    store.close()
    with open_store(config(root)) as again:
        assert check_messages(again, 680) == 680
        again.put(messages(680, 80))
        again.wait_visible()
        assert check_messages(again, 760) == 760
        again.delete_topic("audit-us")
        assert names_on(again, SideName.FILES) == {"audit-eu", LIGHT}


def test_routing_changes_while_messages_come_in(store: MessageStore) -> None:
    advance(store, Phase.ROCKSDB)
    put = 600
    policies = [
        HYBRID,
        RoutingPolicy((Rule("orders", Route.FILES),), Route.BOTH),
        RoutingPolicy((), Route.ROCKSDB),
        RoutingPolicy((Rule("*", Route.FILES),), Route.BOTH),
        RoutingPolicy(),
    ]
    stop = threading.Event()
    counter = [put]

    def produce() -> None:
        while not stop.wait(0.02):
            store.put(messages(counter[0], 20))
            counter[0] += 20

    with ThreadPoolExecutor(1) as pool:
        thread = pool.submit(produce)
        try:
            for policy in policies:
                done(live(store).set_routing(policy))
                assert live(store).state.routing == policy
                assert live(store).state.pending is None
                assert differences(store) == []
        finally:
            stop.set()
        thread.result()
    assert check_messages(store, counter[0]) == counter[0]
    done(live(store).rollback())
    assert differences(store) == []
    assert check_messages(store, counter[0]) == counter[0]


def test_a_change_of_routing_takes_a_verification_back(store: MessageStore) -> None:
    advance(store, Phase.VERIFIED)
    done(live(store).set_routing(RoutingPolicy((Rule("orders", Route.FILES),), Route.BOTH)))
    assert live(store).state.phase is Phase.DOUBLE_WRITE


def test_all_topics_are_listed_in_a_hybrid(store: MessageStore) -> None:
    done(live(store).start(HYBRID))
    advance(store, Phase.FINISHED)
    double = live(store).double
    assert double.list_names("o", None, 10) == ["orders"]
    assert double.list_names("audit", None, 10) == ["audit-eu", "audit-us"]
    assert double.list_names("audit", "audit-eu", 10) == ["audit-us"]
    assert {name.name for name in store.list_topics("", None, 10)} == set(TOPICS)
