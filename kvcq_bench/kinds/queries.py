"""Query by key and search by time, while producers write."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError
from kvcq_bench.load import Plan, Workers, in_turn, produce, produce_all, read_back, until
from kvcq_client import Boundary, Queue

if TYPE_CHECKING:
    import threading

    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    messages: int  # there before the queries begin, each with a key of its own
    seconds: float
    queriers: int = 2
    producers: int = 2
    size: int = 1024
    batch: int = 128
    rate: float | None = None  # of all producers, messages a second; absent: full speed


def run_queries(run: Run) -> None:
    """Figures: queries/s, searches/s, messages/s put meanwhile. Latencies of each."""
    parameters = run.scenario.parameters_as(Parameters)
    queues = [Queue("keyed", number) for number in range(parameters.producers)]
    run.target.create_topics({"keyed": len(queues)})
    ledger = run.ledger(len(queues), parameters.size)
    run.recorder.begin("fill")
    each = parameters.messages // len(queues)
    turns = (in_turn([stream], each, parameters.batch) for stream in range(len(queues)))
    plans = (Plan(queues, turn, parameters.size, keys=_keys, latency="put fill") for turn in turns)
    produce_all(run, ledger, plans)
    there = ledger.sent.copy()
    run.recorder.begin("queries while writing")
    before, started_s = ledger.acknowledged_messages, perf_counter()
    with Workers() as workers:
        for stream in range(len(queues)):
            timed = until(in_turn([stream], sys.maxsize, parameters.batch), parameters.seconds)
            rate = parameters.rate / len(queues) if parameters.rate is not None else None
            plan = Plan(
                queues, timed, parameters.size, rate, keys=_keys, latency="put beside queries"
            )
            workers.start(produce, run, ledger, plan, workers.stop)
        for querier in range(parameters.queriers):
            workers.start(_query, run, parameters, ledger, there, queues, querier, workers.stop)
    seconds = perf_counter() - started_s
    put = (ledger.acknowledged_messages - before) / seconds
    run.recorder.figure("put beside queries", put, "messages/s")
    for name in ("queries", "searches"):
        run.recorder.figure(name, run.recorder.counted(name) / seconds, f"{name}/s")
    run.recorder.begin("read back")
    read_back(run, ledger, queues)


def _keys(stream: int, number: int) -> tuple[str, ...]:
    return (f"key-{stream}-{number}",)


def _query(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    there: list[int],
    queues: list[Queue],
    querier: int,
    stop: threading.Event,
) -> None:
    random = run.random(4, querier)
    by_key, by_time = run.recorder.latency("query by key"), run.recorder.latency("search by time")
    end_s = perf_counter() + parameters.seconds
    while perf_counter() < end_s and not stop.is_set():
        stream = int(random.integers(len(queues)))
        number = int(random.integers(there[stream]))
        began_s = perf_counter()
        found = run.target.query("keyed", _keys(stream, number)[0], 10)
        by_key.add(perf_counter() - began_s)
        run.recorder.count("queries")
        bodies = [ledger.bodies.check(message.body) for message in found]
        if bodies != [(stream, number)]:
            raise CheckFailedError(f"key {_keys(stream, number)[0]} found {bodies}")
        began_s = perf_counter()
        time_ms = found[0].store_time_ms
        offset = run.target.search_time("keyed", stream, time_ms, Boundary.LOWER)
        by_time.add(perf_counter() - began_s)
        run.recorder.count("searches")
        if offset > found[0].queue_offset:
            raise CheckFailedError(
                f"search for {time_ms} found offset {offset}, behind {found[0].queue_offset}"
            )
