"""Ratios of kept runs are taken round by round, of rounds with memory alike."""

from __future__ import annotations

from typing import Any

from tests.peers.measured import FORMAT, Measured
from tests.peers.runs import beside_limits, beside_peers, goals_in_runs
from tests.peers.values import Durability, Memory, Sample, Timed
from tests.peers.works import Work, work_of

_BATCHES = work_of(Durability.BEFORE_FSYNC, "put, batches of 128")
_LIGHT = work_of(Durability.BEFORE_FSYNC, "light queues, 100 a message")
_UNARY = work_of(Durability.BEFORE_FSYNC, "put, 64 unary calls under way")
_TITLES = {
    "kvcq": "kvcq",
    "redis": "Redis",
    "bare-stack": "stack",
    "bare-stack-and-store": "both",
    "bare-store": "store",
}


def _rounds(system: str, work: Work, rates: list[float], cold: float | None) -> list[Any]:
    more = {} if cold is None else {"is_cold": cold}
    return [
        Sample(
            system,
            work.name,
            Durability.BEFORE_FSYNC,
            Memory.COLD if cold is not None else work.memory,
            number,
            Timed(round(rate), 1.0).document(),
            more=more,
        ).document()
        for number, rate in enumerate(rates)
    ]


def _run(hour: int, samples: list[Any]) -> Measured:
    return Measured(
        {
            "format": FORMAT,
            "titles": _TITLES,
            "limits": [name for name in _TITLES if name.startswith("bare")],
            "machine": {"time": f"2026-11-26T{hour:02}:33:35+00:00"},
            "samples": samples,
        }
    )


def _samples(ours: list[float], cold: float = 1.0) -> list[Any]:
    return [
        *_rounds("kvcq", _BATCHES, ours, 1.0),
        *_rounds("redis", _BATCHES, [100, 200, 50], cold),
        *_rounds("bare-stack", _BATCHES, [1000, 1000, 1100], 1.0),
        *_rounds("bare-stack-and-store", _BATCHES, [400, 400, 400], 1.0),
        *_rounds("kvcq", _LIGHT, [30, 50], None),
        *_rounds("bare-store", _LIGHT, [100, 100], None),
        *_rounds("kvcq", _UNARY, [8], None),
        *_rounds("bare-stack", _UNARY, [10], None),
    ]


def test_a_ratio_is_that_of_each_round() -> None:
    # Of the medians it would be 3.
    lines = beside_peers(_run(1, _samples([100, 300, 300]))).splitlines()
    assert lines == [
        "| kvcq beside | Redis |",
        "|---|---|",
        "| put, batches of 128 | 1.5 (1 to 6) |",
    ]


def test_rounds_with_other_memory_are_left_out() -> None:
    assert beside_peers(_run(1, _samples([100, 300, 300], cold=0.0))).splitlines()[2:] == []


def test_each_run_has_a_column_and_each_work_its_nearest_limit() -> None:
    runs = [_run(22, _samples([100, 300, 300])), _run(9, _samples([200, 200, 200])[:-2])]
    assert beside_limits(runs).splitlines() == [
        "| ours over the limit | 26 November, 9 h | 26 November, 22 h |",
        "|---|---|---|",
        "| *stack: put, batches of 128, messages/s* |" + 2 * " 1,000 (1,000 to 1,100) |",
        "| put, batches of 128: of both | 0.5 (0.5 to 0.5) | 0.75 (0.25 to 0.75) |",
        "| light queues, 100 a message: of store | 0.4 (0.3 to 0.5) | 0.4 (0.3 to 0.5) |",
    ]


def test_each_goal_stands_with_how_many_runs_have_it_met() -> None:
    runs = [_run(22, _samples([100, 300, 300])), _run(9, _samples([200, 200, 200]))]
    assert goals_in_runs(runs).splitlines() == [
        "| goal: ours, and the limit | met in | the limit gets there in "
        "| 26 November, 9 h | 26 November, 22 h |",
        "|---|---|---|---|---|",
        "| put, batches of 128, messages/s: 1.5 times Redis | 2 of 2 | 2 of 2 | 2, 4 | 1.5, 4 |",
        "| light queues, 100 a message, units/s: 0.5 times store | 0 of 2 | 2 of 2 "
        "| 0.4, 1 | 0.4, 1 |",
    ]
