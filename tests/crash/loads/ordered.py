"""A group in order. Of each ordering key none is handed over before the one before it is done.

A text is the ordering key and the message's number within it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.format import SHARDING_KEY
from store.message import Message
from store.metadata import SharedGroup
from tests.crash.loads.groups import GROUP, TOPIC, text_of
from tests.crash.loads.load import Load, Told, tell

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

KEYS = ("a", "b", "c", "d", "e")


class Ordered(Load):
    def begin(self) -> None:
        self.store.groups.create(GROUP, SharedGroup(in_order=True, invisible_ms=1000))

    def run(self) -> None:
        store, chance = self.store, self.chance
        for number in range(400):
            texts = [f"{key}-{number}" for key in KEYS]
            store.put(
                [
                    Message(
                        TOPIC,
                        text.encode().ljust(700),
                        ord(text[0]) % 2,
                        properties={SHARDING_KEY: text[0]},
                    )
                    for text in texts
                ]
            )
            tell("put", texts)
            for _ in range(2):
                found = store.groups.receive(GROUP, TOPIC, max_messages=4).deliveries
                got = [text_of(each) for each in found]
                tell("received", got)
                fine = [at for at in range(len(got)) if chance.random() < 0.8]
                if fine:
                    tell("not answered", [got[at] for at in fine])
                    store.groups.acknowledge(GROUP, [found[at].handle for at in fine])
                    tell("acknowledged", [got[at] for at in fine])
                left = [found[at].handle for at in range(len(got)) if at not in fine]
                if left and chance.random() < 0.5:
                    store.groups.give_back(GROUP, left, 0)
            if number % 3 == 2:
                self.pass_time(2)
            if number % 20 == 10:
                store.flush()

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        left: dict[str, list[str]] = {key: [] for key in KEYS}  # in order, not acknowledged
        maybe: set[str] = set()
        for what, value in told:
            for text in value if what in ("put", "received", "acknowledged") else ():
                ahead = left[text[0]]
                if what == "put":
                    ahead.append(text)
                elif what == "received":
                    assert ahead[0] == text, "it waits for the one before it"
                else:
                    ahead.remove(text)
            if what != "time":
                maybe = set(value) if what == "not answered" else set()
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
