"""Steady put and pull: producers and consumers in parallel, one case after the other."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import NotPossibleHereError
from kvcq_bench.load import Plan, Workers, follow, in_turn, produce_all
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    """Each case: size (bytes), producers, consumers, flush ("async" or "sync"), bytes to send."""

    cases: list[dict[str, Any]]
    bytes_a_case: int
    max_messages_a_case: int
    batch_bytes: int = 128 << 10  # bytes of one list of messages


def run_steady(run: Run) -> None:
    """Figures for each case: messages/s put, and messages/s pulled meanwhile."""
    parameters = run.scenario.parameters_as(Parameters)
    flush = str(run.scenario.store.get("flush_mode", "async"))
    for number, case in enumerate(parameters.cases):
        if case["flush"] != flush:
            try:
                run.reopen({"flush_mode": case["flush"]})
            except NotPossibleHereError as error:
                run.recorder.notes.append(f"case {number} left out: {error}")
                continue
            flush = case["flush"]
        _run_case(run, parameters, number, case)


def _run_case(run: Run, parameters: Parameters, number: int, case: dict[str, Any]) -> None:
    size, producers, consumers = case["size"], case["producers"], case["consumers"]
    name = f"{size:,} B, producers {producers}, consumers {consumers}, {case['flush']}"
    run.recorder.begin(name)
    total = min(parameters.max_messages_a_case, max(producers, parameters.bytes_a_case // size))
    topic = f"steady-{number}"
    queues = [Queue(topic, queue_id) for queue_id in range(max(producers, consumers))]
    run.target.create_topics({topic: len(queues)})
    ledger = run.ledger(len(queues), size)
    batch = max(1, min(1000, parameters.batch_bytes // size, total // producers))
    done = threading.Event()
    run.touch_memory()
    started_s = perf_counter()
    with Workers() as readers:
        for reader in range(consumers):
            mine = list(range(reader, len(queues), consumers))
            readers.start(follow, run, ledger, queues, mine, done, readers.stop)
        try:
            parts = (range(producer, len(queues), producers) for producer in range(producers))
            turns = (in_turn(streams, total // producers, batch) for streams in parts)
            plans = (Plan(queues, turn, size, latency=f"put {name}") for turn in turns)
            produce_all(run, ledger, plans, readers.stop)
            put_s = perf_counter() - started_s
        finally:
            done.set()
    pulled_s = perf_counter() - started_s
    count = ledger.acknowledged_messages
    run.recorder.figure(f"put, {name}", count / put_s, "messages/s")
    run.recorder.figure(f"put and pulled, {name}", count / pulled_s, "messages/s")
