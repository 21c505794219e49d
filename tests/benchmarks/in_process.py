"""The store alone: put in batches until visible, and a query by key among many."""

from __future__ import annotations

import mmap
import os
import random
import struct
from time import perf_counter
from typing import TYPE_CHECKING

from rocksdict import Options, Rdict, WriteBatch, WriteOptions
from zlib_ng.zlib_ng import crc32

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.opening import open_store
from kvcq.tables.keys import INDEX, index_key
from store.config import StoreConfig
from store.message import Message
from tests.benchmarks.measure import BATCH, BODY_BYTES, Bench, Row

if TYPE_CHECKING:
    from pathlib import Path

    from store.consume_queue import DispatchRequest

_HEADER = struct.Struct(">iiiiiqqiq8sq8siqi")
_UNIT = struct.Struct(">qiqqi")
_HOST = b"\x7f\0\0\1\0\0\x1f\x91"
QUEUES = 8


def put_in_process(bench: Bench) -> None:
    """Batches of 128 into the store, against a loop that does nothing but the writing."""
    batches = bench.amount(1500, 20)
    body = os.urandom(BODY_BYTES)
    root = bench.fresh("put")
    probe = _BareLoop(root / "bare", batches * BATCH * bench.rounds)
    with open_store(StoreConfig(root=root / "store", reserved_hours=720.0)) as store:
        store.create_topics([("bench", QUEUES)])
        messages = [Message("bench", body, at % QUEUES) for at in range(BATCH)]

        def put() -> int:
            end = 0
            for _ in range(batches):
                end = store.append(messages).end_offset
            # In ASYNC mode dispatch may lag behind the append: visible is when it has caught up.
            assert store._services.reput.dispatched.wait_for(end, 60.0)
            return batches * BATCH

        def bare() -> int:
            for _ in range(batches):
                probe.put(body)
            return batches * BATCH

        put_rate, bare_rate = bench.in_turn(put, bare)
    probe.close()
    bench.rows.append(
        Row(
            "put 1 KiB in batches of 128 inside the process, ASYNC, until visible",
            put_rate,
            "messages/s",
            "0.6 of the bare loop",
            put_rate >= 0.6 * bare_rate,
            bare_rate,
            "pack with CRC into an mmap, same keys with WriteBatch",
        )
    )


class _BareLoop:
    """Packs records with their CRC item into an mmap, and writes the keys of their units."""

    def __init__(self, root: Path, messages: int) -> None:
        root.mkdir()
        size = messages * (BODY_BYTES + 150)
        with (root / "log").open("w+b") as file:
            os.posix_fallocate(file.fileno(), 0, size)
            self._map = mmap.mmap(file.fileno(), size)
        self._db = Rdict(str(root / "db"), Options(raw_mode=True))
        self._options = WriteOptions()
        # A property; the binding's stub says method.
        setattr(self._options, "disable_wal", True)  # noqa: B010
        self._at = 0
        self._next = [0] * QUEUES

    def put(self, body: bytes) -> None:
        """One batch."""
        batch = WriteBatch(raw_mode=True)
        view, at = self._map, self._at
        tail = b"\x05bench\0\x14"
        size = 88 + len(body) + len(tail) + 20
        for number in range(BATCH):
            queue = number % QUEUES
            offset = self._next[queue]
            self._next[queue] = offset + 1
            _HEADER.pack_into(
                view, at, size, -626843481, crc32(body) & 0x7FFFFFFF, queue, 0, offset, at, 0,
                1, _HOST, 1, _HOST, 0, 0, len(body),
            )  # fmt: skip
            end = at + 88 + len(body)
            view[at + 88 : end] = body
            view[end : end + len(tail)] = tail
            end += len(tail)
            crc = crc32(memoryview(view)[at:end]) & 0x7FFFFFFF
            view[end : end + 20] = b"__CRC32#\x01" + (b"\x02%010d" % crc)[::-1]
            key = struct.pack(">i1s5s1si1sq", 5, b"\1", b"bench", b"\1", queue, b"\1", offset)
            batch.put(key, _UNIT.pack(at, size, 0, 1, 1))
            at += size
        for queue in range(QUEUES):
            key = struct.pack(">i1s5s1s3s1si", 5, b"\1", b"bench", b"\1", b"max", b"\1", queue)
            batch.put(key, struct.pack(">qq", at, self._next[queue]))
        batch.put(b"checkpoint", struct.pack(">q", at))
        self._db.write(batch, self._options)
        self._at = at

    def close(self) -> None:
        self._db.close()
        self._map.close()


def query_by_key(bench: Bench) -> None:
    """One key among ten million, inside the store; the rows are those that dispatch writes."""
    keys = bench.amount(10_000_000, 10_000)
    asked = min(20_000, keys // 4)
    config = StoreConfig(root=bench.fresh("query"), reserved_hours=720.0)
    pick = random.Random(1)
    with open_store(config) as store:
        store.create_topics([("bench", 1)])
        requests: list[DispatchRequest] = []
        for begin in range(0, asked, 500):
            batch = [
                Message("bench", b"x" * 100, 0, keys=(f"asked-{number:09d}",))
                for number in range(begin, min(begin + 500, asked))
            ]
            requests += store.put(batch).requests
        queues = store.queues
        assert isinstance(queues, KvConsumeQueueStore)
        engine = queues._engine
        _, _, _, place, _, _, time_ms, _, _, _ = requests[0]
        for begin in range(0, keys - asked, 20_000):
            rows = [
                (index_key("bench", f"other-{number:09d}", time_ms, place), struct.pack("<i", 1))
                for number in range(begin, min(begin + 20_000, keys - asked))
            ]
            engine.write(KvBatch(puts={INDEX: rows}))
    with open_store(config) as store:
        seconds = []
        for _ in range(bench.amount(20_000, 500)):
            key = f"asked-{pick.randrange(asked):09d}"
            began_s = perf_counter()
            page = store.query("bench", key)
            seconds.append(perf_counter() - began_s)
            assert len(page.records) == 1
    seconds.sort()
    p99_ms = seconds[len(seconds) * 99 // 100] * 1e3
    bench.rows.append(
        Row(
            f"query one key among {keys:,}, p99 inside the store",
            p99_ms,
            "ms",
            "under 2 ms",
            p99_ms < 2,
            seconds[len(seconds) // 2] * 1e3,
            "its median",
        )
    )
