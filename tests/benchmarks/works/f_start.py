"""Opening a store after a kill: how fast its log is replayed, beside a plain walk over it."""

from __future__ import annotations

import shutil
import subprocess
import sys
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from tests.benchmarks.systems.in_process import store_config
from tests.benchmarks.timing import BATCH, BODY_BYTES, Timed
from tests.benchmarks.work import Work
from tests.support.migrating import open_store

if TYPE_CHECKING:
    from pathlib import Path

    from tests.benchmarks.systems.bare import BareStoreClient
    from tests.benchmarks.systems.in_process import StoreClient

_REPLAY = "open after a kill, records of log to replay"
#: Nothing of the queues reaches the disk before the kill.
_FILL = """
import os, sys
from dataclasses import replace
from pathlib import Path
from kvcq.opening import open_store
from store.message import Message
from tests.benchmarks.systems.in_process import store_config
store = open_store(store_config(Path(sys.argv[1])))
store.create_topics([("bench", 8)])
batch = [Message("bench", bytes(int(sys.argv[3])), at % 8) for at in range(512)]
for _ in range(int(sys.argv[2]) // 512):
    store.put(batch)
os.kill(os.getpid(), 9)
"""

REPLAY = Work(
    _REPLAY,
    "records/s",
    "replay",
    {"count": (1 << 30) // (BODY_BYTES + 122)},
    [
        Goal(
            _REPLAY,
            300_000,
            "a gibibyte of log should be replayed within three seconds",
            system="kvcq-store",
        )
    ],
    warm_up=False,
)


@REPLAY.of("kvcq-store")
def _(client: StoreClient, count: int) -> Timed:
    """RocksDB flushes a full memtable by itself, so a kill alone leaves little to replay. The
    database is removed as well: every record is dispatched again."""
    root = client.root / "killed"
    words = [str(root), str(count), str(BODY_BYTES)]
    filled = subprocess.run(
        [sys.executable, "-c", _FILL, *words], check=False, capture_output=True, text=True
    )
    if filled.returncode != -9:
        raise RuntimeError(filled.stderr)
    shutil.rmtree(root / "kvcq")
    return _opened(root, count // 512 * 512)


def _opened(root: Path, count: int) -> Timed:
    began_s = perf_counter()
    with open_store(store_config(root)) as store:
        seconds = perf_counter() - began_s
        found = store.bounds([("bench", number) for number in range(8)])
    if sum(most for _, most, *_ in found) != count:
        raise RuntimeError(f"{found} of {count} records")
    shutil.rmtree(root)
    return Timed(count, seconds)


@REPLAY.of("bare-store")
def _(client: BareStoreClient, count: int) -> Timed:
    """Finds each record behind the one before it and checks its body, from the page cache."""
    with client.store(["bench"]) as store:
        for _ in range(count // BATCH):
            store.put(client.body, [0] * BATCH)
        began_s = perf_counter()
        for first in range(0, count // BATCH * BATCH, BATCH):
            store.read(first, BATCH)
        return Timed(count // BATCH * BATCH, perf_counter() - began_s)
