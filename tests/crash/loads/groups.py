"""A shared group: messages are received from a topic and a light queue, and acknowledged.

Every fifth message is poison, which nobody acknowledges; dead letters are redriven. What was
acknowledged is not delivered again, and nothing that was put is lost.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from store.errors import UnknownTopicError
from store.format.record import unpack_record
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.loads.load import Load, Told, tell

if TYPE_CHECKING:
    from store.groups import Delivery
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

GROUP, TOPIC, LIGHT = "g", "T", "%LMQ%l"
SETTINGS = SharedGroup(max_deliveries=2, invisible_ms=1000)


class Groups(Load):
    def begin(self) -> None:
        self.store.groups.create(GROUP, SETTINGS)

    def run(self) -> None:
        store = self.store
        for number in range(400):
            texts = [f"{number}-{each}" for each in range(8)]
            store.put(
                [
                    Message(TOPIC, text.encode().ljust(700), at % 2, light_queues=(LIGHT,))
                    for at, text in enumerate(texts)
                ]
            )
            tell("put", texts)
            done: dict[str, str] = {}  # texts and handles of what is to be acknowledged
            for topic in (TOPIC, LIGHT):
                # Every other time by the receive that comes next.
                handles = [*done.values()] if number % 2 else []
                received = store.groups.receive(GROUP, topic, max_messages=10, acknowledge=handles)
                if handles:
                    assert set(received.outcomes) == {Outcome.DONE}
                    tell("acknowledged", [*done])
                    done.clear()
                got = {text_of(each): each.handle for each in received.deliveries}
                tell("received", [*got])
                done |= {text: each for text, each in got.items() if not is_poison(text)}
                tell("not answered", [*done])
                if done and (topic == LIGHT or not number % 2):
                    outcomes = store.groups.acknowledge(GROUP, [*done.values()]).outcomes
                    assert set(outcomes) == {Outcome.DONE}
                    tell("acknowledged", [*done])
                    done.clear()
            if number % 3 == 2:
                self.pass_time(1)
            if number % 20 == 10:
                store.flush()
            if number % 30 == 25:
                tell("redrive", [])
                store.groups.redrive(GROUP)

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        put = {text for what, texts in told if what == "put" for text in texts}
        put |= {f"light {text}" for text in put}
        done = {text for what, texts in told if what == "acknowledged" for text in texts}
        maybe = {text for what, texts in told if what == "not answered" for text in texts}
        times = Counter(text for what, texts in told if what == "received" for text in texts)
        rounds = 1 + sum(what == "redrive" for what, _ in told)
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


def text_of(delivery: Delivery) -> str:
    prefix = "light " if delivery.topic == LIGHT else ""
    return prefix + unpack_record(delivery.record).body.decode().strip()


def is_poison(text: str) -> bool:
    return int(text.rpartition("-")[2]) == 5


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
