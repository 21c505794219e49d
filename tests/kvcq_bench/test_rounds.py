"""Rounds: no system is always first, and a report has the results of all."""

from __future__ import annotations

from kvcq_bench.report import Figure, Result
from kvcq_bench.rounds import in_turns, report_of
from kvcq_bench.scenario import load_scenario


def test_each_round_begins_with_another_system() -> None:
    done: list[str] = []
    in_turns("abc", 3, lambda system, number: done.append(f"{system}{number}"))
    assert done == ["a0", "b0", "c0", "b1", "c1", "a1", "c2", "a2", "b2"]


def test_rounds_of_a_scenario_are_in_one_report() -> None:
    scenario = load_scenario("kill")

    def turn(number: int) -> Result:
        return Result("server", "kill", number, {"ready after a kill": Figure(9.0 + number, "s")})

    report = report_of(scenario, [turn] * 3)
    spread = report.spread("server", "kill", "ready after a kill")
    assert spread is not None
    assert spread.text() == "10 (9 to 11)"
    assert report.goals == list(scenario.goals)
    assert report.ours == "server"
