"""The store alone: put in batches until visible, and a query by key among many."""

from __future__ import annotations

import os
import random
import struct
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.protocol import KvBatch
from kvcq.opening import open_store
from kvcq.tables.keys import INDEX, index_key
from store.config import StoreConfig
from store.light_queue import LMQ_PREFIX
from store.message import Message
from tests.benchmarks.bare_store import BareStore
from tests.benchmarks.measure import BATCH, BODY_BYTES, Bench, Row
from tests.benchmarks.own_process import own_process

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest
    from tests.benchmarks.own_process import Turns

QUEUES = 8
#: Light queues of a message, and messages of a batch.
LIGHT_EACH, LIGHT_BATCH = 100, 16


def put_in_process(bench: Bench) -> None:
    """Batches of 128 into the store, against a loop that does nothing but the writing."""
    batches = bench.amount(1500, 20)
    body = os.urandom(BODY_BYTES)
    root = bench.fresh("put")
    queues = [at % QUEUES for at in range(BATCH)]
    probe = BareStore(root / "bare", [("bench", number) for number in range(QUEUES)])
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
                probe.put(body, queues)
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
            "pack with CRC into a file, same keys with WriteBatch",
        )
    )


def light_queues_in_process(bench: Bench) -> None:
    """A hundred light queues a message, a run of them at random, of few and of ten million; against
    a loop that has keys and next offsets of all of them ready and does nothing but the writing."""
    _light_queues(bench, 1600)
    _light_queues(bench, bench.amount(10_000_000, 16_000))


def _light_queues(bench: Bench, queues: int) -> None:
    # Each in its own process: the loop's gigabytes of ready keys are no part of a store, and rows
    # that one still sorts must not cost the other's turn.
    root = bench.fresh(f"light-{queues}")
    batches = bench.amount(600, 10)
    with (
        own_process(_store_turns, root / "store", queues) as store,
        own_process(_bare_turns, root / "bare", queues) as bare,
    ):
        put_rate, bare_rate = bench.in_turn(lambda: store.turn(batches), lambda: bare.turn(batches))
    bench.rows.append(
        Row(
            f"units of {queues:,} light queues, {LIGHT_EACH} a message, inside the process, ASYNC",
            put_rate,
            "units/s",
            "0.5 of the bare loop",
            put_rate >= 0.5 * bare_rate,
            bare_rate,
            "the same rows with WriteBatch, keys and offsets ready, in a process of its own",
        )
    )


def _store_turns(root: Path, queues: int) -> Turns:
    names, body = _light_names(queues), os.urandom(BODY_BYTES)
    with open_store(StoreConfig(root=root, reserved_hours=720.0)) as store:
        store.create_topics([("bench", 1)])

        def put(firsts: Sequence[int]) -> None:
            end = store.append(
                [
                    Message("bench", body, 0, light_queues=tuple(names[first : first + LIGHT_EACH]))
                    for first in firsts
                ]
            ).end_offset
            assert store._services.reput.dispatched.wait_for(end, 60.0)

        yield from _turns(put, queues)


def _bare_turns(root: Path, queues: int) -> Turns:
    body = os.urandom(BODY_BYTES)
    with BareStore(root, [("bench", 0)], _light_names(queues)) as probe:

        def put(firsts: Sequence[int]) -> None:
            probe.put(body, [0] * len(firsts), [slice(at, at + LIGHT_EACH) for at in firsts])

        yield from _turns(put, queues)


def _light_names(queues: int) -> list[str]:
    return [f"{LMQ_PREFIX}bench-{number:08d}" for number in range(queues)]


def _turns(put: Callable[[Sequence[int]], None], queues: int) -> Turns:
    """Units put in so many batches. Each queue has a message before it counts."""
    each = LIGHT_BATCH * LIGHT_EACH
    for at in range(0, queues, each):
        put(range(at, min(at + each, queues), LIGHT_EACH))
    pick = random.Random(1)
    batches = yield 0.0
    while True:
        for _ in range(int(batches)):
            put([pick.randrange(queues // LIGHT_EACH) * LIGHT_EACH for _ in range(LIGHT_BATCH)])
        batches = yield batches * each


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
