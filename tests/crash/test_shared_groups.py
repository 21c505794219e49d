"""Shared groups over kills and losses of power: what was acknowledged is not delivered again, and
nothing that was put is lost."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.groups import Outcome
from store.message import Message
from tests.crash.images import power_loss
from tests.crash.loads.groups import GROUP, LIGHT, SETTINGS, TOPIC, text_of
from tests.crash.loads.killing import judge, kill
from tests.crash.loads.load import Told
from tests.support.fake_clock import FakeClock
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.groups import Delivery

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
    assert kill(tmp_path, "groups", point, count, mode), "it never came to the point"


@pytest.mark.parametrize("point", ["after append", "in dispatch", "before its rows"])
@pytest.mark.parametrize(
    "count", [3, 40, *(pytest.param(n, marks=pytest.mark.slow) for n in (170, 400))]
)
def test_a_kill_changes_nothing_in_the_order_of_a_group(
    tmp_path: Path, point: str, count: int
) -> None:
    assert kill(tmp_path, "ordered", point, count, FlushMode.ASYNC, seed=count)


@pytest.mark.parametrize("seed", seeds(2, 12))
def test_a_loss_of_power_delivers_again_only_what_was_not_acknowledged(
    tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    clock = FakeClock()
    told: list[Told] = []
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
            told.append(Told("put", texts))
            topic = chance.choice((TOPIC, LIGHT))
            found = store.groups.receive(GROUP, topic, max_messages=9).deliveries
            told.append(Told("received", list(map(text_of, found))))
            held += found
            chance.shuffle(held)
            some = held[: chance.randrange(0, 12)]
            if some:
                outcomes = store.groups.acknowledge(GROUP, [each.handle for each in some]).outcomes
                pairs = zip(some, outcomes, strict=True)
                done = [text_of(each) for each, outcome in pairs if outcome is Outcome.DONE]
                told.append(Told("acknowledged", done))
                del held[: len(some)]
            if chance.random() < 0.2:
                clock.advance(1)
                told.append(Told("time", [clock.wall_ms, clock.monotonic]))
            if chance.random() < 0.1:
                store.flush()
        # The last of these is in the log, and not durable: nobody waits for it.
        store.groups.receive(GROUP, TOPIC, max_messages=3)
        if held and chance.random() < 0.5:
            last = store.groups.acknowledge(GROUP, [held[0].handle], wait=False)
            if last.outcomes == [Outcome.DONE]:
                told.append(Told("not answered", [text_of(held[0])]))
        if chance.random() < 0.3:
            store.queues.flush()
        power_loss(store, image, chance)
    judge(image, "groups", told, FlushMode.SYNC)
