"""Timers, transactions and lite topics in one store, whose segments go while they wait.

Each delayed message is delivered once, unless it was recalled before; each half has one outcome; no
message of a lite topic is lost before its time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from store.message import Message
from tests.crash.loads.halves import Halves
from tests.crash.loads.lite import Lite
from tests.crash.loads.load import Load, Told, tell, texts_of
from tests.crash.loads.timers import Timers

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

_PARTS: tuple[type[Timers | Halves | Lite], ...] = (Timers, Halves, Lite)


class Waiting(Load):
    reserved_hours: ClassVar[float] = 1.0

    def begin(self) -> None:
        self._parts = [part(self.store, self.clock, self.chance) for part in _PARTS]
        for part in self._parts:
            part.begin()

    def run(self) -> None:
        for number in range(200):
            for part in self._parts:
                part.step()
            self.pass_time(self.chance.choice((1, 31, 400)))
            if number % 12 == 11:
                self._drop()
            elif number % 20 == 10:
                self.store.flush()

    def _drop(self) -> None:
        """What was delivered may go with the log. What waits may not."""
        store = self.store
        store.put([Message("filler", bytes(30_000)) for _ in range(3)])
        self.pass_time(2 * 3600)
        for topic in (Timers.TOPIC, Halves.TOPIC):
            tell(f"seen of {topic}", texts_of(store, topic))
        tell("dropping", None)
        with store._upkeep.checkpoints.lock:
            store._upkeep.checkpoints.flush()
        store._services.retention.run_once(now=True)

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        for part in _PARTS:
            part.judge(store, clock, told)
