"""Ctrl-C while timers are put, recalled and fired, and while halves are decided: one outcome."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest

from store.config import FlushMode
from store.errors import TransactionEndedError
from store.held import Recall
from store.message import Message
from tests.store.held.test_timers import fire, texts
from tests.support.checked import assert_whole
from tests.support.interrupts import interrupt
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock

ALL = ("store", "kvcq")
#: How many instructions lie between two that are interrupted.
STEPS = pytest.mark.parametrize("step", [97, pytest.param(41, marks=pytest.mark.slow)])


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "s", clock, flush_mode=FlushMode.ASYNC) as opened:
        opened.timers.firing.stop()
        opened.create_topics([("T", 2)])
        yield opened
    assert_whole(tmp_path / "s")


@STEPS
def test_an_interrupted_step_delivers_each_message_once(
    store: MessageStore, clock: FakeClock, step: int
) -> None:
    at, number, is_reached = 1, 0, True
    while is_reached:
        some = [Message("T", b"%d" % (number + each), 1) for each in range(3)]
        store.timers.put(some, [clock.now_ms()] * 3)
        number += 3
        is_reached = interrupt(store.timers.firing.fire, at, packages=ALL)
        store.wait_visible()
        fire(store)
        assert store.timers.count() == 0
        at += step
    assert at > 1000
    assert Counter(texts(store)) == Counter(map(str, range(number)))
    assert differences(store) == []


@STEPS
def test_interrupted_puts_and_recalls_are_done_or_not(
    store: MessageStore, clock: FakeClock, step: int
) -> None:
    at, number, is_reached = 1, 0, True
    recalled: set[str] = set()
    while is_reached:
        text = f"{number}"
        due = [clock.now_ms() + 1000] * 2
        both = [Message("T", text.encode(), 1), Message("T", f"{text} too".encode(), 1)]
        handles: list[str] = []
        is_reached = interrupt(
            lambda both=both, due=due, handles=handles: handles.extend(  # type: ignore[misc]
                store.timers.put(both, due).handles
            ),
            at,
            packages=ALL,
        )
        store.wait_visible()
        waiting = {each.message.body.decode(): each.handle for each in store.timers.page().found}
        assert waiting.keys() in ({text, f"{text} too"}, set()), "both are there, or none"
        if waiting:
            handle = waiting[text]
            interrupt(
                lambda handle=handle: store.timers.recall("T", [handle]),  # type: ignore[misc]
                at,
                packages=ALL,
            )
            store.wait_visible()
            if store.timers.count() == 1:
                recalled.add(text)
                assert store.timers.recall("T", [handle]).outcomes == [Recall.NOT_WAITING]
        clock.advance(1)
        fire(store)
        at += step
        number += 1
    assert at > 1000
    found = Counter(texts(store))
    assert set(found.values()) <= {1}
    assert not recalled & found.keys()
    assert differences(store) == []


@STEPS
def test_an_interrupted_decision_holds_or_does_not(store: MessageStore, step: int) -> None:
    at, is_reached = 1, True
    ids: list[str] = []
    while is_reached:
        ids.append(store.halves.begin(Message("T", f"{len(ids)}".encode(), 1), "g"))
        store.wait_visible()
        one, commit = ids[-1], len(ids) % 2 == 0
        is_reached = interrupt(
            lambda one=one, commit=commit: store.halves.end(one, commit=commit),  # type: ignore[misc]
            at,
            packages=ALL,
        )
        store.wait_visible()
        is_open = bool(store.halves.list()[0])
        if not is_open:
            with pytest.raises(TransactionEndedError):
                store.halves.end(one, commit=not commit)
        store.halves.end(one, commit=commit)
        at += step
    assert at > 1000
    assert Counter(texts(store)) == Counter(f"{at}" for at in range(len(ids)) if at % 2)
    assert differences(store) == []
