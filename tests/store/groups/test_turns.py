"""store/groups/turns.py: turns of an event loop, which wait for nothing."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import pytest

from store.errors import AppendWouldWaitError
from store.groups import Outcome
from store.message import Message
from store.metadata import SharedGroup
from tests.store.groups.test_shared import handles, put, receive, texts

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore
    from tests.support.fake_clock import FakeClock


def test_what_is_decided_at_once_is_as_any_turn(store: MessageStore) -> None:
    put(store, "a", "b", "c")
    found = receive(store, max_messages=2, at_once=True)
    assert texts(found) == ["a", "b"]
    done = store.groups.acknowledge("g", handles(found[:1]), at_once=True)
    assert done.outcomes == [Outcome.DONE]
    store.groups.give_back("g", handles(found[1:]), 0, at_once=True)
    assert texts(receive(store)) == ["b", "c"]


def test_a_turn_that_would_wait_acknowledges_nothing(
    store: MessageStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(store, "a", "b")
    found = receive(store, max_messages=1)
    monkeypatch.setattr(type(store.reads), "is_cold", lambda *_: True)
    with pytest.raises(AppendWouldWaitError):
        receive(store, acknowledge=handles(found), at_once=True)
    assert store.groups.acknowledge("g", handles(found)).outcomes == [Outcome.DONE]


def test_at_once_waits_for_no_turn_and_no_append(store: MessageStore) -> None:
    put(store, "a")
    receive(store, max_messages=1)
    end = store.log.appended_offset
    for lock in (store.groups._turns.turn, store.log.lock):
        with lock, pytest.raises(AppendWouldWaitError):
            receive(store, at_once=True)
    assert store.log.appended_offset == end


def is_cold(store: MessageStore, monkeypatch: pytest.MonkeyPatch, _clock: FakeClock) -> None:
    put(store, "a")
    monkeypatch.setattr(type(store.reads), "is_cold", lambda *_: True)


def is_in_order(store: MessageStore, _patch: pytest.MonkeyPatch, _clock: FakeClock) -> None:
    store.groups.create("g", SharedGroup(in_order=True))
    put(store, "a")


def is_to_be_buried(store: MessageStore, _patch: pytest.MonkeyPatch, clock: FakeClock) -> None:
    store.groups.create("g", SharedGroup(max_deliveries=1))
    put(store, "a")
    receive(store, invisible_ms=1)
    clock.advance(10)


def has_long_rows(store: MessageStore, _patch: pytest.MonkeyPatch, _clock: FakeClock) -> None:
    store.put([Message("T", b"%d" % number) for number in range(701)])
    for _ in range(700):
        receive(store, max_messages=1)


def needs_a_segment(store: MessageStore, patch: pytest.MonkeyPatch, _clock: FakeClock) -> None:
    from store.errors import SegmentNotReadyError

    put(store, "a")
    receive(store, max_messages=1)
    put(store, "b")

    def append(*_: Any, **__: Any) -> None:  # noqa: ANN401
        raise SegmentNotReadyError(0)

    patch.setattr(store._appends.log, "append", append)


@pytest.mark.parametrize(
    "make",
    [
        is_cold,
        is_in_order,
        is_to_be_buried,
        pytest.param(has_long_rows, marks=pytest.mark.slow),
        needs_a_segment,
    ],
)
def test_what_takes_long_is_not_done_at_once_and_leaves_nothing(
    store: MessageStore,
    clock: FakeClock,
    make: Callable[[MessageStore, pytest.MonkeyPatch, FakeClock], None],
) -> None:
    with pytest.MonkeyPatch.context() as patched:
        make(store, patched, clock)
        end = store.log.appended_offset
        with pytest.raises(AppendWouldWaitError):
            receive(store, at_once=True)
        assert store.log.appended_offset == end
    receive(store)
    assert store.log.appended_offset > end


def test_a_turn_at_once_beside_turns_of_threads(store: MessageStore) -> None:
    """Each message is handed over once, whichever way."""
    store.put([Message("T", b"%d" % number) for number in range(400)])
    receive(store, max_messages=1)  # the group is there
    found: list[str] = []

    def work() -> None:
        while some := receive(store, max_messages=5):
            found.extend(texts(some))

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        try:
            found.extend(texts(receive(store, max_messages=5, at_once=True)))
        except AppendWouldWaitError:
            continue
    for thread in threads:
        thread.join()
    assert sorted(map(int, found)) == list(range(1, 400))
