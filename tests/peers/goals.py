"""The goals, what was reached of each, and whether what bounds it leaves room for it.

A goal is a number, or a multiple of what others reached in the same run. One that is missed is out
of reach where the nearest limit, in its best round of that run, does not reach it either. One that
was never as good as our best round is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tests.peers.spread import Spread, short
from tests.peers.values import OURS, Durability, Sample
from tests.peers.works import work_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.peers.measured import Measured

_BEFORE, _AFTER = Durability.BEFORE_FSYNC, Durability.AFTER_FSYNC
_STACK, _STORE = ("bare-stack",), ("bare-store",)
_REDIS, _NATS = ("redis",), ("nats",)
_FILES, _ROCKSDB = ("rocketmq-files",), ("rocketmq-rocksdb",)
_BLOCKING, _ASYNCIO = "put, one at a time, blocking", "put, one at a time, asyncio"
_CALLERS, _UNARY = "put, 64 callers, one a call", "put, 64 unary calls under way"
_BATCHES, _CONSUMER = "put, batches of 128", "read back, consumer"
_NEW_QUEUES = "first message to new queues"


@dataclass(frozen=True, slots=True)
class Figure:
    """What is compared: its unit where it is not that of the work, and which way is better."""

    of: Callable[[Sample], float]
    name: str = ""
    more_is_better: bool = True


_RATE = Figure(lambda sample: sample.rate)
_P99 = Figure(lambda sample: float(sample.timed["p99_us"]) / 1e3, "p99, ms", more_is_better=False)
_MEMORY = Figure(
    lambda sample: sample.more["pss_bytes"] / 1e6, "PSS, growth, MB", more_is_better=False
)


@dataclass(frozen=True, slots=True)
class Goal:
    """`factor` times the best of `of`, or that number."""

    work: str
    factor: float
    of: tuple[str, ...] = ()
    durability: Durability = _BEFORE
    figure: Figure = _RATE
    #: When those acknowledge that it is compared to; None: as it does.
    of_durability: Durability | None = None


GOALS = (
    Goal(_BATCHES, 1.5, _REDIS),
    Goal(_BATCHES, 4, _NATS),
    Goal(_BATCHES, 1.2, _FILES + _ROCKSDB),
    Goal(_CONSUMER, 2.5, _REDIS),
    Goal(_CONSUMER, 1.3, _FILES + _ROCKSDB),
    Goal("pull, 512 a call", 1, _FILES),
    Goal("pull, 512 a call", 3, _ROCKSDB),
    Goal("pull, 32 a call", 1, _FILES + _ROCKSDB),
    Goal(_BLOCKING, 5_000),
    Goal(_BLOCKING, 2, _FILES + _ROCKSDB),
    Goal(_BLOCKING, 2, figure=_P99),
    Goal(_ASYNCIO, 7_000),
    Goal(_ASYNCIO, 2, figure=_P99),
    Goal(_UNARY, 0.8, _STACK),
    Goal(_CALLERS, 0.8, _STACK),
    Goal(_BATCHES, 5, _REDIS + _NATS, _AFTER),
    Goal(_BATCHES, 100_000, (), _AFTER),
    Goal(_CALLERS, 0.9, (OURS,), _AFTER, of_durability=_BEFORE),
    Goal(_NEW_QUEUES, 1.5, _REDIS),
    Goal(_NEW_QUEUES, 0.2, _REDIS, figure=_MEMORY),
    Goal("light queues, 100 a message", 0.5, _STORE),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal in words, and what became of it."""

    name: str
    wanted: str
    reached: Spread
    #: "met", "**missed**" or "**out of reach**".
    verdict: str
    #: The nearest one: its title, its figure, and how much of it ours is. "" where there is none.
    limit: str


def goals(measured: Measured) -> list[Outcome]:
    """Those of which there is a figure of ours, and of what it is compared to."""
    return [found for goal in GOALS if (found := _outcome(goal, measured)) is not None]


def _is_passed(limit: Spread, reached: Spread, sign: int) -> bool:
    """Whether we were better in some round than what should bound us was in any: it is no bound."""
    return reached.high > limit.high if sign > 0 else reached.low < limit.low


def _outcome(goal: Goal, measured: Measured) -> Outcome | None:
    figure = goal.figure
    better = max if figure.more_is_better else min

    def spread(system: str, durability: Durability) -> Spread | None:
        return measured.spread(system, durability, work_of(durability, goal.work), figure.of)

    reached = spread(OURS, goal.durability)
    wanted, words = goal.factor, short(goal.factor)
    if goal.of:
        at = goal.of_durability or goal.durability
        found = [(one.median, one, name) for name in goal.of if (one := spread(name, at))]
        if not found:
            return None
        median, one, name = better(found)
        wanted *= median
        words = ("as" if goal.factor == 1 else f"{words} times") + f" {measured.title(name)}"
        words += f", {at}" if goal.of_durability else ""
        words += f": {one.times(goal.factor).text()}"
    if reached is None:
        return None
    sign = 1 if figure.more_is_better else -1
    verdict = "met" if sign * reached.median >= sign * wanted else "**missed**"
    limit = ""
    bounds = {
        name: one
        for name in measured.limits
        if (one := spread(name, goal.durability)) and not _is_passed(one, reached, sign)
    }
    if bounds and figure is not _MEMORY:  # they have no server whose memory is its own
        name, one = min(bounds.items(), key=lambda found: sign * found[1].median)
        share = short((reached.median / one.median) ** sign)
        limit = f"{measured.title(name)}: {one.text()}, **{share}**"
        best = one.high if figure.more_is_better else one.low
        if verdict != "met" and sign * best < sign * wanted:
            verdict = "**out of reach**"
    unit = figure.name or work_of(goal.durability, goal.work).unit
    when = f", {goal.durability}" if goal.durability is _AFTER else ""
    return Outcome(f"{goal.work}{when}, {unit}", words, reached, verdict, limit)
