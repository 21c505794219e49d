"""Runs one scenario on one target, and makes the report's document."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import ScenarioError
from kvcq_bench.kinds import KINDS
from kvcq_bench.machine import machine, versions
from kvcq_bench.recorder import Recorder
from kvcq_bench.report import FORMAT
from kvcq_bench.run import Run

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_bench.scenario import Scenario
    from kvcq_bench.targets import Target


def run_scenario(
    scenario: Scenario,
    target: Target,
    *,
    sample_interval_s: float = 1.0,
    watch: Callable[[Recorder], None] = lambda _: None,
) -> dict[str, Any]:
    """Run it to its end. `watch` is told about every phase and sample, on any thread.

    Raises CheckFailedError when something acknowledged is missing, repeated or wrong,
    ScenarioError, NotPossibleHereError.
    """
    kind = KINDS.get(scenario.kind)
    if kind is None:
        raise ScenarioError(f"no kind {scenario.kind!r}; there are {', '.join(KINDS)}")
    before = machine()
    recorder = Recorder(target, sample_interval_s, lambda _: watch(recorder))
    with recorder:
        kind(Run(scenario, target, recorder))
    return {
        "format": FORMAT,
        "scenario": scenario.name,
        "title": scenario.title,
        "seed": scenario.seed,
        "scale": scenario.scale,
        "target": target.name,
        "parameters": dict(scenario.parameters),
        "store": dict(scenario.store),
        "machine": before,
        "versions": versions(),
        "nothing_lost": True,  # else there would be no document
        **recorder.document(),
    }
