"""Goals: met, missed, or out of reach by the limit that was measured in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_bench.report import Figure, Goal, Outcome, Report, Result, judge

if TYPE_CHECKING:
    from collections.abc import Mapping

_WORK = "put"


def _report(rates: Mapping[str, tuple[float, ...]], *goals: Goal, scale: float = 1.0) -> Report:
    """Rounds of each system, or of `system, workload`."""
    titles = {"kvcq": "kvcq", "redis": "Redis", "bare": "bare store"}
    report = Report("t", {}, {}, {"scale": scale}, titles, limits=["bare"], goals=list(goals))
    for name, values in rates.items():
        system, _, work = name.partition(", ")
        report.results += [
            Result(system, work or _WORK, number, {"rate": Figure(value, "messages/s")})
            for number, value in enumerate(values)
        ]
    return report


def _judged(rates: Mapping[str, tuple[float, ...]], goal: Goal) -> Outcome:
    (outcome,) = judge(_report(rates, goal))
    return outcome


def test_goal_of_a_number_is_met_by_the_median() -> None:
    goal = Goal(_WORK, 100, "why")
    met = _judged({"kvcq": (90, 100, 200)}, goal)
    assert (met.verdict, met.wanted) == ("met", "at least 100 messages/s")
    assert met.reached_text == "100 (90 to 200) messages/s"
    assert _judged({"kvcq": (90, 99, 200)}, goal).verdict == "missed"


def test_goal_may_be_at_most() -> None:
    goal = Goal(_WORK, 100, "why", at_most=True)
    assert _judged({"kvcq": (100,)}, goal).verdict == "met"
    assert _judged({"kvcq": (101,)}, goal).verdict == "missed"


def test_multiple_is_taken_round_by_round() -> None:
    goal = Goal(_WORK, 1.5, "why", of="redis")
    # The medians say the contrary: 0.95 times, and 1.8 times.
    assert _judged({"kvcq": (30, 75), "redis": (10, 100)}, goal).verdict == "met"
    missed = _judged({"kvcq": (10, 190), "redis": (10, 100)}, goal)
    assert (missed.verdict, missed.wanted) == ("missed", "at least 1.5 times Redis")


def test_multiple_may_be_of_other_work_of_the_same_system() -> None:
    goal = Goal(_WORK, 0.9, "why", of_work="pull")
    found = _judged({"kvcq": (90,), "kvcq, pull": (100,)}, goal)
    assert (found.verdict, found.wanted) == ("met", "at least 0.9 times pull")


def test_goal_is_out_of_reach_where_the_nearest_limit_misses_it_in_each_round() -> None:
    goal = Goal(_WORK, 100, "why")
    far = _judged({"kvcq": (50, 60), "bare": (70, 99)}, goal)
    assert (far.verdict, far.limit) == ("out of reach", "bare store: 84.5 (70 to 99)")
    assert _judged({"kvcq": (50, 60), "bare": (70, 100)}, goal).verdict == "missed"


def test_limit_that_we_passed_bounds_nothing() -> None:
    passed = _judged({"kvcq": (50, 60), "bare": (40, 50)}, Goal(_WORK, 100, "why"))
    assert (passed.verdict, passed.limit) == ("missed", "")


def test_goal_of_what_was_not_measured_is_left_out() -> None:
    goal = Goal(_WORK, 1, "why", of="redis")
    assert judge(_report({"kvcq": (1,)}, goal)) == []
    assert judge(_report({"redis": (1,)}, goal)) == []


def test_goals_are_not_meant_for_a_smaller_scale() -> None:
    assert judge(_report({"kvcq": (1,)}, Goal(_WORK, 100, "why"), scale=0.5)) == []
