"""Lite topics: two groups receive from them, one by names and one from all.

What was acknowledged is not delivered again; what was not is delivered, unless its lite topic was
idle for its time when somebody looked, or its segment went.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from store.format.record import unpack_record
from store.groups import Outcome
from store.lite import Action, queue_of
from store.message import Message
from store.metadata import LiteGroup, SharedGroup
from tests.crash.loads.load import Load, Told, tell

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.groups import Delivery
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

_PARENT, _CLIENT = "sessions", "c"
_GROUPS = {"named": False, "wild": True}
_EXPIRY_MS = 600_000


class Lite(Load):
    def begin(self) -> None:
        self.store.lite.make(_PARENT, _EXPIRY_MS)
        for group, is_wildcard in _GROUPS.items():
            lite = LiteGroup(_PARENT, is_wildcard=is_wildcard)
            settings = SharedGroup(max_deliveries=None, invisible_ms=1000, lite=lite)
            self.store.groups.create(group, settings)
        self._next = 0

    def step(self) -> None:
        self._put()
        for group in _GROUPS:
            self._receive(group)
        if self.chance.random() < 0.1:
            tell("looking", self.clock.now_ms())
            self.store.lite.look()

    def _name(self) -> str:
        """One of a few that go on: others are idle from some time on."""
        return f"s{self._next // 40 * 5 + self.chance.randrange(10)}"

    def _put(self) -> None:
        texts = [f"{self._next + each}" for each in range(self.chance.randrange(1, 6))]
        names = {text: self._name() for text in texts}
        self._next += len(texts)
        self.store.put(
            [
                Message(_PARENT, text.ljust(400).encode(), light_queues=(queue_of(_PARENT, name),))
                for text, name in names.items()
            ]
        )
        tell("lite put", [names, self.clock.now_ms()])

    def _receive(self, group: str) -> None:
        action = Action.LEAVE if self.chance.random() < 0.1 else Action.ADD
        names = {self._name() for _ in range(4)} if action is Action.ADD else ()
        wanted = [] if _GROUPS[group] else sorted(names)
        self.store.lite.sync(group, _CLIENT, action, wanted)
        if action is Action.LEAVE:
            return
        found = self.store.lite.receive(group, _CLIENT, max_messages=9).deliveries
        fine = [each for each in found if self.chance.random() < 0.8]
        if fine:
            acknowledge(self.store, group, fine)

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        names: dict[str, str] = {}
        last_ms: dict[str, int] = {}
        expired: set[str] = set()
        done: dict[str, set[str]] = {group: set() for group in _GROUPS}
        maybe: dict[str, set[str]] = {group: set() for group in _GROUPS}
        for what, value in told:
            if what == "lite put":
                names |= value[0]
                last_ms |= dict.fromkeys(value[0].values(), value[1])
            elif what == "acknowledging":
                maybe[value[0]] |= set(value[1])
            elif what == "acknowledged":
                done[value[0]] |= set(value[1])
                maybe[value[0]] -= set(value[1])
            elif what == "looking":
                idle = {name for name, ms in last_ms.items() if ms < value - _EXPIRY_MS}
                expired |= {text for text, name in names.items() if name in idle}
            elif what == "dropping":
                expired |= names.keys()
        for group in _GROUPS:
            found = deliver_all(store, clock, group, names.values())
            assert set(found.values()) <= {1}, "it was acknowledged, and delivered again"
            assert not done[group] & found.keys(), "it was acknowledged"
            wanted = names.keys() - done[group] - maybe[group] - expired
            assert wanted <= found.keys(), "it is lost"
            assert deliver_all(store, clock, group, names.values()) == Counter()


def text_of(delivery: Delivery) -> str:
    return unpack_record(delivery.record).body.decode().strip()


def acknowledge(store: MessageStore, group: str, deliveries: list[Delivery]) -> None:
    texts = [text_of(each) for each in deliveries]
    tell("acknowledging", [group, texts])
    done = store.groups.acknowledge(group, [each.handle for each in deliveries])
    assert set(done.outcomes) == {Outcome.DONE}
    tell("acknowledged", [group, texts])


def deliver_all(
    store: MessageStore, clock: FakeClock, group: str, names: Iterable[str]
) -> Counter[str]:
    """What is delivered until nothing more comes, each acknowledged."""
    clock.advance(86_400)
    wanted = [] if _GROUPS[group] else sorted(set(names))
    store.lite.sync(group, "judge", Action.ADD, wanted)
    seen: Counter[str] = Counter()
    while True:
        received = store.lite.receive(group, "judge", max_messages=100)
        if not received.deliveries:
            return seen
        seen.update(map(text_of, received.deliveries))
        handles = [each.handle for each in received.deliveries]
        outcomes = store.groups.acknowledge(group, handles).outcomes
        assert set(outcomes) == {Outcome.DONE}
