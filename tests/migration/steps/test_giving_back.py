"""What waits here goes back to the broker; over adopt, release, adopt nothing comes twice."""

from __future__ import annotations

import json
import random
import re
import struct
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING

import pytest

from migration import migrator, opening
from migration import release as releasing
from migration.broker_config import delivered_offsets
from migration.release import Home, release
from migration.steps import adopting, giving_back
from migration.steps.adopting import adopt
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.migration.steps.test_inheriting import (
    HOUR_MS,
    NOW_MS,
    bodies,
    opened,
    some_of_each,
    waiting_in,
)
from tests.support.fake_clock import FakeClock
from tests.support.seeds import seeds
from tests.support.waiting_broker import HALVES, TIMERS, WaitingBroker
from tests.support.written_broker import LAYOUT

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore


@pytest.fixture
def broker(tmp_path: Path) -> WaitingBroker:
    return WaitingBroker(tmp_path / "store", NOW_MS)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    """All steps go by it."""
    clock = FakeClock(NOW_MS)
    for module in (adopting, opening, migrator, releasing):
        monkeypatch.setattr(module, "SystemClock", lambda: clock)
    return clock


def fire(store: MessageStore, clock: FakeClock, hours: float) -> None:
    clock.advance(hours * 3600)
    while store.timers.firing.fire():
        pass


def test_a_broker_finds_what_waits_and_nothing_that_was_delivered(
    broker: WaitingBroker, clock: FakeClock
) -> None:
    names = some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    adopt(root, layout=LAYOUT)
    with closing(opened(root, clock)) as store:
        fire(store, clock, 1.5)
        (one, _) = store.halves.list()[0]
        store.halves.end(one.transaction_id, commit=True)
    told = release(root, home=Home.FILES)
    assert any(line.startswith("3 delayed messages are the broker's") for line in told), told
    assert any(line.startswith("1 open transactions are halves") for line in told), told
    check = (root / "config" / "timercheck").read_bytes()
    _, _, at, master_at = struct.unpack_from(">qqqq", check)
    assert (len(check), at) == (4096, master_at)
    assert list((root / "timerlog").iterdir()) == []
    units = (root / "consumequeue" / TIMERS / "0" / f"{0:020d}").read_bytes()
    later = root / "consumequeue" / TIMERS / "0" / f"{320:020d}"
    units += later.read_bytes() if later.exists() else b""
    count = sum(any(units[first : first + 20]) for first in range(at * 20, len(units), 20))
    assert count == 3  # those that wait, and no others, lie behind it
    text = (root / "config" / "delayOffset.json").read_text()
    assert "3:2" in text.replace(" ", "")
    offsets = (root / "config" / "consumerOffset.json").read_text()
    assert "KVCQ" not in offsets
    assert names


def test_what_was_released_is_taken_over_again(broker: WaitingBroker, clock: FakeClock) -> None:
    names = some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    for _ in range(3):
        adopt(root, layout=LAYOUT)
        with closing(opened(root, clock)) as store:
            clock.advance(7)
            found = waiting_in(store)
            assert found.pop("open 2") == 0
            # One is due meanwhile.
            assert found.keys() - {"delayed"} == names - {"delayed"}
            assert ("delayed" in found) is not ("delayed" in bodies(store))
        release(root, home=Home.FILES)


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_nothing_comes_twice_over_adopt_release_adopt(
    broker: WaitingBroker, clock: FakeClock, seed: int
) -> None:
    """Random messages, some of them due, decided or recalled between any two takings over."""
    chance = random.Random(seed)
    names = []
    for number in range(chance.randrange(1, 40)):
        name = f"m{number}"
        names.append(name)
        kind = chance.randrange(3)
        if kind == 0:
            broker.delay(name, chance.randrange(1, 19))
        elif kind == 1:
            broker.timer(name, NOW_MS + chance.randrange(100) * HOUR_MS)
        else:
            broker.half(name)
    timers = len(broker.units.get((TIMERS, 0), []))
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=chance.randrange(0, 1) if timers else 0)
    gone: set[str] = set()
    came: Counter[str] = Counter()
    for turn in range(4):
        adopt(root, layout=LAYOUT)
        with closing(opened(root, clock)) as store:
            fire(store, clock, chance.randrange(40) if turn < 3 else 200)
            for each in store.timers.page(limit=1000).found:
                if chance.random() < 0.2:
                    name = each.message.body.decode()
                    done = store.timers.recall(each.message.topic, [each.handle])
                    assert done.outcomes[0].value == "recalled"
                    gone.add(name)
            checks = {each.transaction_id: each for each in store.halves.due("producers")}
            for half in store.halves.list()[0]:
                if turn == 3 or chance.random() < 0.4:
                    commit = chance.random() < 0.6
                    if not commit:
                        gone.add(checks[half.transaction_id].message.body.decode())
                    store.halves.end(half.transaction_id, commit=commit)
            if turn < 3 and chance.random() < 0.5:
                name = f"own{turn}"
                message = Message("orders", name.encode())
                store.timers.put([message], [clock.now_ms() + HOUR_MS])
                names.append(name)
            came = Counter(bodies(store))
        if turn < 3:
            release(root, home=Home.FILES)
    assert max(came.values(), default=0) <= 1
    assert set(came) == set(names) - gone


def test_a_broker_is_told_of_every_delay_level_whatever_else_was_taken_over(
    broker: WaitingBroker, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("store.state.rows._PAGE", 1)
    for level in (1, 5, 18):
        broker.delay(f"delayed {level}", level)
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    opened(root, clock).close()
    release(root, home=Home.FILES)
    assert delivered_offsets(root) == {1: 1, 5: 1, 18: 1}


class Cut(Exception):
    """The process ends."""


def test_a_release_that_is_cut_short_loses_nothing(
    broker: WaitingBroker, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = some_of_each(broker)
    root = broker.stop(read_ms=NOW_MS - 1000, next_timer=6)
    adopt(root, layout=LAYOUT)
    opened(root, clock).close()
    with monkeypatch.context() as patched:

        def cut(*_: object) -> list[str]:
            raise Cut

        patched.setattr(giving_back, "_letters", cut)
        with pytest.raises(Cut):
            release(root, home=Home.FILES)
    with closing(opened(root, clock)) as store:
        clock.advance(7)
        found = waiting_in(store)
        assert found.pop("open 2") == 0
        assert found.keys() == names


def test_messages_in_flight_go_back_as_offsets_and_are_counted(
    broker: WaitingBroker, clock: FakeClock
) -> None:
    broker.put("orders", 10)
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, clock)) as store:
        store.groups.create("idle")
        store.groups.create("workers")
        received = store.groups.receive("workers", "orders", max_messages=10)
        handles = [each.handle for each in received.deliveries]
        done = store.groups.acknowledge("workers", [*handles[:2], *handles[4:]])
        assert set(done.outcomes) == {Outcome.DONE}
    told = release(root, home=Home.FILES)
    assert any(line.startswith("2 messages that 1 shared groups have in flight") for line in told)
    assert any("6 acknowledged messages behind them again" in line for line in told), told
    assert any(line.startswith("2 shared groups written for the broker") for line in told), told
    text = (root / "config" / "consumerOffset.json").read_text()
    assert '"orders@workers":{0:2,1:0}' in text.replace(" ", ""), text
    assert json.loads((root / "config" / "topics.json").read_text())
    assert HALVES


@pytest.mark.parametrize("from_latest", [False, True])
def test_a_queue_that_a_shared_group_has_not_received_from_has_an_offset_too(
    broker: WaitingBroker, clock: FakeClock, from_latest: bool
) -> None:
    broker.put("orders", 1)
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    with closing(opened(root, clock)) as store:
        store.create_topics([("t", 3)])
        store.groups.create("workers", SharedGroup(from_latest=from_latest))
        store.put([Message("t", b"x", queue_id) for queue_id in range(3)])
        store.groups.receive("workers", "t", max_messages=1)  # from the latest on: nothing
        store.put([Message("t", b"x", queue_id) for queue_id in range(3)])
        (got,) = store.groups.receive("workers", "t", max_messages=1).deliveries
        store.groups.acknowledge("workers", [got.handle])
    release(root, home=Home.FILES)
    text = re.sub(r"\s", "", (root / "config" / "consumerOffset.json").read_text())
    (row,) = re.findall(r'"t@workers":{([^}]*)}', text)
    found = dict(each.split(":") for each in row.split(","))
    assert found.keys() == {"0", "1", "2"}
    assert sorted(map(int, found.values())) == ([1, 1, 2] if from_latest else [0, 0, 1])
