"""Deleting a tenth of the topics under load: readers and producers of the others go on."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.load import Plan, Workers, in_turn, produce, produce_all, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    topics: int
    messages: int  # spread over all topics, before anything is deleted
    size: int = 1024
    batch: int = 500
    rate: float = 10_000.0  # of the producer beside, messages a second


def run_removal(run: Run) -> None:
    """Figures: topics deleted/s. Latency of reads before and meanwhile."""
    parameters = run.scenario.parameters_as(Parameters)
    queues = [Queue(f"removal-{number:06d}", 0) for number in range(parameters.topics)]
    run.target.create_topics({queue.topic: 1 for queue in queues})
    ledger = run.ledger(len(queues), parameters.size)
    run.recorder.begin("fill")
    choices = in_turn(range(len(queues)), parameters.messages, parameters.batch)
    produce_all(run, ledger, [Plan(queues, choices, parameters.size)])
    kept = [stream for stream in range(len(queues)) if stream % 10]
    run.recorder.begin("reads before deletion")
    _reads(run, parameters, ledger, queues, kept, "read before deletion", None)
    run.recorder.point(len(queues))
    _delete_tenth(run, parameters, ledger, queues, kept)
    run.recorder.begin("read back")
    read_back(run, ledger, queues, kept)


def _delete_tenth(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], kept: list[int]
) -> None:
    run.recorder.begin("delete a tenth of the topics, under load")
    done = threading.Event()
    with Workers() as beside:
        choices = in_turn(kept, sys.maxsize, parameters.batch)
        plan = Plan(
            queues, choices, parameters.size, parameters.rate, latency="put beside deletion"
        )
        beside.start(produce, run, ledger, plan, done)
        beside.start(_reads, run, parameters, ledger, queues, kept, "read beside deletion", done)
        started_s = perf_counter()
        try:
            for stream in range(0, len(queues), 10):
                run.target.delete_topic(queues[stream].topic)
                run.recorder.count("topics_deleted")
        finally:
            seconds = perf_counter() - started_s
            done.set()
    deleted = run.recorder.counted("topics_deleted")
    run.recorder.figure("topics deleted under load", deleted / seconds, "topics/s")
    run.recorder.point(len(kept))


def _reads(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    queues: list[Queue],
    kept: list[int],
    latency: str,
    done: threading.Event | None,
) -> None:
    """Pull one message of a queue at random: 1,000 times, or until `done`."""
    random = run.random(5, len(latency))
    histogram = run.recorder.latency(latency)
    count = 0
    each = parameters.messages // len(queues)
    while count < 1000 if done is None else not done.is_set():
        stream = kept[int(random.integers(len(kept)))]
        offset = int(random.integers(each)) if each else 0
        began_s = perf_counter()
        pulled = run.target.pull(queues[stream], offset, 1)
        histogram.add(perf_counter() - began_s)
        count += 1
        if pulled.messages and ledger.bodies.check(pulled.messages[0].body) != (stream, offset):
            raise CheckFailedError(f"{queues[stream]} at {offset}: {pulled.messages[0]}")
