"""Stores that RocketMQ itself wrote, unpacked for a test, with what RocketMQ reads in them.

How they were made: tests/golden/rocketmq/README.md. `make interop` runs the tests on stores made a
moment before: it names their directory in the variable KVCQ_GOLDEN.
"""

from __future__ import annotations

import functools
import json
import lzma
import os
from pathlib import Path
from typing import Any

from tests.support.unpacking import unpack

DIRECTORY = Path(
    os.environ.get("KVCQ_GOLDEN") or Path(__file__).parent.parent / "golden" / "rocketmq"
)

#: Names of the stores: file queues with RocksDB from the start; RocksDB alone, with CRC items;
#: RocksDB first, then the oldest segments expired, then file queues added.
STORES = ("both", "rocksdb", "prefilled")

# Settings that the bytes follow (kvcq.interop.Settings, in Java).
SEGMENT_BYTES = 128 * 1024
UNITS_PER_FILE = 16
INDEX_SLOTS = 101
INDEX_ENTRIES = 1000

#: Where the RocksDB queues of RocketMQ lie, and its file queues next to them.
QUEUE_DIRECTORY = "consumequeue"


def extract_golden(tmp_path: Path, name: str = "both") -> Path:
    """A fresh copy of the store `name` below `tmp_path`; returns its root."""
    unpack(DIRECTORY / f"{name}.tar.xz", tmp_path)
    return tmp_path / name


@functools.cache
def expected(name: str = "both") -> dict[str, Any]:
    """What RocketMQ reads in the store `name`. Shared between callers: look, do not change.

    `log`: `start`, `end`, `records` (field names of StoredMessage; hosts as hex of the address, and
    port), `blanks` (physical offset, bytes). `queues`: by view, `files` and `rocksdb`, those the
    store has: `topic`, `queue_id`, `min`, `max`, `units` (queue offset, physical offset, record
    size, tag code, store time), `pulled` (physical offsets), `searches` (time, LOWER, UPPER).
    `key_queries`: `topic`, `key`, `physical_offsets`, foreign ones of the same hash included.
    """
    with lzma.open(DIRECTORY / f"{name}.expected.json.xz") as text:
        document: dict[str, Any] = json.load(text)
    return document
