"""The goals, what was reached of each, and whether what bounds it leaves room for it.

A goal is a number, or a multiple of what another system reached, or of what the same system reached
before fsync. Multiples are taken round by round, ours and those of what bounds us alike; a round in
which memory was cold for one and not for the other is left out. A goal is met where their median
gets there. One that is missed is out of reach where the nearest limit does not get there in any
round. What we were better than, in our best round or in the median, is no limit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from tests.peers.spread import short, spread_if
from tests.peers.values import OURS, Durability, Sample
from tests.peers.works import MANY_QUEUES, work_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.peers.measured import Measured
    from tests.peers.spread import Spread
    from tests.peers.works import Work

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
_LAST_TENTH = Figure(
    lambda sample: float(sample.timed["last_tenth"]), "last tenth over the first, times"
)
_MEMORY = Figure(
    lambda sample: sample.more["pss_bytes"] / 1e6, "PSS, growth, MB", more_is_better=False
)


@dataclass(frozen=True, slots=True)
class Goal:
    """`factor` times the best of `of`, or that number; ours of `of`: each system against itself."""

    work: str
    factor: float
    of: tuple[str, ...] = ()
    durability: Durability = _BEFORE
    figure: Figure = _RATE
    #: When those acknowledge that it is compared to; None: as it does.
    of_durability: Durability | None = None
    #: What they do; "": the same.
    of_work: str = ""

    def wanted(self, others: str) -> str:
        """In words; `others` are those of `of`."""
        if not self.of:
            return short(self.factor)
        times = "as" if self.factor == 1 else f"{short(self.factor)} times"
        return ", ".join(filter(None, (f"{times} {others}", self.of_durability, self.of_work)))


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
    Goal(_CALLERS, 0.8, _STACK, of_work=_UNARY),
    Goal(_CALLERS, 0.8, _STACK),
    Goal(_BATCHES, 5, _REDIS + _NATS, _AFTER),
    Goal(_BATCHES, 100_000, (), _AFTER),
    Goal(_CALLERS, 0.9, (OURS,), _AFTER, of_durability=_BEFORE),
    Goal(_NEW_QUEUES, 1.5, _REDIS),
    Goal(_NEW_QUEUES, 0.2, _REDIS, figure=_MEMORY),
    Goal(MANY_QUEUES, 100_000),
    Goal(MANY_QUEUES, 0.9, figure=_LAST_TENTH),
    Goal("light queues, 100 a message", 0.5, _STORE),
)


@dataclass(frozen=True, slots=True)
class Outcome:
    """A goal in words, and what became of it."""

    name: str
    wanted: str
    #: Our figure, and where a multiple is wanted, which one it is.
    reached: str
    #: "met", "**missed**" or "**out of reach**".
    verdict: str
    #: The nearest one: its title, its figure, which multiple that is, and how much of it ours is;
    #: "" where there is none.
    limit: str


def goals(measured: Measured) -> list[Outcome]:
    """Those of which there is a figure of ours, and of what it is compared to."""
    return [found for goal in GOALS if (found := _Judged(goal, measured).outcome()) is not None]


class InRun(NamedTuple):
    """What is held against the factor of a goal in one run: medians."""

    ours: float
    #: Of the limit that does most; None where there is none.
    limit: float | None


def in_run(goal: Goal, measured: Measured, limits: Sequence[str]) -> InRun | None:
    """None where there is no figure. `limits`: by what they do, the one that does most first."""
    judged = _Judged(goal, measured)
    if judged.outcome() is None:
        return None
    ours = judged.compared(OURS)
    assert ours is not None  # it was judged
    found = (judged.compared(name) for name in limits if name in measured.limits)
    limit = None if goal.figure is _MEMORY else next((one.median for one in found if one), None)
    return InRun(ours.median, limit)


def gets_there(goal: Goal, figure: float) -> bool:
    return figure >= goal.factor if goal.figure.more_is_better else figure <= goal.factor


class _Judged:
    """A goal beside what was measured."""

    def __init__(self, goal: Goal, measured: Measured) -> None:
        self._goal = goal
        self._measured = measured
        self._figure = goal.figure
        self._sign = 1 if goal.figure.more_is_better else -1
        #: The others' best, of which a multiple is wanted; "" where each is compared to itself.
        self._other = ""
        self._is_of_itself = goal.of == (OURS,)

    def outcome(self) -> Outcome | None:
        goal, at = self._goal, self._goal.of_durability or self._goal.durability
        words = goal.wanted("")
        if goal.of:
            found = [
                (one.median, one, name)
                for name in goal.of
                if (one := self._measured.spread(name, at, self._of_work(at), self._figure.of))
            ]
            if not found:
                return None
            _, one, name = (max if self._sign > 0 else min)(found)
            self._other = "" if self._is_of_itself else name
            words = f"{goal.wanted(self._title(name))}: {one.times(goal.factor).text()}"
        reached, compared = self._spread(OURS, goal.durability), self.compared(OURS)
        if reached is None or compared is None:
            return None
        is_met = gets_there(goal, compared.median)
        verdict, limit = "met" if is_met else "**missed**", ""
        if found_limit := self._nearest_limit(compared):
            name, one = found_limit
            limit = self._limit_text(name, one, reached, compared)
            if not is_met and self._best(one) < self._sign * goal.factor:
                verdict = "**out of reach**"
        unit = self._figure.name or work_of(goal.durability, goal.work).unit
        when = f", {goal.durability}" if goal.durability is _AFTER else ""
        ours = reached.text() + (f", {compared.text()} times" if goal.of else "")
        return Outcome(f"{goal.work}{when}, {unit}", words, ours, verdict, limit)

    def _nearest_limit(self, reached: Spread) -> tuple[str, Spread] | None:
        if self._figure is _MEMORY:  # they have no server whose memory is its own
            return None
        bounds = [
            (self._sign * one.median, name, one)
            for name in self._measured.limits
            # What we were better than, in our best round or in the median, is no bound.
            if (one := self.compared(name))
            and self._best(one) >= self._best(reached)
            and self._sign * one.median >= self._sign * reached.median
        ]
        return min(bounds)[1:] if bounds else None

    def _limit_text(self, name: str, limit: Spread, reached: Spread, compared: Spread) -> str:
        goal, title = self._goal, self._title(name)
        if self._is_of_itself:
            what = f"{goal.durability} over {goal.of_durability}"
            return f"{title}, {what}: {limit.text()}, {self._share(compared, limit)}"
        figure = self._spread(name, goal.durability)
        assert figure is not None  # it was compared
        times = f", {limit.text()} times" if goal.of else ""
        return f"{title}: {figure.text()}{times}, {self._share(reached, figure)}"

    def _share(self, ours: Spread, limit: Spread) -> str:
        return f"**{short((ours.median / limit.median) ** self._sign)}**"

    def _best(self, one: Spread) -> float:
        """Of its rounds, so that more is better."""
        return one.high if self._sign > 0 else -one.low

    def compared(self, system: str) -> Spread | None:
        """In each round, what is held against the factor; None below two rounds."""
        goal = self._goal
        if not goal.of:
            return self._spread(system, goal.durability)
        at = goal.of_durability or goal.durability
        one = system, goal.durability, self._work(goal.durability)
        other = self._other or system, at, self._of_work(at)
        return spread_if(self._measured.ratios(one, other, self._figure.of))

    def _spread(self, system: str, durability: Durability) -> Spread | None:
        return self._measured.spread(system, durability, self._work(durability), self._figure.of)

    def _work(self, durability: Durability) -> Work:
        return work_of(durability, self._goal.work)

    def _of_work(self, durability: Durability) -> Work:
        return work_of(durability, self._goal.of_work or self._goal.work)

    def _title(self, system: str) -> str:
        return self._measured.title(system)
