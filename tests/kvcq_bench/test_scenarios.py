"""Every shipped scenario, small, to its end; and the report of it."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_bench.errors import CheckFailedError, NotPossibleHereError, ScenarioError
from kvcq_bench.kinds import KINDS
from kvcq_bench.report import Report, Result, page, read_report, write_report
from kvcq_bench.rounds import report_of, run_scenario
from kvcq_bench.scenario import Scenario, load_scenario, make_scenario, shipped_scenarios
from kvcq_bench.targets.embedded import EmbeddedTarget
from kvcq_bench.targets.remote import OwnServer

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from kvcq_client import Pulled, Queue

#: Small enough for a second or two each.
SMALL: dict[str, dict[str, Any]] = {
    "steady": {
        "bytes_a_case": 100_000,
        "max_messages_a_case": 400,
        "cases": [
            {"size": 100, "producers": 2, "consumers": 2, "flush": "async"},
            {"size": 5000, "producers": 3, "consumers": 1, "flush": "sync"},
        ],
    },
    "topics": {"counts": [20, 60], "traffic_messages": 200, "sample_queues": 10},
    "light-queues": {"queues": 300, "fan_outs": [1, 10, 100], "units": 1000, "sample_queues": 20},
    "file-against-kv": {"counts": [5], "messages_a_queue": 20},
    # Three samples of the disk, one row in five, fall into its second half also on a slow machine.
    "soak": {"seconds": 4.0, "probe_seconds": 0.1, "queues": 10},
    "timers": {
        "pending": 300,
        "a_second": 100,
        "seconds": 1,
        "together": 200,
        "alone_seconds": 0.2,
    },
    "lite-topics": {
        "lite_topics": 301,
        "subscribed": 50,
        "first_messages": 20,
        "ended": 100,
        "expiry_s": 0.2,
        "patience_s": 0.2,
    },
    "kill": {"seconds": 0.3, "kills": 1, "queues": 4, "producers": 2, "batch": 16},
}

pytestmark = pytest.mark.slow


def _small(name: str) -> Scenario:
    scenario = load_scenario(name)
    store = {**scenario.store, "segment_bytes": 1 << 20}
    return replace(scenario, scale=0.001, parameters=SMALL[scenario.kind], store=store)


def _run_embedded(directory: Path, name: str) -> Report:
    scenario = _small(name)

    def turn(number: int) -> Result:
        target = EmbeddedTarget(directory, scenario.store)
        try:
            return run_scenario(scenario, target, number=number, sample_interval_s=0.05)
        finally:
            target.close()

    return report_of(scenario, [turn])


def _check_goals(report: Report) -> None:
    """Each goal is of a figure that there is, but for the numbers in its name."""

    def without_numbers(names: Iterable[str]) -> set[str]:
        return {re.sub(r"[\d,]+\d|\d", "#", name) for name in names}

    (result,) = report.results
    assert report.goals
    assert all(goal.work == result.work and goal.reason for goal in report.goals)
    named = without_numbers(goal.figure for goal in report.goals)
    assert named <= without_numbers(result.figures)


def test_every_kind_has_a_scenario_and_a_small_form() -> None:
    kinds = [load_scenario(name).kind for name in shipped_scenarios()]
    assert sorted(kinds) == sorted(KINDS) == sorted(SMALL)


def test_scenarios_are_in_the_order_of_their_numbers() -> None:
    numbers = [int(name.partition("-")[0]) for name in shipped_scenarios()]
    assert numbers == sorted(numbers)


@pytest.mark.parametrize("name", sorted({*shipped_scenarios()} - {"6-kill", "8-lite-topics"}))
def test_scenario_in_this_process(tmp_path: Path, name: str) -> None:
    report = _run_embedded(tmp_path, name)
    _check_goals(report)
    (result,) = report.results
    assert result.course["samples"]
    assert not [note for note in result.course["notes"] if "left out" in note]


@pytest.mark.integration
@pytest.mark.parametrize("name", ["1-steady", "3-light-queues"])
def test_scenario_on_a_server_of_its_own(tmp_path: Path, name: str) -> None:
    scenario = _small(name)
    target = OwnServer(tmp_path, scenario.store, "server")
    try:
        result = run_scenario(scenario, target, sample_interval_s=0.2)
        assert result.figures
        assert any("resident_bytes" in row for row in result.course["samples"])
        # Killed under no load, it must come back with all of it.
        assert target.reopen(kill=True) > 0
    finally:
        target.close()


@pytest.mark.integration
def test_producers_go_on_over_a_kill_and_nothing_is_lost_or_repeated(tmp_path: Path) -> None:
    scenario = _small("6-kill")
    target = OwnServer(tmp_path, scenario.store, "server")
    try:
        report = report_of(scenario, [lambda _: run_scenario(scenario, target)])
    finally:
        target.close()
    _check_goals(report)
    figures = report.results[0].figures
    assert figures["messages refused"].value == 0
    assert figures["messages checked"].value > 0
    ready = figures["ready after a kill"].value
    assert figures["first pull after a kill"].value >= ready > 0


@pytest.mark.integration
def test_lite_topics_are_subscribed_to_received_from_and_ended(tmp_path: Path) -> None:
    scenario = _small("8-lite-topics")
    target = OwnServer(tmp_path, scenario.store, "tests.support.hasty_server")
    try:
        turn = partial(run_scenario, scenario, target, sample_interval_s=0.05)
        report = report_of(scenario, [lambda number: turn(number=number)])
    finally:
        target.close()
    _check_goals(report)
    (result,) = report.results
    found = result.course["latencies"]["first message of a lite topic, to a subscriber of all"]
    assert found["count"] == 20
    assert result.figures["idle lite topics ended"].value > 0
    assert result.course["counters"]["read_back"] == 301 + 20


def test_lite_topics_need_a_server(tmp_path: Path) -> None:
    with pytest.raises(NotPossibleHereError, match="not --embedded"):
        _run_embedded(tmp_path, "8-lite-topics")


class _Forgetful(EmbeddedTarget):
    """Loses the last message of every pull, as a defective store might."""

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled:
        pulled = super().pull(queue, offset, max_messages)
        return pulled._replace(messages=pulled.messages[:-1])


@pytest.mark.parametrize("name", ["1-steady", "2-topics", "3-light-queues"])
def test_a_store_that_loses_messages_is_found_out(tmp_path: Path, name: str) -> None:
    scenario = _small(name)
    target = _Forgetful(tmp_path, scenario.store)
    try:
        with pytest.raises(CheckFailedError):
            run_scenario(scenario, target)
    finally:
        target.close()


def test_the_same_seed_sends_the_same(tmp_path: Path) -> None:
    logs = []
    for run in range(2):
        directory = tmp_path / str(run)
        _run_embedded(directory, "3-light-queues")
        segment = min((directory / "store" / "commitlog").iterdir())
        logs.append(segment.read_bytes())
    # Only the times differ: the bodies are where the time is not.
    bodies = [log.count(b"%LMQ%1-7,") for log in logs]
    assert bodies[0] == bodies[1] > 0


def test_report_is_written_read_and_shown(tmp_path: Path) -> None:
    report = _run_embedded(tmp_path / "run", "1-steady")
    kept = tmp_path / "report.json"
    write_report(report, kept)
    assert read_report(kept) == report
    text = page(report)
    assert report.machine["processor"] in text
    assert "<script" not in text


def test_plots_are_in_the_page(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    text = page(_run_embedded(tmp_path, "2-topics"))
    for title in ("Rate over time", "Latency percentiles", "by number of queues"):
        assert title in text
    assert text.count("<svg") >= 3


def test_a_page_without_matplotlib_says_why_it_has_no_plots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = _run_embedded(tmp_path, "2-topics")
    monkeypatch.setitem(sys.modules, "matplotlib", None)  # as if it were not installed
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_svg", None)
    text = page(report)
    assert "<svg" not in text
    assert "they need matplotlib" in text


def test_scenarios_are_checked() -> None:
    good: dict[str, Any] = {
        "name": "n",
        "title": "t",
        "kind": "soak",
        "seed": 1,
        "scaled": ["a", "b", "c"],
        "parameters": {"a": 100, "b": [10, 1000], "c": 0.5},
        "goals": [{"figure": "f", "at_most": 1, "reason": "why"}],
    }
    scaled = make_scenario(good, scale=0.1)
    assert scaled.parameters == {"a": 10, "b": [1, 100], "c": 0.05}
    with pytest.raises(ScenarioError, match="'extra'"):
        make_scenario({**good, "extra": 1})
    with pytest.raises(ScenarioError, match="'d'"):
        make_scenario({**good, "scaled": ["d"]})
    (goal,) = scaled.goals
    assert (goal.work, goal.figure, goal.bound, goal.at_most) == ("n", "f", 1, True)
    for wrong in ({"figure": "f"}, {"figure": "f", "at_least": 1, "at_most": 2, "reason": "r"}):
        with pytest.raises(ScenarioError, match="at_least or at_most"):
            make_scenario({**good, "goals": [wrong]})
    with pytest.raises(ScenarioError, match="above 0"):
        make_scenario(good, scale=0)
    with pytest.raises(ScenarioError, match="no scenario"):
        load_scenario("absent")
    with pytest.raises(ScenarioError, match="no parameter 'a'"):
        make_scenario(good).parameters_as(type(_parameters()))


def _parameters() -> object:
    from kvcq_bench.kinds.soak import Parameters

    return Parameters(1.0, 1.0)


def test_a_far_server_is_not_restarted(tmp_path: Path) -> None:
    from kvcq_bench.targets.remote import RemoteTarget

    target = RemoteTarget("127.0.0.1:9")
    try:
        with pytest.raises(NotPossibleHereError):
            target.reopen()
        with pytest.raises(NotPossibleHereError):
            run_scenario(_small("4-file-against-kv"), _NoStatistics(target))
    finally:
        target.close()


class _NoStatistics:
    """A target of which no sample can be taken."""

    def __init__(self, target: Any) -> None:  # noqa: ANN401 - stands in for any target
        self._target = target

    def statistics(self) -> dict[str, float]:
        return {}

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._target, name)
