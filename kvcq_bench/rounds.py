"""Runs systems in turns, round by round, and collects the report."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING, TypeVar

from kvcq_bench.errors import ScenarioError
from kvcq_bench.kinds import KINDS
from kvcq_bench.machine import machine, versions
from kvcq_bench.recorder import Recorder
from kvcq_bench.report import Report
from kvcq_bench.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from kvcq_bench.report import Goal, Result
    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target

T = TypeVar("T")


def new_report(
    title: str, systems: Mapping[str, str], conditions: Mapping[str, Any], goals: Sequence[Goal]
) -> Report:
    """A report without results, with the properties of this machine."""
    made = dict(conditions)
    return Report(title, machine(), versions(), made, dict(systems), goals=list(goals))


def in_turns(systems: Sequence[T], rounds: int, turn: Callable[[T, int], None]) -> None:
    """Run each system once in each round. Each round starts with another system."""
    for number in range(rounds):
        first = number % max(1, len(systems))
        for system in (*systems[first:], *systems[:first]):
            turn(system, number)


def run_scenario(
    scenario: Scenario,
    target: Target,
    *,
    number: int = 0,
    sample_interval_s: float = 1.0,
    watch: Callable[[Recorder], None] = lambda _: None,
) -> Result:
    """Run a scenario once. `watch` is called after every phase and sample, on any thread.

    Raises CheckFailedError if an acknowledged message is missing, repeated or wrong, ScenarioError,
    NotPossibleHereError.
    """
    kind = KINDS.get(scenario.kind)
    if kind is None:
        raise ScenarioError(f"no kind {scenario.kind!r}; there are {', '.join(KINDS)}")
    recorder = Recorder(target, sample_interval_s, lambda _: watch(recorder))
    with recorder:
        kind(Run(scenario, target, recorder))
    return recorder.result(scenario.name, number)


def report_of(scenario: Scenario, turns: Sequence[Callable[[int], Result]]) -> Report:
    """The report of a scenario. `turns` run it, one after the other; each is a round."""
    began_s = monotonic()
    conditions = {
        **{name: getattr(scenario, name) for name in ("seed", "scale")},
        "parameters": dict(scenario.parameters),
        "store": dict(scenario.store),
    }
    made = new_report(scenario.title, {}, conditions, scenario.goals)
    for number, turn in enumerate(turns):
        result = turn(number)
        made.results.append(result)
        made.systems[result.system] = result.system
    made.duration_s = monotonic() - began_s
    return made
