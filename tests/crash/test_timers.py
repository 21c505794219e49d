"""Delayed messages over losses of power: each has one outcome, whatever came last.

Messages are put with a time, delivered, recalled, appended again before their segments go; topics
end; then the power fails. Each that was answered is delivered once, or was recalled.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import look_over
from store.config import FlushMode
from store.held import Recall
from store.message import Message
from tests.crash.images import power_loss
from tests.store.held.test_timers import fire, texts
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

TOPIC = "T"
HOUR = 3600.0


def open_by_hand(root: Path, clock: FakeClock) -> MessageStore:
    store = open_small(root, clock, flush_mode=FlushMode.SYNC, reserved_hours=1)
    store.timers.firing.stop()
    return store


class Life:
    """One store until its power fails, and what was answered by then."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.clock = FakeClock()
        self.store = open_by_hand(root, self.clock)
        self.store.create_topics([(TOPIC, 2)])
        self.handles: dict[str, str] = {}
        self.delivered: set[str] = set()
        self.recalled: set[str] = set()
        self.number = 0

    def put(self, *, wait: bool = True) -> None:
        some = [f"{self.number + each}" for each in range(self.chance.randrange(1, 9))]
        self.number += len(some)
        messages = [Message(TOPIC, text.ljust(700).encode(), 1) for text in some]
        due = [self.clock.now_ms() + self.chance.randrange(-1000, 20_000_000) for _ in some]
        done = self.store.timers.put(messages, due, wait=wait)
        if wait:
            self.handles.update(zip(some, done.handles, strict=True))

    def fire(self) -> None:
        self.clock.advance(self.chance.random() * HOUR)
        fire(self.store)

    def recall(self, *, wait: bool = True) -> set[str]:
        some = self.chance.sample(sorted(self.handles), min(3, len(self.handles)))
        if not some:
            return set()
        named = [self.handles[text] for text in some]
        done = self.store.timers.recall(TOPIC, named, wait=wait)
        found = {
            text
            for text, outcome in zip(some, done.outcomes, strict=True)
            if outcome is Recall.RECALLED
        }
        assert not found & self.recalled
        if wait:
            self.recalled |= found
        return found

    def drop(self) -> None:
        self.note()
        self.store.put([Message("filler", bytes(30_000)) for _ in range(3)])
        self.clock.advance(2 * HOUR)
        with self.store._upkeep.checkpoints.lock:
            self.store._upkeep.checkpoints.flush()
        self.store._services.retention.run_once(now=True)

    def move_only(self) -> None:
        """The appends before a drop, which does not come."""
        self.store.wait_visible()
        self.store.rolling.keep_below(self.store.flushed_offset, is_pressed=False)

    def note(self) -> None:
        """What was delivered so far may go with the log."""
        found = Counter(each.strip() for each in texts(self.store))
        assert set(found.values()) <= {1}
        self.delivered |= found.keys()


@pytest.mark.parametrize("seed", range(16))
def test_a_loss_of_power_leaves_one_outcome_of_each(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    image = tmp_path / "image"
    life = Life(tmp_path / "store", chance)
    steps: list[Callable[[], object]] = [life.put, life.put, life.fire, life.recall, life.drop]
    maybe: set[str] = set()
    with life.store as store:
        for _ in range(chance.choice((5, 20, 50))):
            chance.choice(steps)()
        life.note()
        last = chance.randrange(3)
        if last == 0:
            life.move_only()
        elif last == 1:
            maybe = life.recall(wait=False)
        else:
            life.put(wait=False)
        power_loss(store, image, chance)
    clock = FakeClock(life.clock.now_ms())
    clock.monotonic = life.clock.monotonic  # the machine goes on: its time is believed
    with open_by_hand(image, clock) as store:
        assert differences(store) == []
        clock.advance(24 * HOUR)
        fire(store)
        assert store.timers.count() == 0
        found = Counter(each.strip() for each in texts(store))
        assert set(found.values()) <= {1}, "it was delivered twice"
        seen = found.keys() | life.delivered
        assert life.handles.keys() - life.recalled - maybe <= seen, "it is lost"
        assert not life.recalled & seen, "it was recalled"
        named = [life.handles[text] for text in sorted(life.handles)]
        for handle in named:
            assert store.timers.recall(TOPIC, [handle]).outcomes == [Recall.NOT_WAITING]
        assert differences(store) == []
    assert not [each for each in look_over(image).findings if each.is_fault]


def test_a_recall_against_its_time_has_one_outcome_ten_thousand_times(tmp_path: Path) -> None:
    clock = FakeClock()
    rounds, each = 100, 100
    with open_small(tmp_path / "store", clock) as store:
        recalled: set[str] = set()
        for number in range(rounds):
            some = [f"{number}.{at}" for at in range(each)]
            due = clock.now_ms() + 1000
            messages = [Message(TOPIC, text.encode(), 1) for text in some]
            handles = store.timers.put(messages, [due] * each).handles
            begin = threading.Barrier(2)

            def recall(some: list[str] = some, handles: list[str] = handles) -> None:
                begin.wait()  # noqa: B023 - of this round
                for text, handle in zip(reversed(some), reversed(handles), strict=True):
                    (outcome,) = store.timers.recall(TOPIC, [handle]).outcomes
                    if outcome is Recall.RECALLED:
                        recalled.add(text)

            thread = threading.Thread(target=recall)
            thread.start()
            begin.wait()
            clock.advance(1)  # its own thread puts what is due
            store.timers.firing.fire()
            thread.join()
        while store.timers.count():
            store.timers.firing.fire()
        found = Counter(texts(store))
        assert set(found.values()) <= {1}
        assert not recalled & found.keys()
        assert len(recalled) + len(found) == rounds * each
        assert store.statistics()["store.timers_lost"] == 0
