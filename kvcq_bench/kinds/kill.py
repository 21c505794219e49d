"""Kills the server under full load and restarts it, while its producers continue."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.load import Plan, Workers, in_turn, produce, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    seconds: float  # of full load before each kill, and after the last one
    kills: int = 2
    queues: int = 64
    producers: int = 4
    size: int = 1024
    batch: int = 128


def run_kill(run: Run) -> None:
    """Figures: seconds until ready and until a first pull, for the slowest kill; put/s; repeats.

    The producers do not stop: they send messages in flight again, which must be stored once.
    """
    parameters = run.scenario.parameters_as(Parameters)
    queues = [Queue(f"kill-{number}", 0) for number in range(parameters.queues)]
    run.target.create_topics({queue.topic: 1 for queue in queues})
    ledger = run.ledger(len(queues), parameters.size)
    ready_s, pulled_s = [], []
    done = threading.Event()
    began_s = perf_counter()
    with Workers() as workers:
        for producer in range(parameters.producers):
            streams = range(producer, len(queues), parameters.producers)
            choices = in_turn(streams, sys.maxsize, parameters.batch)
            plan = Plan(queues, choices, parameters.size)
            workers.start(produce, run, ledger, plan, done)
        try:
            for kill in range(parameters.kills):
                run.recorder.begin(f"full load, kill {kill + 1}")
                workers.stop.wait(parameters.seconds)
                _some_are_there(run, workers, queues[0])
                run.recorder.begin("until it answers again")
                restarted_s = perf_counter()
                ready_s.append(run.reopen(kill=True))
                _first_pull(run, ledger, queues)
                pulled_s.append(perf_counter() - restarted_s)
            run.recorder.begin("full load after the last kill")
            workers.stop.wait(parameters.seconds)
        finally:
            done.set()
    seconds = perf_counter() - began_s
    run.recorder.figure("ready after a kill", max(ready_s), "s")
    run.recorder.figure("first pull after a kill", max(pulled_s), "s")
    run.recorder.figure("kills", parameters.kills, "kills")
    run.recorder.figure(
        "put, with the time it was down", ledger.acknowledged_messages / seconds, "messages/s"
    )
    run.recorder.figure("messages refused", ledger.failed_messages, "messages")
    run.recorder.begin("read back")
    checker = read_back(run, ledger, queues)
    run.recorder.figure("messages checked", checker.checked_messages, "messages")


def _some_are_there(run: Run, workers: Workers, queue: Queue) -> None:
    """Wait until the queue has messages, so that the first pull after a kill returns one."""
    while not (run.target.bounds([queue])[queue].max_offset or workers.stop.is_set()):
        workers.stop.wait(0.05)


def _first_pull(run: Run, ledger: Ledger, queues: list[Queue]) -> None:
    """Pull one message of the first queue, which had messages before the kill."""
    pulled = run.target.pull(queues[0], 0, 1)
    if not pulled.messages or ledger.bodies.check(pulled.messages[0].body) != (0, 0):
        raise CheckFailedError(f"{queues[0]} does not begin with its first message: {pulled}")
