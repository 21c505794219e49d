"""Consumers far behind, while producers run at full speed."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.ledger import Checker
from kvcq_bench.load import Plan, in_turn, produce, until
from kvcq_bench.run import Workers, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    backlog_bytes: int
    seconds: float  # producers alone, then with readers
    readers: int = 2
    producers: int = 2
    size: int = 1024
    batch: int = 128


def run_cold_reads(run: Run) -> None:
    """Figures: producers' messages/s alone and with readers, their ratio, readers' messages/s."""
    parameters = run.scenario.parameters_as(Parameters)
    backlog = [Queue("backlog", number) for number in range(parameters.readers)]
    hot = [Queue("hot", number) for number in range(parameters.producers)]
    run.target.create_topics({"backlog": len(backlog), "hot": len(hot)})
    queues = backlog + hot
    ledger = run.ledger(len(queues), parameters.size)
    run.recorder.begin("write the backlog")
    with Workers() as workers:
        for stream in range(len(backlog)):
            messages = max(1, parameters.backlog_bytes // parameters.size // len(backlog))
            choices = in_turn([stream], messages, parameters.batch)
            plan = Plan(queues, choices, parameters.size, latency="put backlog")
            workers.start(produce, run, ledger, plan, workers.stop)
    run.recorder.begin("producers alone")
    alone = _produce(run, parameters, ledger, queues, "put alone")
    run.recorder.begin("producers and readers behind")
    done = threading.Event()
    with Workers() as readers:
        for stream in range(len(backlog)):
            readers.start(_read_cold, run, ledger, queues, stream, done)
        try:
            both = _produce(run, parameters, ledger, queues, "put beside cold reads")
        finally:
            done.set()
    run.recorder.figure("put_messages_per_s alone", alone)
    run.recorder.figure("put_messages_per_s beside cold reads", both)
    run.recorder.figure("put_rate_kept", both / alone)
    run.recorder.figure(
        "cold_messages_per_s", run.recorder.counted("cold_read") / parameters.seconds
    )
    run.recorder.begin("read back")
    read_back(run, ledger, queues)


def _produce(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], latency: str
) -> float:
    before, started_s = ledger.acknowledged_messages, perf_counter()
    with Workers() as workers:
        for stream in range(parameters.readers, len(queues)):
            choices = until(in_turn([stream], sys.maxsize, parameters.batch), parameters.seconds)
            plan = Plan(queues, choices, parameters.size, latency=latency)
            workers.start(produce, run, ledger, plan, workers.stop)
    return (ledger.acknowledged_messages - before) / (perf_counter() - started_s)


def _read_cold(
    run: Run, ledger: Ledger, queues: list[Queue], stream: int, done: threading.Event
) -> None:
    """Read from the start, again and again, until the producers are done."""
    while not done.is_set():
        checker = Checker(ledger)
        for _, messages in run.target.read_to_end({queues[stream]: 0}):
            checker.see(messages, stream)
            run.recorder.count("cold_read", len(messages))
            if done.is_set():
                return
