"""Goals: met, missed, or out of reach by what bounds us in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.goals import GOALS, Outcome, goals
from tests.peers.measured import FORMAT, Measured
from tests.peers.values import Durability, Memory, Sample, Timed
from tests.peers.works import work_of

if TYPE_CHECKING:
    from collections.abc import Mapping

_ONE = "put, one at a time, asyncio"


def _outcomes(rates: Mapping[str, float], work: str = _ONE, p99_us: float = 1.0) -> list[Outcome]:
    """Of a run of two rounds, the second one a tenth faster."""
    samples = [
        Sample(system, work, Durability.BEFORE_FSYNC, Memory.COLD, number, timed.document())
        for system, rate in rates.items()
        for number in range(2)
        for timed in [Timed(round(rate * (1 + number / 10)), 1.0, p99_us, p99_us)]
    ]
    document: dict[str, Any] = {
        "format": FORMAT,
        "titles": {
            "kvcq": "kvcq",
            "bare-stack": "bare",
            "bare-stack-and-store": "bare, over store",
            "redis": "Redis",
            "nats": "NATS",
        },
        "limits": ["bare-stack", "bare-stack-and-store"],
        "samples": [one.document() for one in samples],
    }
    return goals(Measured(document))


def _of(outcomes: list[Outcome], unit: str) -> Outcome:
    return next(one for one in outcomes if one.name.endswith(unit))


def test_each_goal_is_of_a_work_that_is_measured() -> None:
    for goal in GOALS:
        assert work_of(goal.of_durability or goal.durability, goal.work).method


def test_goal_is_met_or_missed() -> None:
    assert _of(_outcomes({"kvcq": 8000}), "calls/s").verdict == "met"
    assert _of(_outcomes({"kvcq": 5000}), "calls/s").verdict == "**missed**"
    assert _of(_outcomes({"kvcq": 5000}, p99_us=1999), "p99, ms").verdict == "met"
    assert _of(_outcomes({"kvcq": 5000}, p99_us=2001), "p99, ms").verdict == "**missed**"


def test_limit_stands_beside_the_goal_and_says_whether_there_is_room() -> None:
    near = _of(_outcomes({"kvcq": 5000, "bare-stack": 10000}), "calls/s")
    assert near.verdict == "**missed**"
    assert near.limit == "bare: 10,500 (10,000 to 11,000), **0.5**"
    assert _of(_outcomes({"kvcq": 5000, "bare-stack": 6500}), "calls/s").verdict == "**missed**"
    far = _of(_outcomes({"kvcq": 5000, "bare-stack": 6000}), "calls/s")
    assert far.verdict == "**out of reach**"
    slow = _of(_outcomes({"kvcq": 5000, "bare-stack": 6000}, p99_us=4000), "p99, ms")
    assert slow.verdict == "**out of reach**"


def test_nearest_limit_counts() -> None:
    rates = {"kvcq": 5000, "bare-stack": 9000, "bare-stack-and-store": 6000}
    found = _of(_outcomes(rates), "calls/s")
    assert found.verdict == "**out of reach**"
    assert found.limit.startswith("bare, over store: 6,300 (6,000 to 6,600)")


def test_what_we_have_passed_is_no_limit() -> None:
    rates = {"kvcq": 5000, "bare-stack": 9000, "bare-stack-and-store": 4900}
    found = _of(_outcomes(rates), "calls/s")
    assert found.verdict == "**missed**"
    assert found.limit.startswith("bare: ")


def test_multiple_is_of_the_peer_in_the_same_run() -> None:
    rates = {"kvcq": 100_000, "redis": 80_000, "nats": 20_000}
    redis, nats = _outcomes(rates, "put, batches of 128")
    assert redis.wanted == "1.5 times Redis: 126,000 (120,000 to 132,000)"
    assert (redis.verdict, nats.verdict) == ("**missed**", "met")


def test_goal_beside_what_was_not_measured_is_left_out() -> None:
    assert _outcomes({"redis": 80_000}, "put, batches of 128") == []
    assert _outcomes({"kvcq": 80_000}, "put, batches of 128") == []
