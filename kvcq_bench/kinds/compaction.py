"""Pulls at random, without and beside a compaction of the whole database."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.load import Plan, in_turn, produce_all
from kvcq_bench.run import Workers, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run

_HOME = Queue("compaction", 0)


@dataclass(frozen=True)
class Parameters:
    queues: int  # light queues
    units: int  # of all of them together
    seconds: float  # of pulls without compaction, once before and once after it
    max_seconds: float  # of pulls beside compactions, which go on one after the other
    fan_out: int = 1000  # light queues of a message
    messages_a_pull: int = 8
    size: int = 256


def run_compaction(run: Run) -> None:
    """Figures: p99 of a pull without and beside compactions, their ratio; seconds of one.

    Message `number` stands in `fan_out` light queues behind one another, round and round, so what
    a queue holds at an offset follows from arithmetic. Pulls are one after the other.
    """
    parameters = run.scenario.parameters_as(Parameters)
    run.target.compact()  # of nothing: where it is not possible, that is said before the work
    run.target.create_topics({_HOME.topic: 1})
    ledger = run.ledger(1, parameters.size)
    run.recorder.begin("fill")
    messages = max(1, parameters.units // parameters.fan_out)
    plan = Plan(
        [_HOME],
        in_turn([0], messages, max(1, 1000 // parameters.fan_out)),
        parameters.size,
        light_queues=lambda _, number: _names(parameters, number),
    )
    produce_all(run, ledger, [plan])
    run.recorder.begin("first compaction, no pulls")
    run.target.compact()  # so that all rounds meet the same levels
    pulls = _Pulls(run, parameters, ledger, messages)
    run.recorder.begin("pulls, no compaction")
    pulls.until("pull without compaction", perf_counter() + parameters.seconds)
    run.recorder.begin("pulls beside compactions")
    compactions = _beside(run, parameters, pulls)
    run.recorder.begin("pulls, no compaction again")
    pulls.until("pull without compaction", perf_counter() + parameters.seconds)
    without = run.recorder.latency("pull without compaction").percentile(99) * 1e3
    beside = run.recorder.latency("pull beside compaction").percentile(99) * 1e3
    run.recorder.figure("units", messages * parameters.fan_out)
    run.recorder.figure("pull_p99_ms without compaction", without)
    run.recorder.figure("pull_p99_ms beside compaction", beside)
    run.recorder.figure("pull_p99_ratio", beside / without)
    run.recorder.figure("compactions", len(compactions))
    run.recorder.figure("compaction_s", sum(compactions) / len(compactions))
    run.recorder.begin("read back")
    read_back(run, ledger, [_HOME])


def _beside(run: Run, parameters: Parameters, pulls: _Pulls) -> list[float]:
    """Seconds of each compaction that ran while pulls went on: one at least."""
    seconds: list[float] = []
    done = threading.Event()
    end_s = perf_counter() + parameters.max_seconds

    def compact() -> None:
        try:
            while not seconds or perf_counter() < end_s:
                began_s = perf_counter()
                run.target.compact()
                seconds.append(perf_counter() - began_s)
        finally:
            done.set()

    with Workers() as workers:
        workers.start(compact)
        pulls.until("pull beside compaction", float("inf"), done)
    return seconds


def _names(parameters: Parameters, number: int) -> tuple[str, ...]:
    first = number * parameters.fan_out
    return tuple([_name(at % parameters.queues) for at in range(first, first + parameters.fan_out)])


def _name(place: int) -> str:
    return f"%LMQ%{place}"


class _Pulls:
    """Pulls queues at random offsets, and checks what comes. Thread: one at a time."""

    def __init__(self, run: Run, parameters: Parameters, ledger: Ledger, messages: int) -> None:
        self._run = run
        self._parameters = parameters
        self._ledger = ledger
        self._units = messages * parameters.fan_out
        self._random = run.random(6)

    def until(self, latency: str, end_s: float, done: threading.Event | None = None) -> None:
        """One pull after the other until the time, or `done`; one at least."""
        histogram = self._run.recorder.latency(latency)
        while True:
            # A unit at random, of all in a row: its queue, and its offset there.
            offset, place = divmod(int(self._random.integers(self._units)), self._parameters.queues)
            began_s = perf_counter()
            pulled = self._run.target.pull(
                Queue(_name(place), 0), offset, self._parameters.messages_a_pull
            )
            histogram.add(perf_counter() - began_s)
            self._check(place, offset, [message.body for message in pulled.messages])
            if perf_counter() >= end_s or (done is not None and done.is_set()):
                return

    def _check(self, place: int, offset: int, bodies: list[bytes]) -> None:
        found = [self._ledger.bodies.check(body) for body in bodies]
        queues, fan_out = self._parameters.queues, self._parameters.fan_out
        units = range(offset * queues + place, self._units, queues)
        expected = [(0, unit // fan_out) for unit in units[: self._parameters.messages_a_pull]]
        self._run.recorder.count("pulled", len(found))
        if found != expected:
            raise CheckFailedError(f"{_name(place)} at {offset} holds {found}, not {expected}")
