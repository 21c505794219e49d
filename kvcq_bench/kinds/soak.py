"""Hours at half speed: memory, file handles, latency and database size must stay flat."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from kvcq_bench.ledger import Checker
from kvcq_bench.load import Plan, in_turn, produce, until
from kvcq_bench.run import Workers
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    seconds: float
    probe_seconds: float  # at full speed, to know what half of it is
    queues: int = 1000
    producers: int = 2
    size: int = 1024
    batch: int = 128


def run_soak(run: Run) -> None:
    """Figures: full and half rate; growth of memory, files and disk in the second half of the time,
    by straight lines, for an hour. By then caches are full and segments expire as fast as they
    come. Memory is that of the process alone: pages of the log come and go as the kernel likes.
    The latencies of both halves of the time stand side by side.
    """
    parameters = run.scenario.parameters_as(Parameters)
    queues = [Queue(f"soak-{number}", 0) for number in range(parameters.queues)]
    run.target.create_topics({queue.topic: 1 for queue in queues})
    ledger = run.ledger(len(queues), parameters.size)
    run.recorder.begin("full speed")
    full = _produce(run, parameters, ledger, queues, parameters.probe_seconds, None, "put full")
    run.recorder.figure("full_messages_per_s", full)
    done = threading.Event()
    begun = 0
    with Workers() as reader:
        reader.start(_follow, run, ledger, queues, done, reader.stop)
        try:
            for part in ("first", "second"):
                run.recorder.begin(f"half speed, {part} half of the time")
                begun = len(run.recorder.samples)
                seconds, name = parameters.seconds / 2, f"put half speed, {part} half"
                half = _produce(run, parameters, ledger, queues, seconds, full / 2, name)
                run.recorder.figure(f"half_messages_per_s {part} half", half)
        finally:
            done.set()
    samples = run.recorder.samples[begun:]
    for name in ("private_bytes", "open_files", "disk_kvcq_bytes"):
        points = [(row["at_s"], row[name]) for row in samples if name in row]
        if len(points) >= 3:
            times, values = np.array(points).T
            slope = np.polyfit(times, values, 1)[0]
            run.recorder.figure(f"{name} growth per hour", float(slope) * 3600)


def _produce(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    queues: list[Queue],
    seconds: float,
    rate: float | None,
    latency: str,
) -> float:
    before, started_s = ledger.acknowledged_messages, perf_counter()
    with Workers() as workers:
        for producer in range(parameters.producers):
            streams = range(producer, len(queues), parameters.producers)
            choices = until(in_turn(streams, sys.maxsize, parameters.batch), seconds)
            each = rate / parameters.producers if rate is not None else None
            plan = Plan(queues, choices, parameters.size, each, latency=latency)
            workers.start(produce, run, ledger, plan, workers.stop)
    return (ledger.acknowledged_messages - before) / (perf_counter() - started_s)


def _follow(
    run: Run,
    ledger: Ledger,
    queues: list[Queue],
    done: threading.Event,
    stop: threading.Event,
) -> None:
    checker = Checker(ledger)
    stream_of = {queue: stream for stream, queue in enumerate(queues)}
    positions = dict.fromkeys(queues, 0)
    while not stop.is_set():
        last = done.is_set()
        for queue, messages in run.target.read_to_end(positions):
            checker.see(messages, stream_of[queue])
            positions[queue] = messages[-1].queue_offset + 1
            run.recorder.count("pulled", len(messages))
        if last:
            checker.finish(range(len(queues)))
            return
        done.wait(0.5)
