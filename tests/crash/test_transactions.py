"""Transactions over losses of power and kills: one outcome for each half.

Halves begin, are committed, rolled back, asked about, and appended again before their segments go;
then the power fails, with a decision on its way. What was answered holds; what was on its way is
one or the other; and what nobody decided is open, with what it had.
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from kvcq.inspect import look_over
from store.config import FlushMode
from store.errors import TransactionEndedError
from store.format.record import unpack_record
from store.held import Decide
from store.message import Message
from tests.crash.images import power_loss
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

pytestmark = pytest.mark.crash

TOPIC, GROUP = "T", "g"
HOUR = 3600.0


def delivered(store: MessageStore) -> list[str]:
    ((first, _),) = store.bounds([(TOPIC, 0)])
    records = store.pull(TOPIC, 0, first, max_messages=10_000).records
    return [unpack_record(record).body.decode().strip() for record in records]


class Life:
    """One store until its power fails, and what was answered by then."""

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.chance = chance
        self.clock = FakeClock()
        self.store = open_small(root, self.clock, flush_mode=FlushMode.SYNC, reserved_hours=1)
        self.texts: dict[str, str] = {}
        self.open: set[str] = set()
        self.decided: dict[str, bool] = {}
        self.gone: set[str] = set()  # delivered, and left with the log since
        self.count = 0

    def begin(self) -> None:
        for _ in range(self.chance.randrange(1, 6)):
            text = f"{self.count}"
            self.count += 1
            one = self.store.halves.begin(Message(TOPIC, text.ljust(600).encode()), GROUP)
            self.texts[one] = text
            self.open.add(one)

    def end(self) -> None:
        for one in self.chance.sample(sorted(self.open), min(len(self.open), 3)):
            commit = self.chance.random() < 0.5
            self.store.halves.end(one, commit=commit)
            self.open.discard(one)
            self.decided[one] = commit

    def check(self) -> None:
        self.clock.advance(31)
        due = self.store.halves.due(GROUP)
        self.store.halves.checked([each.half for each in due])

    def drop(self) -> None:
        self.store.put([Message("filler", bytes(30_000)) for _ in range(3)])
        self.clock.advance(2 * HOUR)
        with self.store._upkeep.checkpoints.lock:
            self.store._upkeep.checkpoints.flush()
        before = set(delivered(self.store))
        self.store._services.retention.run_once(now=True)
        self.gone |= before - set(delivered(self.store))

    def roll_only(self) -> None:
        self.store.rolling.keep_below(self.store.flushed_offset, is_pressed=False)


@pytest.mark.parametrize("seed", range(16))
def test_a_loss_of_power_leaves_each_half_with_one_outcome(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    image = tmp_path / "image"
    life = Life(tmp_path / "store", chance)
    steps = [life.begin, life.begin, life.end, life.end, life.check, life.drop, life.roll_only]
    under_way: dict[str, bool] = {}
    with life.store as store:
        store.put([Message(TOPIC, b"first")])
        life.begin()
        for _ in range(chance.choice((5, 20, 40))):
            chance.choice(steps)()
        if life.open and chance.random() < 0.7:
            # Appended, and the power fails before anybody is answered.
            some = chance.sample(sorted(life.open), min(len(life.open), 4))
            under_way = {one: chance.random() < 0.6 for one in some}
            store.halves.decide([Decide(one, commit) for one, commit in under_way.items()])
        power_loss(store, image, chance)
    clock = FakeClock(life.clock.now_ms() + 1000)
    with open_small(image, clock, flush_mode=FlushMode.SYNC, reserved_hours=1) as store:
        assert differences(store) == []
        found = delivered(store)
        assert len(found) == len(set(found)), "it was delivered twice"
        open_now = {one.transaction_id for one in store.halves.list()[0]}
        assert life.open - under_way.keys() <= open_now <= life.open, "it is lost"
        for one, commit in life.decided.items():
            text = life.texts[one]
            assert (text in found) == (commit and text not in life.gone)
        for one, commit in under_way.items():
            text = life.texts[one]
            if one in open_now:
                assert text not in found
                store.halves.end(one, commit=not commit)
                commit = not commit
            with pytest.raises(TransactionEndedError):
                store.halves.end(one, commit=not commit)
            store.halves.end(one, commit=commit)
            assert delivered(store).count(text) == commit
        for one in life.open - under_way.keys():
            store.halves.end(one, commit=True)
            assert delivered(store).count(life.texts[one]) == 1
        assert store.halves.list() == ([], None)
        assert differences(store) == []
    assert not [each for each in look_over(image).findings if each.is_fault]
