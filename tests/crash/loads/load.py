"""What a load is: calls to a store, each of which is told, and a judge of what was told."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from store.errors import UnknownTopicError
from store.format.record import unpack_record

if TYPE_CHECKING:
    import random

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


class Told(NamedTuple):
    """One line of what a process told before it was killed."""

    what: str
    value: Any  # as JSON has it


def tell(what: str, value: object) -> None:
    """One line on standard output."""
    print(json.dumps([what, value]), flush=True)  # noqa: T201


class Load:
    """Calls of one process, one after another."""

    reserved_hours: ClassVar[float] = 72.0

    def __init__(self, store: MessageStore, clock: FakeClock, chance: random.Random) -> None:
        self.store = store
        self.clock = clock
        self.chance = chance

    def begin(self) -> None:
        """What must be there before the process may be killed."""

    def run(self) -> None:
        """All calls. What was answered is told before the next one is made."""
        raise NotImplementedError

    def pass_time(self, seconds: float) -> None:
        self.clock.advance(seconds)
        tell("time", [self.clock.wall_ms, self.clock.monotonic])

    @staticmethod
    def judge(store: MessageStore, clock: FakeClock, told: list[Told]) -> None:
        """Asserts what must hold. `clock`: that of the store, which goes on where it was."""
        raise NotImplementedError


def texts_of(store: MessageStore, topic: str) -> list[str]:
    """What the first queue of the topic has; none where there is no such topic."""
    try:
        ((low, high),) = store.bounds([(topic, 0)])
    except UnknownTopicError:
        return []
    found: list[str] = []
    while low < high:
        pulled = store.pull(topic, 0, low, max_messages=1000)
        found += [unpack_record(record).body.decode().strip() for record in pulled.records]
        low = pulled.next_offset
    return found
