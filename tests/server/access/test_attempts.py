"""server/access/attempts.py by a clock that tests set."""

from __future__ import annotations

from server.access.attempts import FAILURE_WAIT_S, MAX_FAILURES, Attempts
from tests.support.fake_clock import FakeClock


def test_guessing_has_to_wait() -> None:
    clock = FakeClock()
    attempts = Attempts(clock.monotonic_s)
    for _ in range(MAX_FAILURES):
        assert attempts.wait_s("10.0.0.1", "ann") == 0
        attempts.failed("10.0.0.1", "ann")
    assert attempts.wait_s("10.0.0.1", "ann") == FAILURE_WAIT_S
    assert attempts.wait_s("10.0.0.2", "ann") == 0
    assert attempts.wait_s("10.0.0.1", "bob") == 0, "behind a proxy both have one address"
    clock.advance(FAILURE_WAIT_S + 1)
    assert attempts.wait_s("10.0.0.1", "ann") == 0
    attempts.failed("10.0.0.1", "ann")  # counted anew
    assert attempts.wait_s("10.0.0.1", "ann") == 0


def test_who_signs_in_begins_anew() -> None:
    attempts = Attempts(FakeClock().monotonic_s)
    for _ in range(MAX_FAILURES - 1):
        attempts.failed("a", "ann")
    attempts.succeeded("a", "ann")
    attempts.succeeded("never seen", "")
    attempts.failed("a", "ann")
    assert attempts.wait_s("a", "ann") == 0


def test_many_addresses_take_little_memory() -> None:
    attempts = Attempts(FakeClock().monotonic_s)
    for number in range(10_000):
        attempts.failed("a", str(number))
    assert len(attempts._failures) < 5_000
