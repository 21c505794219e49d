"""How fast a store opens: after a kill with the log to replay, and with a million queues."""

from __future__ import annotations

import json
import mmap
import shutil
import struct
import subprocess
import sys
from time import perf_counter
from typing import TYPE_CHECKING, Any

from zlib_ng.zlib_ng import crc32

from tests.benchmarks.measure import BODY_BYTES, Bench, Row

if TYPE_CHECKING:
    from pathlib import Path

_FILL = """
import os, sys
from pathlib import Path
from kvcq.opening import open_store
from store.config import StoreConfig
from store.message import Message
root, total = Path(sys.argv[1]), int(sys.argv[2])
# Nothing of the queues reaches the disk before the kill.
config = StoreConfig(root=root, reserved_hours=720.0, kv_flush_interval_s=1e6,
                     kv_flush_bytes=1 << 60)
store = open_store(config)
store.create_topics([("bench", 8)])
batch = [Message("bench", bytes({body}), at % 8) for at in range(512)]
for _ in range(total // 512):
    store.put(batch)
os.kill(os.getpid(), 9)
"""

_OPEN = """
import json, sys
from pathlib import Path
from time import perf_counter
import psutil
from kvcq.opening import open_store
from store.config import StoreConfig
began_s = perf_counter()
with open_store(StoreConfig(root=Path(sys.argv[1]), reserved_hours=720.0)) as store:
    seconds = perf_counter() - began_s
    resident = psutil.Process().memory_info().rss
    print(json.dumps({"seconds": seconds, "resident": resident,
                      "dispatched": store.statistics()["store.log_dispatched_offset"]}))
"""


def _open(root: Path) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-c", _OPEN, str(root)], check=False, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    document: dict[str, Any] = json.loads(done.stdout)
    return document


def replay(bench: Bench) -> None:
    """Open after a kill, with a gibibyte of log to replay.

    RocksDB flushes a full memtable by itself, so a kill alone leaves less than that. The database
    is removed as well: every record is dispatched again.
    """
    root = bench.fresh("replay") / "store"
    total = bench.amount((1 << 30) // (BODY_BYTES + 122), 2048) // 512 * 512
    fill = _FILL.replace("{body}", str(BODY_BYTES))
    filled = subprocess.run(
        [sys.executable, "-c", fill, str(root), str(total)], check=False, capture_output=True
    )
    assert filled.returncode == -9, filled.stderr.decode()
    shutil.rmtree(root / "kvcq")
    probe = bench.rate(lambda: scan(root))
    opened = _open(root)
    value = total / opened["seconds"]
    bench.rows.append(
        Row(
            f"open after a kill, {total:,} records of log to replay",
            value,
            "records/s",
            "300,000/s",
            value >= 300_000,
            probe,
            "reading sizes and CRCs of the same log",
        )
    )


def scan(root: Path) -> int:
    """Walk the records of the log, checking the CRC item of each: how many there are."""
    size_and_magic = struct.Struct(">iI").unpack_from
    count = 0
    for segment in sorted((root / "commitlog").iterdir()):
        if not segment.stat().st_size:
            continue  # the kill came while it was being made
        with segment.open("rb") as file:
            data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
        at = 0
        while at + 8 <= len(data):
            size, magic = size_and_magic(data, at)
            if magic != 0xDAA320A7:
                break
            crc = crc32(data[at : at + size - 20]) & 0x7FFFFFFF
            assert int(bytes(data[at + size - 11 : at + size - 1])[::-1]) == crc
            count += 1
            at += size
    return count


def many_queues(bench: Bench) -> None:
    """Open a store of a million queues, after a clean stop, against an empty one."""
    from kvcq.opening import open_store
    from store.config import StoreConfig
    from store.message import Message

    count = bench.amount(1_000_000, 1_000)
    root = bench.fresh("queues")
    with open_store(StoreConfig(root=root / "full", reserved_hours=720.0)) as store:
        started_s = perf_counter()
        for begin in range(0, count, 10_000):
            names = [f"queue-{number:07d}" for number in range(begin, min(begin + 10_000, count))]
            store.create_topics([(name, 1) for name in names])
            for first in range(0, len(names), 1000):
                store.put([Message(name, b"x" * 64) for name in names[first : first + 1000]])
        filled_s = perf_counter() - started_s
    with open_store(StoreConfig(root=root / "empty", reserved_hours=720.0)):
        pass
    _open(root / "empty")  # the first one reads the program from disk
    empty, full = _open(root / "empty"), _open(root / "full")
    bench.rows.append(
        Row(
            f"open with {count:,} queues after a clean stop",
            full["seconds"],
            "s",
            "under 1 s",
            full["seconds"] < 1,
            empty["seconds"],
            "an empty store",
        )
    )
    more_mb = (full["resident"] - empty["resident"]) / 1e6
    bench.rows.append(
        Row(
            f"resident memory with {count:,} queues, above an empty store",
            more_mb,
            "MB",
            "within 100 MB",
            more_mb <= 100,
            empty["resident"] / 1e6,
            "all of an empty store",
        )
    )
    bench.rows.append(
        Row(
            f"topics created, and a message in each, {count:,}",
            count / filled_s,
            "topics/s",
            "no bound",
            met=True,
        )
    )
