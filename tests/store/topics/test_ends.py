"""Where names ended: the latest end of each, and a bounded memory of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from store.topics import ends
from store.topics.ends import End, Ends

NAMES = ("a", "b", "c", "d")
steps = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(1, 9), st.booleans()), max_size=30)


def test_an_end_is_known_from_when_it_is_decided() -> None:
    found = Ends(1000)
    assert found.get("a") == End(1000, is_dispatched=True)  # it may have ended before
    found.decided(["a", "b"], 1500)
    assert found.get("a") == found.get("b") == End(1500, is_dispatched=False)
    found.dispatched(["a"], 1500)
    assert found.get("a") == End(1500, is_dispatched=True)
    assert found.get("b") == End(1500, is_dispatched=False)
    found.decided(["a"], 1800)
    found.dispatched(["a"], 1500)  # late, of the end before
    assert found.get("a") == End(1800, is_dispatched=False)


@pytest.mark.parametrize("is_dispatched", [False, True])
def test_what_was_decided_and_not_appended_leaves_the_end_before_it(is_dispatched: bool) -> None:
    found = Ends(1000)
    found.decided(["a"], 1500)
    found.settled(is_appended=True)
    found.decided(["a", "b"], 1800)
    if is_dispatched:
        found.dispatched(["a"], 1500)
    found.settled(is_appended=False)
    found.settled(is_appended=False)
    assert found.get("a") == End(1500, is_dispatched)
    assert found.get("b") == End(1000, is_dispatched=True)


@given(steps)
def test_what_is_let_go_of_may_only_be_told_later_than_it_was(
    history: list[tuple[str, int, bool]],
) -> None:
    true: dict[str, int] = {}
    found = Ends(0)
    most, ends._MOST = ends._MOST, 2
    try:
        at = 0
        waiting: list[tuple[str, int]] = []
        for name, step, is_dispatched in history:
            at += step
            found.decided([name], at)
            true[name] = at
            waiting.append((name, at))
            if is_dispatched:
                for ended, below in waiting:
                    found.dispatched([ended], below)
                waiting.clear()
                assert len(found._ends) <= 2
            for ended, below in true.items():
                assert found.get(ended).below >= below
                if not found.get(ended).is_dispatched:
                    assert (ended, below) in waiting
    finally:
        ends._MOST = most


def test_a_million_ends_are_flat_in_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ends, "_MOST", 1000)
    found = Ends(0)
    for number in range(10_000):
        found.decided([str(number)], number)
        found.dispatched([str(number)], number)
        assert len(found._ends) <= 1000
