"""A live migration: history into RocksDB while a producer goes on at half of its speed."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from migration.columnar import BulkPlan
from migration.columnar.bulk_worker import BulkWorker
from migration.columnar.liveness import Liveness
from store.message import Message
from tests.benchmarks.systems.in_process import SEGMENT_BYTES, on_files, store_config
from tests.benchmarks.timing import BATCH, Timed
from tests.benchmarks.work import Work
from tests.support.migrating import live, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore
    from tests.benchmarks.systems.in_process import StoreClient

_BACKFILL, _ALONE = "backfill of files to RocksDB", "sorted files of the same log, alone"
_BODY = bytes(40)  # of a long history
_TOPICS, _QUEUES = 10, 8
_RUN_S = 150.0  # one backfill at most
_KEPT = "producer's rate over that without"

BACKFILL = Work(
    _BACKFILL,
    "units/s",
    "backfill",
    {"count": 5_000_000},
    [
        Goal(
            _BACKFILL, 200_000, "a billion messages within an hour and a half", system="kvcq-store"
        ),
        Goal(_BACKFILL, 0.8, "users of the store should hardly notice", _KEPT, system="kvcq-store"),
    ],
    warm_up=False,
)


class _Producer:
    """Puts batches on one thread, as fast as it can or this many messages a second."""

    def __init__(self, store: MessageStore) -> None:
        self._store = store
        self._batches = [
            [
                Message(f"bench-{at % _TOPICS}", _BODY, at // _TOPICS % _QUEUES)
                for at in range(first, first + BATCH)
            ]
            for first in range(0, _TOPICS * _QUEUES * BATCH, BATCH)
        ]

    def run(self, most: int, stop: threading.Event, per_second: float | None = None) -> float:
        """Until `stop`, or all is put. Returns messages a second."""
        began_s = perf_counter()
        done = 0
        while done < most and not stop.is_set():
            self._store.put(self._batches[done // BATCH % len(self._batches)])
            done += BATCH
            if per_second is not None:
                stop.wait(max(0.0, done / per_second - (perf_counter() - began_s)))
        return done / (perf_counter() - began_s)


@BACKFILL.of("kvcq-store")
def _(client: StoreClient, count: int) -> Timed:
    """Broken off after a while; what it did until then counts."""
    root = client.root / "files"
    stop = threading.Event()
    with on_files(root) as store, ThreadPoolExecutor(1) as pool:
        producer = _Producer(store)
        producer.run(count, threading.Event())
        store.flush()
        full = producer.run(count // 5, threading.Event())
        half = producer.run(count // 10, threading.Event(), full / 2)
        running = pool.submit(producer.run, 2 * count, stop, full / 2)
        began_s = perf_counter()
        job = live(store).start()
        if not job.wait(_RUN_S):
            job.cancel()
            assert job.wait(_RUN_S), job.view()
        elif job.error is not None:
            raise job.error
        seconds = perf_counter() - began_s
        stop.set()
        beside = running.result()
    end = min(SEGMENT_BYTES, store.log.appended_offset)
    began_s = perf_counter()
    made = sorted_files(root, end, root / "sorted")
    plain = made / (perf_counter() - began_s)
    more = {_KEPT: (beside / half, ""), _ALONE: (plain, "units/s")}
    return Timed(job.view().numbers["rows"], seconds, more=more)


def sorted_files(root: Path, end: int, output: Path) -> int:
    """The raw probe: sorted files of the log of `root` up to `end`, by one plain process. Returns
    how many records it has."""
    output.mkdir()
    plan = BulkPlan(
        commitlog=root / "commitlog",
        segment_bytes=SEGMENT_BYTES,
        start=0,
        piece_bytes=96 << 20,
        output=output,
        liveness=Liveness({f"bench-{number}": 0 for number in range(_TOPICS)}),
    )
    worker = BulkWorker(plan)
    records = 0
    while found := int(str(worker.make(end)["records"])):
        records += found
    return records


def filled(root: Path, count: int, *, both_sides: bool = False) -> tuple[int, int, int]:
    """A closed store of records with tags and keys: how many, their bytes, and the log's end."""
    with on_files(root) if both_sides else open_store(store_config(root)) as store:
        if both_sides:
            assert live(store).start().wait(_RUN_S)
        done = size = 0
        while done < count:
            batch = [
                Message(
                    f"bench-{number % _TOPICS}",
                    bytes(54),
                    number // _TOPICS % _QUEUES,
                    tag=f"tag{number % 5}",
                    keys=(f"key-{number:08d}",),
                )
                for number in range(done, done + BATCH)
            ]
            size += sum(one.record_size for one in store.put(batch).requests)
            done += BATCH
        return done, size, store.log.appended_offset
