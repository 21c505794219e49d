"""Goals: met, missed, or out of reach by what bounds us in the same run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.peers.goals import GOALS, Outcome, goals
from tests.peers.measured import FORMAT, Measured
from tests.peers.values import Durability, Sample, Timed
from tests.peers.works import work_of

if TYPE_CHECKING:
    from collections.abc import Container, Mapping, Sequence

_ONE = "put, one at a time, asyncio"


_CALLERS = "put, 64 callers, one a call"
_BEFORE, _AFTER = Durability.BEFORE_FSYNC, Durability.AFTER_FSYNC


def _outcomes(rates: Mapping[str, float], work: str = _ONE, p99_us: float = 1.0) -> list[Outcome]:
    """Of a run of two rounds, the second one a tenth faster."""
    return _of_rounds(
        {(one, _BEFORE): (rate, rate * 1.1) for one, rate in rates.items()}, work, p99_us
    )


def _of_rounds(
    rates: Mapping[tuple[str, Durability], tuple[float, ...]],
    work: str,
    p99_us: float = 1.0,
    warm: Container[tuple[str, int]] = (),
) -> list[Outcome]:
    """`warm`: systems and rounds that did not find cold memory."""
    return _judged(_samples(rates, work, p99_us, warm))


def _samples(
    rates: Mapping[tuple[str, Durability], tuple[float, ...]],
    work: str,
    p99_us: float = 1.0,
    warm: Container[tuple[str, int]] = (),
) -> list[Sample]:
    return [
        Sample(
            system,
            work,
            durability,
            work_of(durability, work).memory,
            number,
            timed.document(),
            more={"is_cold": float((system, number) not in warm)},
        )
        for (system, durability), of_rounds in rates.items()
        for number, rate in enumerate(of_rounds)
        for timed in [Timed(round(rate), 1.0, p99_us, p99_us)]
    ]


def _judged(samples: Sequence[Sample]) -> list[Outcome]:
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
        assert work_of(goal.durability, goal.work).method
        assert work_of(goal.of_durability or goal.durability, goal.of_work or goal.work).method


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


def test_what_we_pass_in_the_median_is_no_limit() -> None:
    def limit(*rates: float) -> str:
        rounds = {("kvcq", _BEFORE): (4000.0, 4500.0, 4600.0), ("bare-stack", _BEFORE): rates}
        return _of(_of_rounds(rounds, _ONE), "calls/s").limit

    assert limit(3000, 4600, 4700).startswith("bare: ")
    assert limit(3000, 4400, 4700) == ""


def test_multiple_is_of_the_peer_in_the_same_run() -> None:
    rates = {"kvcq": 100_000, "redis": 80_000, "nats": 20_000}
    redis, nats = _outcomes(rates, "put, batches of 128")
    assert redis.wanted == "1.5 times Redis: 126,000 (120,000 to 132,000)"
    assert (redis.verdict, nats.verdict) == ("**missed**", "met")


def test_multiple_may_be_of_other_work() -> None:
    unary = "put, 64 unary calls under way"
    ours = _samples({("kvcq", _BEFORE): (9000.0, 7700.0)}, _CALLERS)
    bare = _samples({("bare-stack", _BEFORE): (10_000.0, 11_000.0)}, unary)
    (found,) = _judged(ours + bare)
    assert found.wanted == f"0.8 times bare, {unary}: 8,400 (8,000 to 8,800)"
    assert (found.reached, found.verdict) == (
        "8,350 (7,700 to 9,000), 0.8 (0.7 to 0.9) times",
        "met",
    )


def test_multiple_is_taken_round_by_round() -> None:
    def verdict(*ours: float) -> str:
        rates = {("kvcq", _BEFORE): ours, ("redis", _BEFORE): (10_000.0, 100_000.0)}
        return _of_rounds(rates, "put, batches of 128")[0].verdict

    # The medians say the contrary: 0.95 times, and 1.8 times.
    assert verdict(30_000, 75_000) == "met"
    assert verdict(10_000, 190_000) == "**missed**"


def test_round_in_which_only_one_found_cold_memory_compares_nothing() -> None:
    rates = {("kvcq", _BEFORE): (10.0, 40.0, 50.0), ("redis", _BEFORE): (30.0, 20.0, 20.0)}
    mixed = _of_rounds(rates, "put, batches of 128", warm={("redis", 0)})[0]
    assert (mixed.verdict, mixed.reached) == ("met", "40 (10 to 50), 2.25 (2 to 2.5) times")
    both = _of_rounds(rates, "put, batches of 128", warm={("redis", 0), ("kvcq", 0)})[0]
    assert both.reached == "40 (10 to 50), 2 (0.333 to 2.5) times"


def _after_fsync(ours: tuple[float, ...], limit: tuple[float, ...]) -> Outcome:
    """The goal of 0.9 of the same before fsync. There ours has rounds of 10,000 and 20,000, and the
    limit of 50,000 and 100,000."""
    rates = {
        ("kvcq", _BEFORE): (10_000.0, 20_000.0),
        ("kvcq", _AFTER): ours,
        ("bare-stack", _BEFORE): (50_000.0, 100_000.0),
        ("bare-stack", _AFTER): limit,
    }
    found = _of_rounds(rates, _CALLERS)
    return next(one for one in found if "after fsync" in one.name)


def test_share_of_itself_is_bounded_by_the_share_that_a_limit_keeps_of_itself() -> None:
    bounded = _after_fsync((6000, 14_000), (40_000, 85_000))
    assert bounded.wanted == "0.9 times kvcq, before fsync: 13,500 (9,000 to 18,000)"
    assert bounded.reached == "10,000 (6,000 to 14,000), 0.65 (0.6 to 0.7) times"
    title = "bare, after fsync over before fsync"
    assert bounded.limit == f"{title}: 0.825 (0.8 to 0.85), **0.788**"
    assert bounded.verdict == "**out of reach**"
    # It gets there in one of its rounds.
    assert _after_fsync((6000, 14_000), (40_000, 91_000)).verdict == "**missed**"
    assert _after_fsync((9100, 18_000), (40_000, 85_000)).verdict == "met"


def test_share_that_we_passed_in_a_round_is_no_limit() -> None:
    passed = _after_fsync((6000, 17_400), (40_000, 85_000))
    assert (passed.verdict, passed.limit) == ("**missed**", "")


def test_goal_beside_what_was_not_measured_is_left_out() -> None:
    assert _outcomes({"redis": 80_000}, "put, batches of 128") == []
    assert _outcomes({"kvcq": 80_000}, "put, batches of 128") == []
