"""Sessions end, tokens are not kept, and whoever guesses has to wait."""

from __future__ import annotations

from server.console.sessions import (
    IDLE_S,
    LONGEST_S,
    MAX_SESSIONS,
    Sessions,
)
from server.console.viewers import Viewer
from tests.support.fake_clock import FakeClock

ANN = Viewer("ann", may_administer=False)


def test_a_token_stands_for_who_signed_in() -> None:
    sessions = Sessions(FakeClock().monotonic_s)
    token, other = sessions.begin(ANN), sessions.begin(ANN)
    assert token != other
    assert sessions.viewer(token) == ANN
    assert sessions.viewer(token + "x") is None
    assert sessions.viewer("\udcff") is None
    sessions.end(token)
    sessions.end(token)
    assert sessions.viewer(token) is None
    assert sessions.viewer(other) == ANN


def test_no_token_is_kept() -> None:
    sessions = Sessions(FakeClock().monotonic_s)
    token = sessions.begin(ANN)
    assert token not in repr(sessions._sessions)


def test_a_session_that_nobody_uses_ends() -> None:
    clock = FakeClock()
    sessions = Sessions(clock.monotonic_s)
    token = sessions.begin(ANN)
    clock.advance(IDLE_S)
    assert sessions.viewer(token) == ANN
    clock.advance(IDLE_S + 1)
    assert sessions.viewer(token) is None
    assert len(sessions) == 0


def test_a_session_ends_also_when_it_is_used() -> None:
    clock = FakeClock()
    sessions = Sessions(clock.monotonic_s)
    token = sessions.begin(ANN)
    for _ in range(int(LONGEST_S / IDLE_S)):
        clock.advance(IDLE_S)
        assert sessions.viewer(token) == ANN
    clock.advance(1)
    assert sessions.viewer(token) is None


def test_of_too_many_sessions_the_least_used_ends() -> None:
    sessions = Sessions(FakeClock().monotonic_s)
    first, second = sessions.begin(ANN), sessions.begin(ANN)
    assert sessions.viewer(first) == ANN
    for _ in range(MAX_SESSIONS - 1):
        sessions.begin(ANN)
    assert len(sessions) == MAX_SESSIONS
    assert sessions.viewer(first) == ANN
    assert sessions.viewer(second) is None
