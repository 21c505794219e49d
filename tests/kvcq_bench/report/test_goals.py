"""Goals name figures that the scenarios give, and are judged by them."""

from __future__ import annotations

from typing import Any

import pytest

from kvcq_bench.report.goals import GOALS, judge
from kvcq_bench.scenario import load_scenario, shipped_scenarios


def _document(figures: dict[str, float], scenario: str = "topics") -> dict[str, Any]:
    return {"scenario": scenario, "figures": figures}


def test_every_goal_is_of_a_shipped_scenario() -> None:
    names = {load_scenario(name).name for name in shipped_scenarios()}
    assert {goal.scenario for goal in GOALS} <= names


@pytest.mark.parametrize(("value", "met"), [(119_999.0, False), (120_000.0, True)])
def test_a_lower_bound_is_met_from_there_on(value: float, met: bool) -> None:
    (one,) = judge(_document({"first_messages_per_s 1000000 topics": value}))
    assert one.met is met
    assert one.wanted == "at least 120,000 messages/s"


@pytest.mark.parametrize(("value", "met"), [(3.0, True), (3.1, False)])
def test_an_upper_bound_is_met_up_to_there(value: float, met: bool) -> None:
    (one,) = judge(_document({"pull_p99_ratio": value}, "compaction"))
    assert one.met is met


def test_of_several_figures_the_last_counts() -> None:
    figures = {"last_tenth_over_first 10 topics": 0.1, "last_tenth_over_first 100 topics": 0.9}
    (one,) = judge(_document(figures))
    assert (one.value, one.figure) == (0.9, "last_tenth_over_first 100 topics")


def test_goals_of_other_scenarios_and_missing_figures_are_left_out() -> None:
    assert judge(_document({"pull_p99_ratio": 1.0})) == []
    assert judge(_document({}, "soak")) == []


def test_a_run_at_a_smaller_scale_is_not_judged() -> None:
    document = _document({"pull_p99_ratio": 1.0}, "compaction")
    assert judge({**document, "scale": 0.1}) == []
    assert len(judge({**document, "scale": 1.0})) == 1
