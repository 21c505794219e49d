"""Deleting a tenth of the topics under load, then expiry: space comes back, readers go on."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.errors import CheckFailedError, NotPossibleHereError
from kvcq_bench.ledger import Checker
from kvcq_bench.load import Plan, Workers, in_turn, produce, produce_all, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    topics: int
    messages: int  # spread over all topics, before anything is deleted
    expire_timeout_s: float  # how long to wait until only the last segment is left
    size: int = 1024
    batch: int = 500
    rate: float = 10_000.0  # of the producer beside, messages a second


def run_removal(run: Run) -> None:
    """Figures: topics deleted/s, disk before and after. Latency of reads before and meanwhile."""
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
    _expire(run, parameters, ledger, queues, kept)


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


def _expire(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], kept: list[int]
) -> None:
    """Open again with a short retention; old segments and their units must go, no live one."""
    run.recorder.begin("expiry")
    segment_bytes = int(run.scenario.store.get("segment_bytes", 1 << 30))
    if run.target.statistics()["store.log_appended_offset"] <= segment_bytes:
        run.recorder.notes.append("no expiry: the log has one segment, and the last one stays")
        return
    before = run.target.disk_bytes()
    try:
        run.reopen(
            {
                "reserved_hours": 1e-4,
                "delete_when_hours": list(range(24)),
                "clean_interval_s": 1.0,
                "expiry_margin_s": 2,
            }
        )
    except NotPossibleHereError as error:
        run.recorder.notes.append(f"no expiry: {error}")
        return
    # Until only the last segment is left: what goes while it is read back could not be told from
    # what is lost.
    end_s = perf_counter() + parameters.expire_timeout_s
    waiting = threading.Event()
    while True:
        statistics = run.target.statistics()
        last_start = statistics["store.log_appended_offset"] // segment_bytes * segment_bytes
        if statistics["store.log_start_offset"] >= last_start:
            break
        if perf_counter() > end_s:
            done = f"up to {statistics['store.log_start_offset']:,.0f} of {last_start:,.0f} bytes"
            run.recorder.notes.append(f"expired {done} within {parameters.expire_timeout_s:g} s")
            return
        waiting.wait(0.2)
    run.recorder.begin("read back what is left")
    checker = Checker(ledger)
    left = 0
    for stream in kept:
        bounds = run.target.bounds([queues[stream]])[queues[stream]]
        if bounds.min_offset == bounds.max_offset:
            continue
        left += 1
        checker.begin_at(stream, bounds.min_offset)
        for _, messages in run.target.read_to_end({queues[stream]: bounds.min_offset}):
            checker.see(messages, stream)
        checker.finish([stream])
    after = run.target.disk_bytes()
    run.recorder.figure("queues with messages after expiry", left, "queues")
    for name in ("commitlog", "kvcq"):
        run.recorder.figure(f"{name} before expiry", before.get(name, 0) / 1e6, "MB")
        run.recorder.figure(f"{name} after expiry", after.get(name, 0) / 1e6, "MB")
