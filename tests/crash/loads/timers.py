"""Delayed messages: each is delivered once, unless it was recalled before."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, ClassVar

from store.held import Recall
from store.message import Message
from tests.crash.loads.load import Load, Told, tell, texts_of

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


class Timers(Load):
    TOPIC: ClassVar[str] = "later"

    def begin(self) -> None:
        self.store.timers.firing.stop()  # a step of it is one of this load's
        self.store.create_topics([(self.TOPIC, 1)])
        self._next = 0
        self._handles: dict[str, str] = {}

    def step(self) -> None:
        for call in self.chance.sample([self._put, self._fire, self._recall], 2):
            call()

    def _put(self) -> None:
        texts = [f"{self._next + each}" for each in range(self.chance.randrange(1, 9))]
        self._next += len(texts)
        messages = [Message(self.TOPIC, text.ljust(700).encode()) for text in texts]
        due = [self.clock.now_ms() + self.chance.randrange(-1000, 20_000_000) for _ in texts]
        handles = dict(zip(texts, self.store.timers.put(messages, due).handles, strict=True))
        self._handles |= handles
        tell("delayed", handles)

    def _fire(self) -> None:
        while self.store.timers.firing.fire():
            pass

    def _recall(self) -> None:
        some = self.chance.sample(sorted(self._handles), min(3, len(self._handles)))
        if not some:
            return
        tell("recalling", some)
        named = [self._handles[text] for text in some]
        outcomes = self.store.timers.recall(self.TOPIC, named).outcomes
        pairs = zip(some, outcomes, strict=True)
        tell("recalled", [text for text, outcome in pairs if outcome is Recall.RECALLED])

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        handles: dict[str, str] = {}
        recalled: set[str] = set()
        maybe: set[str] = set()
        before: set[str] = set()
        for what, value in told:
            if what == "delayed":
                handles |= value
            elif what == "recalling":
                maybe = set(value)
            elif what == "recalled":
                assert not recalled & set(value), "it was recalled twice"
                maybe = set()
                recalled |= set(value)
            elif what == f"seen of {Timers.TOPIC}":
                before |= set(value)
        clock.advance(24 * 3600)
        while store.timers.firing.fire():
            pass
        assert store.timers.count() == 0
        found = Counter(texts_of(store, Timers.TOPIC))
        assert set(found.values()) <= {1}, "it was delivered twice"
        seen = found.keys() | before
        assert handles.keys() - recalled - maybe <= seen, "it is lost"
        assert not recalled & seen, "it was recalled, and is delivered"
        for handle in handles.values():
            assert store.timers.recall(Timers.TOPIC, [handle]).outcomes == [Recall.NOT_WAITING]
        assert store.statistics()["store.timers_lost"] == 0
