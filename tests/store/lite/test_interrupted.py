"""Ctrl-C inside calls of lite topics: no name stays silent that has something to receive."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from store.lite import Action
from tests.store.lite.test_lite_topics import acknowledge, put, ready, received, texts
from tests.support.interrupts import interrupt

if TYPE_CHECKING:
    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

#: What only these rooms remember. Appends have tests of their own.
PACKAGES = ("store/lite", "store/groups")


@pytest.mark.parametrize("step", [97, pytest.param(11, marks=pytest.mark.slow)])
@pytest.mark.parametrize("is_wildcard", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_an_interrupted_receive_leaves_its_names_ready(
    store: MessageStore, clock: FakeClock, step: int, is_wildcard: bool
) -> None:
    """Of a wildcard group it is the first one each time, which goes through all names."""
    ready(store, is_wildcard=is_wildcard)
    at, is_reached = 1, True
    while is_reached:
        names = ("a", "b")
        for name in names:
            put(store, name, f"{name}{at}")
        if not is_wildcard:
            store.lite.sync("g", "c", Action.ADD, names)
        is_reached = interrupt(partial(store.lite.receive, "g", "c"), at, packages=PACKAGES)
        store.wait_visible()
        got: list[str] = []
        for _ in range(2):
            some = received(store)
            acknowledge(store, some)
            got += texts(some)
            clock.advance(10)  # what the first receive was given, and did not get, comes then
        assert sorted(got) == [f"{name}{at}" for name in names], at
        assert store.groups.turns.waiting == [], "nothing is decided for who has gone"
        store.lite.sync("g", "c", Action.LEAVE)
        at += step
    assert at > 200


def test_an_interrupted_return_makes_its_name_ready_with_the_next_call(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    ready(store)
    put(store, "a", "a0")
    store.lite.sync("g", "c", Action.ADD, ["a"])
    (got,) = received(store)
    appends = store.groups._turns._appends
    decide_steps = appends.decide_steps

    def interrupted(*args: object, **how: object) -> int:
        decide_steps(*args, **how)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(appends, "decide_steps", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.groups.give_back("g", [got.handle], 0)
    assert texts(received(store)) == ["a0"]


def test_a_pass_ends_with_its_call_also_while_the_interrupt_is_kept(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As an interactive interpreter keeps it, with the frames of the call."""
    ready(store, is_wildcard=True)
    put(store, "a", "a0")
    begin_pass = store.lite.subscriptions.begin_pass

    def interrupted(*args: object) -> str | None:
        begin_pass(*args)  # type: ignore[arg-type]
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.lite.subscriptions, "begin_pass", interrupted)
        with pytest.raises(KeyboardInterrupt) as kept:
            store.lite.receive("g", "c")
    assert texts(received(store)) == ["a0"]
    del kept
