"""Shared groups over kills and losses of power: what was acknowledged is not delivered again, and
nothing that was put is lost."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import sys
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from migration.check import check_store
from store.config import FlushMode
from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.groups import Outcome
from store.message import Message
from tests.crash.images import power_loss
from tests.crash.ordered_child import KEYS
from tests.crash.receiving_child import GROUP, LIGHT, SETTINGS, TOPIC
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

#: Of putting_child.POINTS, with how often each is entered before the kill.
COUNTS = {
    "after append": (1, 2, 3, 4, 5, 60, 61),
    "in append": (2, 3, 37, 90),
    "at roll": (2,),
    "before fsync": (5, 30),
    "in dispatch": (3, 20, 45, 46, 47),
    "in flush of queues": (2,),
    "in checkpoint": (2,),
}


def text_of(delivery: Delivery) -> str:
    prefix = "light " if delivery.topic == LIGHT else ""
    return prefix + unpack_record(delivery.record).body.decode().strip()


def deliver_all(store: MessageStore, clock: FakeClock) -> Counter[str]:
    """What is delivered until nothing more comes, each acknowledged."""
    seen: Counter[str] = Counter()
    clock.advance(86_400)
    for topic in (TOPIC, LIGHT):
        while True:
            try:
                received = store.groups.receive(GROUP, topic, max_messages=100)
            except UnknownTopicError:
                break
            found = received.deliveries
            if not found and received.next_look_ms is None:
                break
            if found:
                seen.update(map(text_of, found))
                handles = [each.handle for each in found]
                outcomes = store.groups.acknowledge(GROUP, handles).outcomes
                assert set(outcomes) == {Outcome.DONE}
    return seen


def letters(store: MessageStore) -> Counter[str]:
    store.wait_visible()
    found: Counter[str] = Counter()
    after = -1
    while page := store.groups.list_dead_letters(GROUP, after, limit=1000):
        for letter in page:
            text = unpack_record(letter.record).body.decode().strip()
            found["light " * (letter.topic == LIGHT) + text] += 1
        after = page[-1].offset
    assert store.groups.dead_letters(GROUP) == found.total()
    return found


def judge(root: Path, told: list[tuple[str, list[str]]], mode: FlushMode) -> None:
    """What the store gives to one who comes after the crash, by what was answered before."""
    put = {text for what, texts in told if what == "put" for text in texts}
    put |= {f"light {text}" for text in put}
    done = {text for what, texts in told if what == "acknowledged" for text in texts}
    maybe = {text for what, texts in told if what == "not answered" for text in texts}
    times = Counter(text for what, texts in told if what == "received" for text in texts)
    rounds = 1 + sum(what == "redrive" for what, _ in told)
    clock = FakeClock(FakeClock().now_ms() + 10_000_000)
    with open_small(root, clock, flush_mode=mode) as store:
        assert differences(store) == []
        again = deliver_all(store, clock)
        dead = letters(store)
        assert not done & (again.keys() | dead.keys()), "it was acknowledged"
        assert put <= done | maybe | again.keys() | dead.keys(), "it is lost"
        assert not again.keys() & dead.keys()
        assert set((again + dead).values()) <= {1}
        most = SETTINGS.max_deliveries
        assert most is not None
        assert all(times[text] <= most * rounds for text in dead)
        assert deliver_all(store, clock) == Counter()
        assert letters(store) == dead
        assert differences(store) == []
    assert check_store(root) == []


@pytest.mark.parametrize(
    ("point", "count", "mode"),
    [
        (point, count, mode)
        for point in COUNTS
        for count in COUNTS[point]
        for mode in FlushMode
        # Half of them in the mode where only a kill is survived; nothing waits for fsync there.
        if mode is FlushMode.SYNC or (count % 2 == 0 and point != "before fsync")
    ],
)
def test_a_kill_delivers_again_only_what_was_not_acknowledged(
    tmp_path: Path, point: str, count: int, mode: FlushMode
) -> None:
    assert kill(tmp_path / "store", point, count, mode), "it never came to the point"


def kill(root: Path, point: str, count: int, mode: FlushMode) -> bool:
    """Whether it came to the point; what it left is judged."""
    child = subprocess.run(
        [sys.executable, "-m", "tests.crash.receiving_child", root, mode.value, point, str(count)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=300,
    )
    assert child.returncode in (0, -signal.SIGKILL)
    told = [json.loads(line) for line in child.stdout.splitlines() if line.endswith(b"]")]
    judge(root, told, mode)
    return child.returncode != 0


#: Points, and up to how often each is entered before the kill.
RANDOM_POINTS = {
    "after append": 1500,
    "in append": 1500,
    "at roll": 30,
    "before fsync": 1500,
    "in dispatch": 1500,
    "behind a record of state": 900,
    "before its rows": 900,
    "in checkpoint": 20,
}
KILLS = 500


@pytest.mark.parametrize(
    "seed",
    [*range(8), *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(8, KILLS))],
)
def test_kills_at_random_points(tmp_path: Path, seed: int) -> None:
    """Most of them in SYNC; in ASYNC nothing waits for fsync."""
    chance = random.Random(seed)
    point = chance.choice(list(RANDOM_POINTS))
    # The earlier moments oftener: each of them costs less.
    count = 1 + int(RANDOM_POINTS[point] * chance.random() ** 3)
    modes = [FlushMode.SYNC] if point == "before fsync" else [FlushMode.SYNC, *FlushMode]
    kill(tmp_path / "store", point, count, chance.choice(modes))


@pytest.mark.parametrize("point", ["after append", "in dispatch", "before its rows"])
@pytest.mark.parametrize("count", [3, 40, 170, 400])
def test_a_kill_changes_nothing_in_the_order_of_a_group(
    tmp_path: Path, point: str, count: int
) -> None:
    """Of each ordering key none is handed over before the one before it is acknowledged."""
    root = tmp_path / "store"
    child = subprocess.run(
        [sys.executable, "-m", "tests.crash.ordered_child", root, point, str(count)],
        stdout=subprocess.PIPE,
        check=False,
        timeout=300,
    )
    assert child.returncode == -signal.SIGKILL
    told = [json.loads(line) for line in child.stdout.splitlines() if line.endswith(b"]")]
    left: dict[str, list[str]] = {key: [] for key in KEYS}  # in order, not acknowledged
    maybe: set[str] = set()
    for what, texts in told:
        for text in texts:
            ahead = left[text[0]]
            if what == "put":
                ahead.append(text)
            elif what == "received":
                assert ahead[0] == text, "it waits for the one before it"
            elif what == "acknowledged":
                ahead.remove(text)
        maybe = set(texts) if what == "not answered" else set()
    clock = FakeClock()
    with open_small(root, clock) as store:
        store.wait_visible()
        clock.advance(86_400)
        found: dict[str, list[str]] = {key: [] for key in KEYS}
        while received := store.groups.receive(GROUP, TOPIC, max_messages=100).deliveries:
            for each in received:
                text = text_of(each)
                found[text[0]].append(text)
            store.groups.acknowledge(GROUP, [each.handle for each in received])
        for key, ahead in left.items():
            if ahead and ahead[0] in maybe and ahead[0] not in found[key]:
                del ahead[0]
            # The last put may be in the log without an answer.
            assert found[key][: len(ahead)] == ahead
            assert len(found[key]) <= len(ahead) + 1
        assert differences(store) == []
    assert check_store(root) == []


@pytest.mark.parametrize("seed", range(12))
def test_a_loss_of_power_delivers_again_only_what_was_not_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    told: list[tuple[str, list[str]]] = []
    image = tmp_path / "image"
    with open_small(tmp_path / "store", clock, flush_mode=FlushMode.SYNC) as store:
        store.groups.create(GROUP, SETTINGS)
        number = 0
        held: list[Delivery] = []
        for _ in range(chance.choice((3, 20, 60))):
            texts = [f"{number + each}" for each in range(chance.randrange(1, 9))]
            number += len(texts)
            names = (LIGHT,)
            store.put(
                [
                    Message(TOPIC, body.ljust(900), chance.randrange(3), light_queues=names)
                    for body in map(str.encode, texts)
                ]
            )
            told.append(("put", texts))
            topic = chance.choice((TOPIC, LIGHT))
            found = store.groups.receive(GROUP, topic, max_messages=9).deliveries
            told.append(("received", list(map(text_of, found))))
            held += found
            chance.shuffle(held)
            some = held[: chance.randrange(0, 12)]
            if some:
                outcomes = store.groups.acknowledge(GROUP, [each.handle for each in some]).outcomes
                pairs = zip(some, outcomes, strict=True)
                done = [text_of(each) for each, outcome in pairs if outcome is Outcome.DONE]
                told.append(("acknowledged", done))
                del held[: len(some)]
            if chance.random() < 0.2:
                clock.advance(1)
            if chance.random() < 0.1:
                store.flush()
        # The last of these is in the log, and not durable: nobody waits for it.
        store.groups.receive(GROUP, TOPIC, max_messages=3)
        if held and chance.random() < 0.5:
            last = store.groups.acknowledge(GROUP, [held[0].handle], wait=False)
            if last.outcomes == [Outcome.DONE]:
                told.append(("not answered", [text_of(held[0])]))
        if chance.random() < 0.3:
            store.queues.flush()
        power_loss(store, image, chance)
    judge(image, told, FlushMode.SYNC)
