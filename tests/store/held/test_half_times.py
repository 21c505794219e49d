"""Transactions and time: how long a decision is remembered, and clocks that were wrong."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from store.errors import UnknownTransactionError
from tests.store.held.test_halves import HOUR, begin, texts
from tests.support.fake_clock import FakeClock
from tests.support.rebuild import differences
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.message_store import MessageStore
    from store.state import EndedHalf


@pytest.fixture
def store(tmp_path: Path, clock: FakeClock) -> Iterator[MessageStore]:
    with open_small(tmp_path / "store", clock) as opened:
        yield opened


def test_a_decision_is_remembered_for_ten_minutes(store: MessageStore, clock: FakeClock) -> None:
    one = begin(store)
    store.halves.end(one, commit=True)
    clock.advance(599)
    store.halves.forget()
    store.halves.end(one, commit=True)
    two = begin(store)
    store.halves.end(two, commit=False)
    clock.advance(2)
    store.halves.forget()
    with pytest.raises(UnknownTransactionError):
        store.halves.end(one, commit=True)
    store.halves.end(two, commit=False)
    assert texts(store) == ["a"]
    assert differences(store) == []


def test_a_decision_made_while_others_are_forgotten_is_remembered(
    store: MessageStore, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    late, early = begin(store, "late"), begin(store, "early")
    store.halves.end(early, commit=True)
    clock.advance(601)
    tables = store.halves._tables
    look = tables.ended_from

    def decided_meanwhile(first: int, limit: int) -> list[tuple[int, EndedHalf]]:
        found = look(first, limit)
        store.halves.end(late, commit=True)
        return found

    with monkeypatch.context() as patched:
        patched.setattr(tables, "ended_from", decided_meanwhile)
        store.halves.forget()
    store.halves.end(late, commit=True)  # its answer was lost
    store.halves.forget()
    store.halves.end(late, commit=True)
    clock.advance(601)
    store.halves.forget()
    for each in (late, early):
        with pytest.raises(UnknownTransactionError):
            store.halves.end(each, commit=True)


def test_a_decision_made_while_the_clock_was_ahead_is_forgotten_with_the_others(
    tmp_path: Path,
) -> None:
    clock = FakeClock()
    clock.jump(365 * 24 * HOUR)
    with open_small(tmp_path / "store", clock) as store:
        ahead = begin(store)
        store.halves.end(ahead, commit=True)
    clock.jump(-365 * 24 * HOUR)
    with open_small(tmp_path / "store", clock) as store:
        one = begin(store)
        store.halves.end(one, commit=True)
        clock.advance(599)
        store.halves.forget()
        for each in (ahead, one):
            store.halves.end(each, commit=True)
        clock.advance(2)
        store.halves.forget()
        for each in (ahead, one):
            with pytest.raises(UnknownTransactionError):
                store.halves.end(each, commit=True)


def test_one_that_began_while_the_clock_was_ahead_is_asked_about(tmp_path: Path) -> None:
    """It is once the clock is right again, and not a year later."""
    clock = FakeClock()
    clock.jump(365 * 24 * HOUR)
    with open_small(tmp_path / "store", clock) as store:
        one = begin(store)
        assert store.halves.due("g") == []
    clock.jump(-365 * 24 * HOUR)
    with open_small(tmp_path / "store", clock) as store:
        two = begin(store)
        (check,) = store.halves.due("g")
        assert check.transaction_id == one
        store.halves.checked([check.half])
        assert store.halves.due("g") == []
        clock.advance(30)
        found = store.halves.due("g")
        assert [(each.transaction_id, each.checks) for each in found] == [(two, 0), (one, 1)]
        assert store.halves.due("g", after=(found[0].due_ms, found[0].half)) == found[1:]
