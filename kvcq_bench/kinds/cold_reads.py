"""Consumers far behind, while producers run at full speed."""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass
from time import perf_counter, process_time
from typing import TYPE_CHECKING

from kvcq_bench.disk import drop_cached_log
from kvcq_bench.errors import NotPossibleHereError
from kvcq_bench.ledger import Checker
from kvcq_bench.load import Plan, in_turn, produce_all, until
from kvcq_bench.run import Rate, Workers, read_back
from kvcq_client import Queue

if TYPE_CHECKING:
    from kvcq_bench.ledger import Ledger
    from kvcq_bench.run import Run


@dataclass(frozen=True)
class Parameters:
    backlog_bytes: int
    seconds: float  # producers alone, with readers at full speed, and with readers at their pace
    readers: int = 2
    producers: int = 2
    size: int = 1024
    batch: int = 128
    paced_messages_per_s: float = 10_000.0  # of all readers together, in the last part


def run_cold_reads(run: Run) -> None:
    """Figures: producers' messages/s alone and beside readers, their ratio, readers' messages/s,
    and how many cores each side kept busy. Readers at full speed, then at a pace: where the cores
    are all busy the first says who gets them, the second what a cold read costs the producers.
    """
    parameters = run.scenario.parameters_as(Parameters)
    backlog = [Queue("backlog", number) for number in range(parameters.readers)]
    hot = [Queue("hot", number) for number in range(parameters.producers)]
    run.target.create_topics({"backlog": len(backlog), "hot": len(hot)})
    queues = backlog + hot
    ledger = run.ledger(len(queues), parameters.size)
    run.recorder.begin("write the backlog")
    messages = max(1, parameters.backlog_bytes // parameters.size // len(backlog))
    turns = (in_turn([stream], messages, parameters.batch) for stream in range(len(backlog)))
    plans = (Plan(queues, turn, parameters.size, latency="put backlog") for turn in turns)
    produce_all(run, ledger, plans)
    _forget_backlog(run)
    run.recorder.begin("producers alone")
    run.touch_memory()
    alone = _produce(run, parameters, ledger, queues, "alone")
    run.recorder.begin("producers, and readers behind at full speed")
    run.touch_memory()
    both = _produce_and_read(run, parameters, ledger, queues, "beside cold reads", None)
    pace = parameters.paced_messages_per_s
    run.recorder.begin(f"producers, and readers behind at {pace:,.0f}/s")
    run.touch_memory()
    paced = _produce_and_read(run, parameters, ledger, queues, "beside paced cold reads", pace)
    run.recorder.figure("put_messages_per_s alone", alone)
    run.recorder.figure("put_messages_per_s beside cold reads", both)
    run.recorder.figure("put_messages_per_s beside paced cold reads", paced)
    run.recorder.figure("put_rate_kept", both / alone)
    run.recorder.figure("put_rate_kept beside paced cold reads", paced / alone)
    run.recorder.begin("read back")
    read_back(run, ledger, queues)


def _forget_backlog(run: Run) -> None:
    """The backlog is read from the disk, as far as we can see to it."""
    run.recorder.begin("restart, so that the backlog is on the disk alone")
    try:
        run.reopen()
    except NotPossibleHereError as error:
        run.recorder.notes.append(f"the backlog may be in the page cache: {error}")
    else:
        if run.target.directory is not None:
            drop_cached_log(run.target.directory)


def _produce_and_read(
    run: Run,
    parameters: Parameters,
    ledger: Ledger,
    queues: list[Queue],
    when: str,
    pace: float | None,
) -> float:
    """Producers' messages a second while readers are far behind. Figure: those of the readers."""
    done = threading.Event()
    each = pace / parameters.readers if pace is not None else None
    before, started_s = run.recorder.counted("cold_read"), perf_counter()
    with Workers() as readers:
        for stream in range(parameters.readers):
            readers.start(_read_cold, run, ledger, queues, stream, done, each)
        try:
            both = _produce(run, parameters, ledger, queues, when)
        finally:
            seconds = perf_counter() - started_s
            done.set()
    read = run.recorder.counted("cold_read") - before
    run.recorder.figure(f"read_messages_per_s {when}", read / seconds)
    return both


def _produce(
    run: Run, parameters: Parameters, ledger: Ledger, queues: list[Queue], when: str
) -> float:
    """Messages a second. Figures: cores that the target and this process kept busy meanwhile."""
    before, started_s = ledger.acknowledged_messages, perf_counter()
    load_s, target_s = process_time(), run.target.resources().cpu_s
    streams = range(parameters.readers, len(queues))
    turns = (in_turn([stream], sys.maxsize, parameters.batch) for stream in streams)
    timed = (until(turn, parameters.seconds) for turn in turns)
    plans = (Plan(queues, turn, parameters.size, latency=f"put {when}") for turn in timed)
    produce_all(run, ledger, plans)
    seconds = perf_counter() - started_s
    run.recorder.figure(f"busy_cores of this process {when}", (process_time() - load_s) / seconds)
    ended_s = run.target.resources().cpu_s
    if target_s is not None and ended_s is not None:
        run.recorder.figure(f"busy_cores of the target {when}", (ended_s - target_s) / seconds)
    return (ledger.acknowledged_messages - before) / seconds


def _read_cold(
    run: Run,
    ledger: Ledger,
    queues: list[Queue],
    stream: int,
    done: threading.Event,
    pace: float | None,
) -> None:
    """Read from the start, again and again, until the producers are done."""
    rate = Rate(pace, done)
    while not done.is_set():
        checker = Checker(ledger)
        for _, messages in run.target.read_to_end({queues[stream]: 0}):
            checker.see(messages, stream)
            run.recorder.count("cold_read", len(messages))
            rate.wait(len(messages))
            if done.is_set():
                return
