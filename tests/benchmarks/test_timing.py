"""Percentiles of single calls, and rates of tenths."""

from __future__ import annotations

from tests.benchmarks.timing import Timed, in_tenths


def test_percentiles_are_of_the_calls() -> None:
    timed = Timed.of_calls([number / 1e6 for number in range(100, 0, -1)], 2.0, 3200)
    assert (timed.count, timed.seconds) == (3200, 2.0)
    assert timed.p50_us is not None
    assert timed.p99_us is not None
    assert (round(timed.p50_us), round(timed.p99_us)) == (51, 100)


def test_no_call_has_no_percentile() -> None:
    assert Timed.of_calls([], 1.0) == Timed(0, 1.0)


def test_last_tenth_is_held_against_the_first() -> None:
    timed = in_tenths(lambda numbers, _: Timed(len(numbers), 1 + (numbers[0] >= 90)), 100, 60)
    assert (timed.count, timed.seconds) == (100, 11)
    assert timed.more == {"last tenth over the first": (0.5, "")}
