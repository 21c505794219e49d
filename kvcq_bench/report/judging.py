"""Decides whether goals were met.

A bound is a number, or a multiple of the result of another system or workload in the same run.
Multiples are computed round by round.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcq_bench.report.numbers import Spread, number_text

if TYPE_CHECKING:
    from kvcq_bench.report.goal import Goal
    from kvcq_bench.report.results import Report

MET, MISSED, OUT_OF_REACH = "met", "missed", "out of reach"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal, the value reached, and its limit as measured in the same run."""

    goal: Goal
    unit: str
    reached: Spread
    #: The value that is compared with the bound: the figure, or its ratio to another figure.
    compared: Spread
    wanted: str
    verdict: str
    #: The nearest limit, with its figure; "" where none was measured.
    limit: str

    @property
    def reached_text(self) -> str:
        text = f"{self.reached.text()} {self.unit}".rstrip()
        return f"{text}, {self.compared.text()} times" if self.goal.is_multiple else text


def judge(report: Report) -> list[Outcome]:
    """The outcome of each goal for which the report has figures. Empty below scale 1, because goals
    only apply to scale 1.

    A goal is met if the median reaches it. A missed goal is out of reach if not even the nearest
    limit, which does less work, reaches it in any round.
    """
    if report.conditions.get("scale", 1.0) < 1:
        return []
    found = (_outcome(report, goal) for goal in report.goals)
    return [one for one in found if one is not None]


def _outcome(report: Report, goal: Goal) -> Outcome | None:
    system = goal.system or report.ours
    reached = report.spread(system, goal.work, goal.figure)
    compared = _compared(report, goal, system)
    if reached is None or compared is None:
        return None
    is_met = _reaches(goal, compared.median)
    limit = "" if is_met else _limit(report, goal, compared)
    verdict = MET if is_met else MISSED
    nearest = _compared(report, goal, limit) if limit else None
    if nearest and not _reaches(goal, nearest.low if goal.at_most else nearest.high):
        verdict = OUT_OF_REACH
    text = ""
    if limit and (figure := report.spread(limit, goal.work, goal.figure)):
        text = f"{report.systems[limit]}: {figure.text()}"
    unit = report.units(goal.work, goal.figure)
    return Outcome(goal, unit, reached, compared, _wanted(report, goal, unit), verdict, text)


def _compared(report: Report, goal: Goal, system: str) -> Spread | None:
    if not goal.is_multiple:
        return report.spread(system, goal.work, goal.figure)
    other = (goal.of or system, goal.of_work or goal.work)
    return report.ratio((system, goal.work), other, goal.figure)


def _limit(report: Report, goal: Goal, ours: Spread) -> str:
    """The limit that is nearest to our value and better; "" if there is none."""
    sign = -1 if goal.at_most else 1
    found = [
        (sign * one.median, name)
        for name in report.limits
        if name != goal.of and (one := _compared(report, goal, name)) is not None
    ]
    return min((one for one in found if one[0] >= sign * ours.median), default=(0.0, ""))[1]


def _reaches(goal: Goal, value: float) -> bool:
    return value <= goal.bound if goal.at_most else value >= goal.bound


def _wanted(report: Report, goal: Goal, unit: str) -> str:
    words = "at most" if goal.at_most else "at least"
    if not goal.is_multiple:
        return f"{words} {number_text(goal.bound)} {unit}".rstrip()
    of = [report.systems.get(goal.of, goal.of)] if goal.of else []
    return (
        f"{words} {goal.bound:g} times {', '.join([*of, *([goal.of_work] * bool(goal.of_work))])}"
    )
