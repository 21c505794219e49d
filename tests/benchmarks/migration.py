"""What a migration costs: a live backfill with producers running, and the double write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING

from migration.columnar import BulkPlan
from migration.columnar.bulk_worker import BulkWorker
from migration.columnar.liveness import Liveness
from migration.state.state import MigrationState, Phase, write_state
from store.config import StoreConfig
from store.message import Message
from tests.benchmarks.measure import BATCH, Bench, Row
from tests.support.migrating import live, open_store

if TYPE_CHECKING:
    from pathlib import Path

    from migration.steps.live import LiveMigration
    from store.message_store import MessageStore

_MESSAGES = 5_000_000
_MOST_BESIDE = 10_000_000  # messages put beside one backfill
_BODY_BYTES = 200
_SMALL_BODY_BYTES = 40  # of a long history
_SEGMENT_BYTES = 256 << 20
_QUEUES = 8
_WAIT_S = 900.0
_RUN_S = 150.0  # one backfill at most
_VERIFY_S = 60.0
_LEAST_PAUSE_S = 0.001


def live_backfill(bench: Bench) -> None:
    """History into RocksDB while a producer puts batches: without a pause, then half as fast.

    Bounded, at full size, to ten minutes and 8 GB: a run that takes too long is broken off, and
    counts with what it did.
    """
    root = bench.fresh("backfill")
    with on_files(root) as store:
        _Producer(store, None, bench.amount(_MESSAGES, 20_000)).run(threading.Event())
        store.flush()
        steps = live(store)
        few = bench.amount(1_000_000, 4 * BATCH)
        full_rate = _Producer(store, None, few).run(threading.Event())
        _beside(bench, store, None, full_rate, "at full speed")
        rollback = steps.rollback()
        assert rollback is None or rollback.wait(_RUN_S)
        half_rate = _Producer(store, full_rate / 2, few // 2).run(threading.Event())
        _beside(bench, store, full_rate / 2, half_rate, "at half of their full speed")
        verify = _verified(steps)
    end = min(_SEGMENT_BYTES, store.log.appended_offset)
    probe = bench.rate(lambda: worker_alone(root, end, root / "probe"))
    bench.rows = [
        replace(row, probe=probe, probe_of="the process that makes sorted files, alone")
        if row.unit == "units/s"
        else row
        for row in bench.rows
    ]
    bench.rows.append(
        Row("verification, keys of one in 16", verify, "messages/s", "none", met=True)
    )


def _beside(
    bench: Bench, store: MessageStore, per_second: float | None, alone: float, speed: str
) -> None:
    """One backfill beside a producer, which makes `alone` messages a second without it."""
    producer = _Producer(store, per_second, bench.amount(_MOST_BESIDE, 100 * BATCH))
    stop = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(producer.run, stop)
        began_s = perf_counter()
        job = live(store).start()
        if not job.wait(_RUN_S):
            job.cancel()
            assert job.wait(_RUN_S), job.status()
        else:
            assert job.error is None, job.error
        seconds = perf_counter() - began_s
        stop.set()
        beside = running.result()
    filled = job.status().rows / seconds
    bench.rows += [
        Row(
            f"backfill of files to RocksDB, producers {speed}",
            filled,
            "units/s",
            "200,000",
            filled >= 200_000,
        ),
        Row(
            f"producers {speed}, beside the backfill",
            beside,
            "messages/s",
            "0.8 of without",
            beside >= 0.8 * alone,
            alone,
            "the same without the backfill",
        ),
    ]


class _Producer:
    """Puts batches on one thread, as fast as it can or so many messages a second."""

    def __init__(self, store: MessageStore, per_second: float | None, most: int) -> None:
        self._store = store
        self._per_second = per_second
        self._most = most  # messages: bounds the disk

    def run(self, stop: threading.Event) -> float:
        """Until `stop`, or all is put. Returns messages a second."""
        began_s = perf_counter()
        done = 0
        while done < self._most and not stop.is_set():
            self._store.put(_SMALL[done // BATCH % len(_SMALL)])
            done += BATCH
            if self._per_second is not None:
                ahead_s = done / self._per_second - (perf_counter() - began_s)
                if ahead_s > _LEAST_PAUSE_S:
                    stop.wait(ahead_s)
        return done / (perf_counter() - began_s)


def double_write(bench: Bench) -> None:
    """Puts into both sides, against puts into RocksDB alone, in turn."""
    count = bench.amount(500_000, BATCH)
    alone: list[float] = []
    both: list[float] = []
    for number in range(bench.rounds):
        with open_store(store_config(bench.fresh(f"alone-{number}"))) as store:
            alone.append(bench.rate(lambda store=store: _put(store, count)))  # type: ignore[misc]
        with on_files(bench.fresh(f"both-{number}")) as store:
            assert live(store).start().wait(_WAIT_S)
            both.append(bench.rate(lambda store=store: _put(store, count)))  # type: ignore[misc]
    value, probe = sorted(both)[len(both) // 2], sorted(alone)[len(alone) // 2]
    bench.rows.append(
        Row(
            "puts into files and RocksDB",
            value,
            "messages/s",
            "at least 0.65 of RocksDB alone",
            value >= 0.65 * probe,
            probe,
            "RocksDB alone",
        )
    )


def store_config(root: Path) -> StoreConfig:
    """Keeps everything; segments of 256 MiB."""
    return StoreConfig(root=root, segment_bytes=_SEGMENT_BYTES, reserved_hours=720.0)


def on_files(root: Path) -> MessageStore:
    """An open store whose queues are files, as one that was taken over."""
    open_store(store_config(root)).close()
    (root / "consumequeue").mkdir()
    write_state(root, MigrationState(Phase.FILES))
    return open_store(store_config(root))


def _batches(body_bytes: int) -> list[list[Message]]:
    body = bytes(body_bytes)
    return [
        [
            Message(f"bench-{(first + at) % 10}", body, (first + at) // 10 % _QUEUES)
            for at in range(BATCH)
        ]
        for first in range(0, 10 * _QUEUES * BATCH, BATCH)
    ]


_READY = _batches(_BODY_BYTES)
_SMALL = _batches(_SMALL_BODY_BYTES)


def _put(store: MessageStore, count: int) -> int:
    for number in range(count // BATCH):
        store.put(_READY[number % len(_READY)])
    return count // BATCH * BATCH


def _verified(steps: LiveMigration) -> float:
    """Messages compared a second; broken off after a while."""
    began_s = perf_counter()
    job = steps.verify()
    if job.wait(_VERIFY_S):
        assert job.error is None, job.error
    else:
        job.cancel()
        assert job.wait(_RUN_S), job.status()
    assert not steps.differences
    return job.status().rows / (perf_counter() - began_s)


def worker_alone(root: Path, end: int, output: Path) -> int:
    """Sorted files of the log of `root` up to `end`: how many records it has. Fresh `output`."""
    output.mkdir()
    plan = BulkPlan(
        commitlog=root / "commitlog",
        segment_bytes=_SEGMENT_BYTES,
        start=0,
        piece_bytes=96 << 20,
        output=output,
        liveness=Liveness({f"bench-{number}": 0 for number in range(10)}),
    )
    worker = BulkWorker(plan)
    records = 0
    while found := int(str(worker.make(end)["records"])):
        records += found
    return records
