"""The ready sets against an oracle that walks all names after every step.

Not ready means nothing deliverable: to any client that is subscribed, at any moment. The schedule
is random: messages, looks of several clients at once, acknowledgements, returns, leases that run
out, subscriptions that come and go, clients that disappear, resets, a bound that is passed.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field

import pytest

from store.lite.clients import Action, Pass
from store.lite.names import queue_of
from store.lite.subscriptions import Subscriptions
from store.metadata import LiteGroup

PARENT = "p"
NAMES = [f"s{number}" for number in range(6)]
CLIENTS = ["a", "b", "c"]
#: The soak: SOAK_STEPS=6000000 and --timeout 0, a million for each schedule.
STEPS = int(os.environ.get("SOAK_STEPS", "20000"))


@dataclass
class Message:
    """What the group has of one message: it waits, is held until a time, or is done."""

    until_ms: int = 0
    is_held: bool = False


@dataclass
class Lite:
    """A lite topic as its group has it: what is not done, the oldest first."""

    undone: list[Message] = field(default_factory=list)

    def deliverable(self, now_ms: int, *, in_order: bool) -> list[Message]:
        able = [one for one in self.undone if not one.is_held or one.until_ms <= now_ms]
        if in_order:
            return able[:1] if able and able[0] is self.undone[0] else []
        return able


class World:
    """Subscriptions beside what they are about."""

    def __init__(self, seed: int, settings: LiteGroup, *, in_order: bool) -> None:
        self.random = random.Random(seed)
        self.settings = settings
        self.in_order = in_order
        self.now_ms = 1_000_000
        self.subscriptions = Subscriptions(most_ready=4)
        self.lites = {name: Lite() for name in NAMES}
        self.names: dict[str, set[str]] = {}
        #: Taken and not looked at; looked at, and that is not told yet.
        self.in_hand: list[tuple[str, list[str]]] = []
        self.found: list[tuple[str, list[tuple[str, bool, int | None]]]] = []
        self.delivered = 0

    # --- steps -----------------------------------------------------------------------------

    def put(self) -> None:
        name = self.random.choice(NAMES)
        self.lites[name].undone.append(Message())
        self.subscriptions.on_growth([queue_of(PARENT, name), queue_of("other", name), "%LMQ%x"])

    def sync(self) -> None:
        client = self.random.choice(CLIENTS)
        action = self.random.choice([Action.ADD, Action.REMOVE, Action.COMPLETE])
        names = self.random.sample(NAMES, self.random.randint(0, 4))
        if self.settings.is_wildcard:
            names = []
        done = self.subscriptions.sync("g", self.settings, client, action, names, 0, self.now_ms)
        held = self.names.setdefault(client, set())
        if action is Action.REMOVE:
            held.difference_update(names)
        elif action is Action.COMPLETE:
            held.intersection_update(names)
        if self.settings.is_exclusive:
            for other in self.names.values():
                other.difference_update(done.added)
        held.update(done.added)
        assert done.subscribed == len(held)

    def leave(self) -> None:
        client = self.random.choice(CLIENTS)
        self.subscriptions.sync("g", self.settings, client, Action.LEAVE, [], 0, self.now_ms)
        self.names.pop(client, None)

    def take(self) -> None:
        if not self.names:
            return
        client = self.random.choice(list(self.names))
        if self.settings.is_wildcard:
            self.go_through()
        names: list[str] = []
        self.subscriptions.take("g", client, self.random.randint(1, 3), self.now_ms, names)
        if names:
            self.in_hand.append((client, names))

    def go_through(self) -> None:
        """A step of the pass of a wildcard group."""
        who = Pass()
        after = self.subscriptions.begin_pass("g", who)
        if after is None:
            return
        page = [name for name in NAMES if queue_of(PARENT, name) > after][:2]
        able = [name for name in page if self.lites[name].undone]
        reached = queue_of(PARENT, page[-1]) if len(page) == 2 else None
        self.subscriptions.end_pass("g", who, reached, able)

    def look(self) -> None:
        """The turn of a receive that took names: as LiteReceiving does, name by name."""
        if not self.in_hand:
            return
        client, names = self.in_hand.pop(self.random.randrange(len(self.in_hand)))
        if self.random.random() < 0.2:  # it failed
            self.subscriptions.put_back("g", client, names)
            return
        looks = []
        for name in names:
            lite = self.lites[name]
            most = self.random.randint(1, 2)
            for one in lite.deliverable(self.now_ms, in_order=self.in_order)[:most]:
                one.is_held, one.until_ms = True, self.now_ms + self.random.randint(1, 50)
                self.delivered += 1
            is_more = bool(lite.deliverable(self.now_ms, in_order=self.in_order))
            ends = [one.until_ms for one in lite.undone if one.is_held]
            looks.append((name, is_more, min(ends, default=None)))
        self.found.append((client, looks))

    def tell(self) -> None:
        """Its turn is in the log, and what it found counts."""
        if self.found:
            client, looks = self.found.pop(self.random.randrange(len(self.found)))
            self.subscriptions.looked("g", client, looks)

    def settle(self) -> None:
        """A message that is held is done, or given back, with or without a delay."""
        held = [
            (name, one) for name, lite in self.lites.items() for one in lite.undone if one.is_held
        ]
        if not held:
            return
        name, one = self.random.choice(held)
        if self.random.random() < 0.6:
            self.lites[name].undone.remove(one)
        else:
            one.until_ms = self.now_ms + self.random.choice([0, 0, 20])
        self.subscriptions.freed("g", queue_of(PARENT, name))

    def reset(self) -> None:
        name = self.random.choice(NAMES)
        count = self.random.randint(0, 2)
        self.lites[name].undone = [Message() for _ in range(count)]
        self.subscriptions.freed("g", queue_of(PARENT, name))

    def change(self) -> None:
        self.subscriptions.freed("g", "")

    def end(self) -> None:
        self.lites[self.random.choice(NAMES)].undone.clear()

    def wait(self) -> None:
        self.now_ms += self.random.randint(1, 30)

    # --- the oracle ------------------------------------------------------------------------

    def check(self) -> None:
        taken = {(client, name) for client, names in self.in_hand for name in names}
        all_taken = {name for _, name in taken}
        untold = {name for _, looks in self.found for name, _, _ in looks}
        for client, names in self.names.items():
            for name in NAMES if self.settings.is_wildcard else names:
                if name in untold or (client, name) in taken:
                    continue  # who looks at it settles it
                if self.settings.is_wildcard and name in all_taken:
                    continue
                if self.lites[name].deliverable(self.now_ms, in_order=self.in_order):
                    assert self.is_ready(client, name), f"{client} is not told of {name}"
        total = sum(map(len, self.names.values()))
        assert self.subscriptions.subscribed == (0 if self.settings.is_wildcard else total)

    def is_ready(self, client: str, name: str) -> bool:
        """Whether a look would come to the name, now or, by an alarm, by now."""
        group = self.subscriptions._groups["g"]
        ready = group.clients[client].ready
        ready.ring(self.now_ms)
        return name in ready or group.pass_after is not None

    def run(self, steps: int) -> None:
        choices = (
            [self.put] * 4 + [self.take] * 6 + [self.look] * 6 + [self.tell] * 6 + [self.settle] * 6
        )
        choices += [self.sync, self.wait, self.reset, self.end]
        rare = [self.leave, self.change]
        for step in range(steps):
            self.random.choice(rare if step % 50 == 0 else choices)()
            self.check()
        assert self.delivered > steps // 50


@pytest.mark.parametrize(
    "settings",
    [
        LiteGroup(PARENT),
        LiteGroup(PARENT, is_exclusive=True),
        LiteGroup(PARENT, is_wildcard=True),
    ],
    ids=["shared", "exclusive", "wildcard"],
)
@pytest.mark.parametrize("in_order", [False, True])
def test_what_is_not_ready_has_nothing_to_deliver(settings: LiteGroup, in_order: bool) -> None:
    World(5, settings, in_order=in_order).run(STEPS // 6)


def test_the_oracle_can_fail() -> None:
    world = World(5, LiteGroup(PARENT), in_order=False)
    world.subscriptions.on_growth = lambda queues: None  # type: ignore[method-assign]
    with pytest.raises(AssertionError, match="is not told of"):
        world.run(2000)
