"""Compares queues in files with queues in RocksDB, under the same traffic, in this process."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq.opening import open_store
from kvcq_bench.errors import NotPossibleHereError
from kvcq_bench.load import Plan, in_turn, produce_all, read_back
from kvcq_bench.machine import Used
from kvcq_bench.run import Run
from kvcq_bench.targets import EmbeddedTarget, open_file_store
from kvcq_client import Queue

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.config import StoreConfig
    from store.message_store import MessageStore

_STORES: dict[str, Callable[[StoreConfig], MessageStore]] = {
    "files": open_file_store,
    "rocksdb": open_store,
}


@dataclass(frozen=True)
class Parameters:
    counts: list[int]  # queues
    messages_a_queue: int
    size: int = 256
    batch: int = 128


def run_file_against_kv(run: Run) -> None:
    """Figures for each kind and count: put/s, read/s, open files, memory, disk, restart time.

    Opens stores of its own, in the run's directory.
    """
    parameters = run.scenario.parameters_as(Parameters)
    if run.target.directory is None:
        raise NotPossibleHereError("it opens stores of its own: use --data instead of --server")
    for count in parameters.counts:
        for kind, opener in _STORES.items():
            directory = run.target.directory / f"{kind}-{count}"
            target = EmbeddedTarget(directory, run.scenario.store, opener, kind)
            run.recorder.watching(target)
            try:
                _run_one(
                    Run(run.scenario, target, run.recorder),
                    parameters,
                    f"{kind}, {count:,} queues",
                    count,
                )
            finally:
                run.recorder.watching(run.target)
                target.close()
            # Everything was read back, and the next count needs the space.
            shutil.rmtree(directory)


def _run_one(run: Run, parameters: Parameters, name: str, count: int) -> None:
    figure = run.recorder.figure
    run.recorder.begin(name)
    queues = [Queue(f"queue-{number:05d}", 0) for number in range(count)]
    ledger = run.ledger(count, parameters.size)
    before = run.target.used() or Used()
    run.target.create_topics({queue.topic: 1 for queue in queues})
    total = count * parameters.messages_a_queue
    choices = in_turn(range(count), total, parameters.batch)
    with run.recorder.rate(f"put, {name}", total, "messages/s"):
        produce_all(run, ledger, [Plan(queues, choices, parameters.size, latency=f"put {name}")])
    used = run.target.used() or Used()
    run.recorder.point(count)
    figure(f"open files, {name}", used.open_files, "files")
    figure(f"memory growth, {name}", (used.resident_bytes - before.resident_bytes) / 1e6, "MB")
    started_s = perf_counter()
    ready_s = run.reopen()
    figure(f"closing, {name}", perf_counter() - started_s - ready_s, "s")
    figure(f"opening, {name}", ready_s, "s")
    for entry, size in run.target.disk_bytes().items():
        if entry in ("consumequeue", "kvcq", "index"):
            figure(f"{entry}, {name}", size / 1e6, "MB")
    with run.recorder.rate(f"read, {name}", total, "messages/s"):
        read_back(run, ledger, queues)
