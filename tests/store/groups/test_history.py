"""Clients beside each other, and the judge of their history, which finds what cannot be."""

from __future__ import annotations

import random
import threading
from copy import deepcopy
from typing import TYPE_CHECKING

import pytest

from store.groups import Outcome, Received
from store.message import Message
from store.metadata import SharedGroup
from tests.support.shared_history import (
    Answer,
    Dead,
    Given,
    History,
    Lost,
    Place,
    Put,
    What,
    judge,
)
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.groups import Delivery
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

LEASE_MS = 1000


class Client:
    """One that receives, acknowledges, gives back and holds on, and writes down what it is told."""

    def __init__(self, store: MessageStore, history: History, chance: random.Random) -> None:
        self._groups = store.groups
        self._history = history
        self._chance = chance
        self._held: list[Delivery] = []

    def receive(self, most: int = 5, *, done_share: float = 0.0) -> int:
        """`done_share`: of what it has, acknowledged by the same call."""
        done = [each for each in self._held if self._chance.random() < done_share]
        handles = [each.handle for each in done]
        began = self._history.now()
        received = self._groups.receive(
            "g", "T", max_messages=most, invisible_ms=LEASE_MS, acknowledge=handles
        )
        ended = self._history.now()
        for handle, outcome in zip(handles, received.outcomes, strict=True):
            is_done = outcome is Outcome.DONE
            self._history.answers.append(Answer(began, ended, What.ACKNOWLEDGE, handle, is_done, 0))
        self._held = [each for each in self._held if each not in done]
        found = received.deliveries
        for each in found:
            place = Place(each.topic, each.queue_id, each.queue_offset)
            taken_ms = each.until_ms - LEASE_MS
            self._history.given.append(
                Given(began, ended, place, each.handle, each.deliveries, taken_ms, each.until_ms)
            )
        self._held += found
        return len(found)

    def answer(self, what: What, *, share: float = 0.7) -> None:
        some = [each.handle for each in self._held if self._chance.random() < share]
        if not some:
            return
        began = self._history.now()
        if what is What.ACKNOWLEDGE:
            outcomes = self._groups.acknowledge("g", some).outcomes
        elif what is What.GIVE_BACK:
            outcomes = self._groups.give_back("g", some, 0).outcomes
        else:
            outcomes = self._groups.change_invisible("g", some, 5 * LEASE_MS).outcomes
        ended = self._history.now()
        until_ms = 0
        for handle, outcome in zip(some, outcomes, strict=True):
            if what is What.HOLD:
                # At least: when the call began.
                until_ms = self._until_of(handle)
            is_done = outcome is Outcome.DONE
            self._history.answers.append(Answer(began, ended, what, handle, is_done, until_ms))
        if what is not What.HOLD:
            self._held = [each for each in self._held if self._chance.random() < 0.3]

    def _until_of(self, handle: str) -> int:
        return next(each.until_ms for each in self._held if each.handle == handle)

    def work(self, steps: int) -> None:
        for _ in range(steps):
            self.receive(self._chance.randrange(1, 9), done_share=self._chance.choice((0.0, 0.5)))
            self.answer(self._chance.choice(list(What)))


def put(store: MessageStore, history: History, number: int) -> None:
    key = f"k{number % 3}"
    message = Message("T", b"%d" % number, number % 2, properties={"__SHARDINGKEY": key})
    (placed,) = store.put([message]).placed
    history.puts.append(Put(Place("T", placed.queue_id, placed.queue_offset), key))


def see_dead(store: MessageStore, history: History) -> None:
    began = history.now()
    store.wait_visible()
    for each in store.groups.list_dead_letters("g", limit=1000):
        history.dead.append(Dead(began, Place(each.topic, each.queue_id, each.queue_offset)))


@pytest.fixture
def history(tmp_path: Path, clock: FakeClock) -> History:
    return lived(tmp_path, clock, SharedGroup(max_deliveries=3))


def lived(tmp_path: Path, clock: FakeClock, settings: SharedGroup) -> History:
    """Four clients at the same time, while time passes; in the end one does all that is left."""
    history = History()
    with open_small(tmp_path / "store", clock) as store:
        store.groups.create("g", settings)
        clients = [Client(store, history, random.Random(seed)) for seed in range(4)]
        for number in range(120):
            put(store, history, number)
        threads = [threading.Thread(target=client.work, args=(25,)) for client in clients]
        for thread in threads:
            thread.start()
        for _ in range(200):
            clock.advance(0.05)
        for thread in threads:
            thread.join()
        last = Client(store, history, random.Random(9))
        for _ in range(200):
            clock.advance(10)
            last.receive(100)
            last.answer(What.ACKNOWLEDGE, share=1)
            if store.groups.receive("g", "T") == Received([], None, nonces=[]):
                break
        see_dead(store, history)
    return history


def test_what_the_store_did_can_be(history: History) -> None:
    assert len(history.given) > 120
    assert history.dead
    assert judge(history) == []


def test_a_group_in_order_keeps_the_order_of_each_key(tmp_path: Path, clock: FakeClock) -> None:
    history = lived(tmp_path, clock, SharedGroup(in_order=True))
    assert len(history.given) >= 120
    assert judge(history, in_order=True) == []


# --- what it finds -------------------------------------------------------------------------

PLACE = Place("T", 0, 0)


def one_done() -> History:
    history = History()
    history.puts.append(Put(PLACE, "k"))
    history.given.append(Given(1, 2, PLACE, "h1", 1, 1000, 2000))
    history.answers.append(Answer(3, 4, What.ACKNOWLEDGE, "h1", True))
    return history


def _again_after_acknowledgement(history: History) -> None:
    history.given.append(Given(5, 6, PLACE, "h2", 2, 9000, 9999))


def _dead_after_acknowledgement(history: History) -> None:
    history.dead.append(Dead(9, PLACE))


def _two_dead_letters(history: History) -> None:
    history.dead += [Dead(2, PLACE), Dead(2, PLACE)]


def _acknowledged_twice(history: History) -> None:
    history.answers.append(Answer(5, 6, What.ACKNOWLEDGE, "h1", True))


def _while_another_has_it(history: History) -> None:
    history.answers.clear()
    history.given.append(Given(3, 4, PLACE, "h2", 2, 1500, 2500))
    history.answers.append(Answer(5, 6, What.ACKNOWLEDGE, "h2", True))


def _while_another_holds_on(history: History) -> None:
    history.answers[:] = [Answer(3, 4, What.HOLD, "h1", True, 5000)]
    history.given.append(Given(5, 6, PLACE, "h2", 2, 2500, 3500))
    history.answers.append(Answer(7, 8, What.ACKNOWLEDGE, "h2", True))


def _same_number_twice(history: History) -> None:
    history.answers.clear()
    history.given.append(Given(3, 4, PLACE, "h2", 1, 2500, 3500))
    history.answers.append(Answer(5, 6, What.ACKNOWLEDGE, "h2", True))


def _late_handle(history: History) -> None:
    history.answers[:] = [Answer(7, 8, What.ACKNOWLEDGE, "h1", True)]
    history.given.append(Given(3, 4, PLACE, "h2", 2, 2500, 3500))


def _lost(history: History) -> None:
    history.puts.append(Put(Place("T", 0, 1), ""))


def _never_done(history: History) -> None:
    history.answers[:] = [Answer(3, 4, What.ACKNOWLEDGE, "h1", False)]


def _forged_handle(history: History) -> None:
    history.answers.append(Answer(5, 6, What.GIVE_BACK, "forged", True))


def _out_of_order(history: History) -> None:
    behind = Place("T", 0, 1)
    history.puts.append(Put(behind, "k"))
    history.answers[:] = [Answer(9, 10, What.ACKNOWLEDGE, "h1", True)]
    history.given.append(Given(5, 6, behind, "h2", 1, 1500, 2500))
    history.answers.append(Answer(7, 8, What.ACKNOWLEDGE, "h2", True))


@pytest.mark.parametrize(
    ("plant", "words"),
    [
        (_again_after_acknowledgement, "was acknowledged, and delivered again"),
        (_dead_after_acknowledgement, "was acknowledged, and is a dead letter"),
        (_two_dead_letters, "is two dead letters"),
        (_acknowledged_twice, "was acknowledged 2 times"),
        (_while_another_has_it, "was delivered while another had it until 2000"),
        (_while_another_holds_on, "was delivered while another had it until 5000"),
        (_same_number_twice, "was delivered for the 1. time twice"),
        (_late_handle, "with a handle that was of no use any more"),
        (_lost, "was never done"),
        (_never_done, "was never done"),
        (_forged_handle, "was never given to anybody"),
        (_out_of_order, "was delivered before Place(topic='T', queue_id=0, offset=0) was done"),
    ],
)
def test_what_cannot_be_is_found(plant: Callable[[History], None], words: str) -> None:
    history = one_done()
    assert judge(history, in_order=True) == []
    plant(history)
    found = judge(history, in_order=True)
    assert any(words in each for each in found), found


def test_a_loss_of_power_explains_what_was_not_flushed() -> None:
    history = one_done()
    history.losses.append(Lost(5, is_flushed=False))
    history.given.append(Given(6, 7, PLACE, "h2", 1, 1100, 2100))
    history.answers.append(Answer(8, 9, What.ACKNOWLEDGE, "h2", True))
    assert judge(history) == []
    history.losses[:] = [Lost(5, is_flushed=True)]
    assert "was acknowledged, and delivered again" in "\n".join(judge(history))


def test_what_is_planted_into_a_real_history_is_found(history: History) -> None:
    chance = random.Random(3)
    done = [each for each in history.answers if each.what is What.ACKNOWLEDGE and each.is_done]
    of_handle = {each.handle: each for each in history.given}
    for answer in chance.sample(done, 10):
        given = of_handle[answer.handle]
        late = deepcopy(history)
        moment = late.now()
        late.given.append(
            given._replace(began=moment, ended=late.now(), handle="new", deliveries=99)
        )
        assert f"{given.place} was acknowledged, and delivered again" in judge(late)
        forgotten = deepcopy(history)
        forgotten.answers = [
            each
            for each in history.answers
            if each.handle not in {one.handle for one in history.given if one.place == given.place}
        ]
        assert f"{given.place} was never done" in judge(forgotten)
