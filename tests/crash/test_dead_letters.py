"""Dead letters over losses of power: each message is in one place, whatever moved it last.

Messages die, are put again, die again, are appended again before their segments go, are deleted and
acknowledged; then the power fails. Of each that was put and is not done there is one: to be
delivered, or a dead letter.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import inspect_store
from store.config import FlushMode
from store.format.record import unpack_record
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.images import power_loss
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.seeds import seeds
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

GROUP, TOPIC = "g", "T"
HOUR = 3600.0


class Life:
    """One store until its power fails, and what was answered by then."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.clock = FakeClock()
        self.store = open_small(root, self.clock, flush_mode=FlushMode.SYNC, reserved_hours=1)
        self.store.groups.create(GROUP, SharedGroup(max_deliveries=1, invisible_ms=1))
        self.put_texts: set[str] = set()
        self.done: set[str] = set()
        self.seen: Counter[str] = Counter()

    def put(self) -> None:
        texts = [f"{len(self.put_texts) + each}" for each in range(self.chance.randrange(1, 9))]
        self.store.put(
            [Message(TOPIC, text.ljust(700).encode(), self.chance.randrange(2)) for text in texts]
        )
        self.put_texts.update(texts)

    def receive(self) -> None:
        """Some are acknowledged; the others die when somebody looks again."""
        found = self.store.groups.receive(GROUP, TOPIC, max_messages=9).deliveries
        some = [each for each in found if self.chance.random() < 0.2]
        if some:
            self.store.groups.acknowledge(GROUP, [each.handle for each in some])
            self.done.update(_text(each.record) for each in some)
        self.clock.advance(0.002)

    def redrive(self) -> None:
        letters = self.store.groups.list_dead_letters(GROUP, limit=1000)
        if letters and self.chance.random() < 0.5:
            picked = self.chance.sample(letters, min(len(letters), 5))
            self.store.groups.redrive(GROUP, [each.offset for each in picked])
        else:
            self.store.groups.redrive(GROUP, max_messages=self.chance.randrange(1, 50))

    def delete(self) -> None:
        letters = self.store.groups.list_dead_letters(GROUP, limit=1000)
        if letters:
            one = self.chance.choice(letters)
            assert self.store.groups.delete_dead_letters(GROUP, [one.offset])[0] == 1
            self.done.add(_text(one.record))

    def drop(self) -> None:
        """All messages are dead, and the segments that have them go."""
        bury_all(self.store, self.clock)
        self.store.wait_visible()
        if self.chance.random() < 0.5:
            self.store.put([Message("filler", bytes(30_000)) for _ in range(3)])
        self.clock.advance(2 * HOUR)
        with self.store._upkeep.checkpoints.lock:
            self.store._upkeep.checkpoints.flush()
        self.store._services.retention.run_once(now=True)

    def move_only(self) -> None:
        """The appends before a drop, which does not come: nothing waits for them to be flushed."""
        bury_all(self.store, self.clock)
        self.store.wait_visible()
        self.store.rolling.keep_below(self.store.flushed_offset, is_pressed=False)


def bury_all(store: MessageStore, clock: FakeClock) -> None:
    for _ in range(1000):
        received = store.groups.receive(GROUP, TOPIC, max_messages=100)
        clock.advance(0.002)
        if not received.deliveries and received.next_look_ms is None:
            return
    raise AssertionError("it goes on for ever")


def _text(record: bytes) -> str:
    return unpack_record(record).body.decode().strip()


@pytest.mark.parametrize("seed", seeds(2, 16))
def test_a_loss_of_power_leaves_each_message_in_one_place(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    image = tmp_path / "image"
    life = Life(tmp_path / "store", chance)
    steps = [life.put, life.receive, life.receive, life.redrive, life.delete, life.drop]
    with life.store as store:
        life.put()
        for _ in range(chance.choice((5, 20, 50))):
            chance.choice(steps)()
        maybe: set[str] = set()
        last = chance.randrange(3)
        if last == 0:
            life.move_only()
        elif last == 1:
            store.wait_visible()
            store.groups.redrive(GROUP, max_messages=40, wait=False)
        else:
            store.wait_visible()
            letters = store.groups.list_dead_letters(GROUP)[:3]
            if letters:
                store.groups.delete_dead_letters(
                    GROUP, [each.offset for each in letters], wait=False
                )
                maybe = {_text(each.record) for each in letters}
        power_loss(store, image, chance)
    clock = FakeClock(life.clock.now_ms() + 1000)
    with open_small(image, clock, flush_mode=FlushMode.SYNC, reserved_hours=1) as store:
        assert differences(store) == []
        bury_all(store, clock)
        store.wait_visible()
        letters = store.groups.list_dead_letters(GROUP, limit=1000)
        assert len(letters) == store.groups.dead_letters(GROUP)
        found = Counter(_text(each.record) for each in letters)
        assert set(found.values()) <= {1}, "it is in two places"
        assert life.put_texts - life.done - maybe <= found.keys(), "it is lost"
        assert not life.done & found.keys(), "it was done"
        while not (done := store.groups.redrive(GROUP)).complete:
            assert done.redriven
        bury_all(store, clock)
        store.wait_visible()
        again = store.groups.list_dead_letters(GROUP, limit=1000)
        assert Counter(_text(each.record) for each in again) == found
        assert differences(store) == []
    assert not [each for each in inspect_store(image).findings if each.is_fault]
