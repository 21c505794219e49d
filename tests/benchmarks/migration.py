"""What a migration costs: a live backfill with producers running, and the double write."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING

from migration.bulk_worker import BulkPlan, BulkWorker
from migration.migrator import Migrator
from migration.opening import open_store
from migration.routing import RoutingPolicy
from migration.state import MigrationState, Phase, write_state
from store.config import StoreConfig
from store.message import Message
from tests.benchmarks.measure import BATCH, Bench, Row, rate

if TYPE_CHECKING:
    from pathlib import Path

    from store.message_store import MessageStore

_MESSAGES = 5_000_000
_BODY_BYTES = 200
_SEGMENT_BYTES = 256 << 20
_QUEUES = 8
_WAIT_S = 900.0


def live_backfill(bench: Bench) -> None:
    """History into RocksDB while a producer puts batches without a pause."""
    root = bench.fresh("backfill")
    with on_files(root) as store:
        total = bench.amount(_MESSAGES, 20_000)
        _put(store, total)
        store.flush()
        alone = rate(lambda: _put(store, bench.amount(300_000, BATCH)))
        migrator = Migrator(store)
        stop = threading.Event()
        with ThreadPoolExecutor(1) as pool:
            began_s = perf_counter()
            producer = pool.submit(_put_until, store, stop)
            job = migrator.start()
            ended = job.wait(_WAIT_S)
            seconds = perf_counter() - began_s
            stop.set()
            beside = producer.result() / seconds
        assert ended, job.status()
        assert job.error is None, job.error
        filled = job.status().rows / seconds
        verify = rate(lambda: _verified(migrator))
    end = min(_SEGMENT_BYTES, store.log.appended_offset)
    probe = rate(lambda: worker_alone(root, end, root / "probe"))
    share = beside / alone
    bench.rows += [
        Row(
            "backfill of files to RocksDB, producers running",
            filled,
            "units/s",
            "200,000",
            filled >= 200_000,
            probe,
            "the process that makes sorted files, alone",
        ),
        Row(
            "producers beside the backfill, share of their rate",
            share,
            "",
            "at least 0.8",
            share >= 0.8,
        ),
        Row("verification, keys of one in 16", verify, "messages/s", "none", met=True),
    ]


def double_write(bench: Bench) -> None:
    """Puts into both sides, against puts into RocksDB alone, in turn."""
    count = bench.amount(500_000, BATCH)
    alone: list[float] = []
    both: list[float] = []
    for number in range(bench.rounds):
        with open_store(store_config(bench.fresh(f"alone-{number}"))) as store:
            alone.append(rate(lambda store=store: _put(store, count)))  # type: ignore[misc]
        with on_files(bench.fresh(f"both-{number}")) as store:
            assert Migrator(store).start().wait(_WAIT_S)
            both.append(rate(lambda store=store: _put(store, count)))  # type: ignore[misc]
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


def _batches() -> list[list[Message]]:
    body = bytes(_BODY_BYTES)
    return [
        [
            Message(f"bench-{(first + at) % 10}", body, (first + at) // 10 % _QUEUES)
            for at in range(BATCH)
        ]
        for first in range(0, 10 * _QUEUES * BATCH, BATCH)
    ]


_READY = _batches()


def _put(store: MessageStore, count: int) -> int:
    for number in range(count // BATCH):
        store.put(_READY[number % len(_READY)])
    return count // BATCH * BATCH


def _put_until(store: MessageStore, stop: threading.Event) -> int:
    done = 0
    while not stop.is_set():
        done += _put(store, 8 * BATCH)
    return done


def _verified(migrator: Migrator) -> int:
    job = migrator.verify()
    assert job.wait(_WAIT_S)
    assert job.error is None, job.error
    assert not migrator.differences
    return job.status().rows


def worker_alone(root: Path, end: int, output: Path) -> int:
    """Sorted files of the log of `root` up to `end`: how many records it has. Fresh `output`."""
    output.mkdir()
    plan = BulkPlan(
        commitlog=root / "commitlog",
        segment_bytes=_SEGMENT_BYTES,
        start=0,
        piece_bytes=96 << 20,
        output=output,
        phase=Phase.DOUBLE_WRITE,
        routing=RoutingPolicy(),
        live_from={f"bench-{number}": 0 for number in range(10)},
        dead_light={},
    )
    worker = BulkWorker(plan)
    records = 0
    while found := int(str(worker.make(end)["records"])):
        records += found
    return records
