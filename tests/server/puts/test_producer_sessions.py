"""server/puts/producer_sessions.py on a real store: a batch sent again is stored once.

A "restart" here is a new table on the same store: all that the table knew is gone, as it is with
the process. What the log has after a crash is the business of the store's own tests.
"""

from __future__ import annotations

import asyncio
from binascii import crc32
from typing import TYPE_CHECKING

import pytest
import pytest_asyncio

from kvcq.errors import EngineBusyError
from kvcq.opening import open_store
from server.errors import NumberPassedError, NumberReusedError, OutOfSequenceError
from server.puts.appender import Appender
from server.puts.producer_sessions import ProducerSessions
from server.workers import Workers
from store.config import StoreConfig
from store.errors import InvalidArgumentError
from store.format.properties import KEYS, UNIQ_KEY
from store.format.record import unpack_record
from store.message import Message
from tests.support.rebuild import live_engine

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    from kvcq.engine.protocol import KvBatch
    from server.wire.columns import Stored
    from store.message_store import MessageStore

SEGMENT_BYTES = 1 << 16


class Sessions(ProducerSessions):
    """The table, with a checksum that a test need not care for."""

    async def put(self, producer_id: str, sequence: int, messages: Sequence[Message]) -> Stored:
        sent = [message._replace(born_host=("", 0)) for message in messages]
        return await self.append(producer_id, sequence, messages, crc32(repr(sent).encode()))


class Bench:
    """A store, and as many tables on it as a test wants."""

    def __init__(self, store: MessageStore, workers: Workers) -> None:
        self.store = store
        self._workers = workers
        self._appender = Appender(store, workers)

    def sessions(self, producers: int = 100, batches: int = 4, messages: int = 1000) -> Sessions:
        return Sessions(self.store, self._appender, self._workers, producers, batches, messages)

    def close(self) -> None:
        self._appender.close()

    def bodies(self, topic: str = "t", queue_id: int = 0) -> list[bytes]:
        pulled = self.store.pull(topic, queue_id, 0, max_messages=10_000)
        return [unpack_record(record).body for record in pulled.records]


@pytest_asyncio.fixture
async def bench(tmp_path: Path) -> AsyncIterator[Bench]:
    config = StoreConfig(root=tmp_path, segment_bytes=SEGMENT_BYTES, preallocate=False)
    workers = Workers(2)
    with open_store(config) as store:
        bench = Bench(store, workers)
        yield bench
        bench.close()
    workers.close()


def _batch(*bodies: bytes, topic: str = "t") -> list[Message]:
    return [Message(topic, body, born_host=("10.0.0.1", 5)) for body in bodies]


async def test_batches_in_sequence_are_stored(bench: Bench) -> None:
    sessions = bench.sessions()
    first = await sessions.put("p", 0, _batch(b"0", b"1"))
    second = await sessions.put("p", 2, _batch(b"2"))
    assert (first.columns.queue_offsets, second.columns.queue_offsets) == ([0, 1], [2])
    assert not first.repeated
    assert not second.repeated
    assert bench.bodies() == [b"0", b"1", b"2"]


async def test_a_repeated_batch_gets_the_first_answer(bench: Bench) -> None:
    sessions = bench.sessions()
    first = await sessions.put("p", 0, _batch(b"0", b"1"))
    again = await sessions.put("p", 0, _batch(b"0", b"1"))
    assert again == first._replace(repeated=True)
    assert bench.bodies() == [b"0", b"1"]


async def test_a_gap_is_refused(bench: Bench) -> None:
    sessions = bench.sessions()
    await sessions.put("p", 0, _batch(b"0"))
    with pytest.raises(OutOfSequenceError) as refused:
        await sessions.put("p", 5, _batch(b"5"))
    assert refused.value.expected_sequence == 1
    assert bench.bodies() == [b"0"]


async def test_a_refused_batch_may_be_sent_again_mended(bench: Bench) -> None:
    sessions = bench.sessions()
    with pytest.raises(InvalidArgumentError):
        await sessions.put("p", 0, _batch(b"0", topic="not a topic"))
    await sessions.put("p", 0, _batch(b"0"))
    with pytest.raises(InvalidArgumentError):
        await sessions.put("p", 1, _batch(b"1", topic="not a topic"))
    await sessions.put("p", 1, _batch(b"1"))
    assert bench.bodies() == [b"0", b"1"]


async def test_a_batch_repeated_after_a_restart_is_found_in_the_log(bench: Bench) -> None:
    batch = [
        Message("t", b"0", light_queues=("%LMQ%a", "%LMQ%b"), keys=("k",)),
        Message("t", b"1", queue_id=2),
        Message("other", b"2", light_queues=("%LMQ%b",)),
    ]
    first = await bench.sessions().put("p", 7, batch)
    again = await bench.sessions().put("p", 7, batch)
    assert again == first._replace(repeated=True)
    assert bench.bodies() == [b"0"]
    assert bench.bodies("other") == [b"2"]


@pytest.mark.parametrize("stored", [[b"old"], [b"old", b"older"]])
async def test_a_number_that_another_batch_has_in_the_log_is_refused(
    bench: Bench, stored: list[bytes]
) -> None:
    """As after a failed flush: the producer was told that the batch failed, and goes on."""
    await bench.sessions().put("p", 0, _batch(*stored))
    restarted = bench.sessions()
    with pytest.raises(NumberReusedError) as refused:
        await restarted.put("p", 0, _batch(b"new"))
    assert refused.value.field == "producer.sequence"
    assert bench.bodies() == stored
    renamed = await restarted.put("p.1", 0, _batch(b"new"))
    assert not renamed.repeated
    assert bench.bodies() == [*stored, b"new"]


@pytest.mark.parametrize("looked_up", [False, True])
@pytest.mark.parametrize(
    "other", [[b"c", b"d"], [b"a", b"b", b"c"], [b"a"], [b"b", b"a"], [b"a", b"b", b""]]
)
async def test_a_number_stands_for_one_content(
    bench: Bench, other: list[bytes], looked_up: bool
) -> None:
    sessions = bench.sessions()
    first = await sessions.put("p", 0, _batch(b"a", b"b"))
    for table in (sessions, bench.sessions()) if looked_up else (sessions,):
        with pytest.raises(NumberReusedError) as refused:
            await table.put("p", 0, _batch(*other))
        assert "producer 'p' has already used 0 for another batch (2 messages" in str(refused.value)
        assert await table.put("p", 0, _batch(b"a", b"b")) == first._replace(repeated=True)
    assert bench.bodies() == [b"a", b"b"]


async def test_a_number_within_an_earlier_batch_is_refused(bench: Bench) -> None:
    sessions = bench.sessions()
    await sessions.put("p", 0, _batch(b"a", b"b"))
    for table in (sessions, bench.sessions()):
        with pytest.raises(NumberPassedError) as refused:
            await table.put("p", 1, _batch(b"b"))
        assert refused.value.expected_sequence == 2
    assert bench.bodies() == [b"a", b"b"]


async def test_few_messages_are_remembered_however_large_the_batches(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions = bench.sessions(messages=10)
    for number in range(8):
        await sessions.put("p", 3 * number, _batch(b"a", b"b", b"c"))
    assert sessions._messages == 12  # four batches of the only producer
    for name in ("q", "r", "s"):
        await sessions.put(name, 0, _batch(b"d", b"e", b"f", b"g"))
        assert sessions._messages <= 10
    assert (await sessions.put("q", 0, _batch(b"d", b"e", b"f", b"g"))).repeated
    # Whose batches are forgotten goes on without a look into the log.
    monkeypatch.setattr(bench.store, "batches", None)
    await sessions.put("p", 24, _batch(b"h"))
    assert sessions.producer_count == 4


async def test_a_batch_that_is_not_visible_yet_is_not_taken_for_new(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its producer is forgotten before the queues have caught up with the log."""
    engine = live_engine(bench.store)
    write = engine.write
    is_stalled = True

    def stalling(batch: KvBatch) -> None:
        if is_stalled:
            raise EngineBusyError("planted")
        write(batch)

    monkeypatch.setattr(engine, "write", stalling)
    first = await bench.sessions().put("p", 0, _batch(b"0"))
    again = asyncio.create_task(bench.sessions().put("p", 0, _batch(b"0")))
    await asyncio.wait({again}, timeout=0.1)
    is_stalled = False
    assert await again == first._replace(repeated=True)
    assert bench.bodies() == [b"0"]


async def test_a_batch_over_a_segment_boundary_is_found_whole(bench: Bench) -> None:
    body = b"x" * (SEGMENT_BYTES // 4)
    batch = _batch(*(body + b"%d" % number for number in range(9)))
    first = await bench.sessions().put("p", 0, batch)
    again = await bench.sessions().put("p", 0, batch)
    assert again == first._replace(repeated=True)
    assert len(bench.bodies()) == 9


async def test_the_producer_goes_on_after_a_restart(bench: Bench) -> None:
    await bench.sessions().put("p", 0, _batch(b"0"))
    sessions = bench.sessions()
    await sessions.put("p", 1, _batch(b"1"))
    assert (await sessions.put("p", 0, _batch(b"0"))).repeated
    with pytest.raises(OutOfSequenceError):
        await sessions.put("p", 9, _batch(b"9"))
    assert bench.bodies() == [b"0", b"1"]


async def test_forgotten_producers_and_batches_are_looked_up(bench: Bench) -> None:
    sessions = bench.sessions(producers=2, batches=1)
    for producer in ("a", "b", "c"):
        await sessions.put(producer, 0, _batch(producer.encode()))
        await sessions.put(producer, 1, _batch(producer.encode() * 2))
    assert sessions.producer_count == 2
    for producer in ("a", "b", "c"):
        for sequence in (1, 0):
            body = producer.encode() * (sequence + 1)
            assert (await sessions.put(producer, sequence, _batch(body))).repeated
    assert len(bench.bodies()) == 6


async def test_a_producer_with_a_unique_key_of_its_own_keeps_it(bench: Bench) -> None:
    batch = [Message("t", b"0", keys=("k",), properties={UNIQ_KEY: "mine"})]
    await bench.sessions().put("p", 0, batch)
    assert (await bench.sessions().put("p", 0, batch)).repeated
    [record] = bench.store.query("t", "mine").records
    assert unpack_record(record).keys == ("k",)
    assert unpack_record(record).properties == {UNIQ_KEY: "mine", KEYS: "k"}


async def test_concurrent_repeats_are_stored_once(bench: Bench) -> None:
    sessions = bench.sessions()
    stored = await asyncio.gather(*(sessions.put("p", 0, _batch(b"0")) for _ in range(10)))
    assert [one.repeated for one in stored].count(False) == 1
    assert bench.bodies() == [b"0"]
    assert not sessions._locks


@pytest.mark.parametrize(
    ("producer_id", "sequence", "field"),
    [
        ("", 0, "producer.producer_id"),
        ("a:b", 0, "producer.producer_id"),
        ("x" * 65, 0, "producer.producer_id"),
        ("p", -1, "producer.sequence"),
        ("p", 1 << 63, "producer.sequence"),
    ],
)
async def test_a_malformed_producer_is_refused(
    bench: Bench, producer_id: str, sequence: int, field: str
) -> None:
    with pytest.raises(InvalidArgumentError) as refused:
        await bench.sessions().put(producer_id, sequence, _batch(b"0"))
    assert refused.value.field == field


def _sequences(sizes: Sequence[int]) -> list[int]:
    return [sum(sizes[:index]) for index in range(len(sizes))]


async def test_any_resent_tail_is_answered_as_the_first_time(bench: Bench) -> None:
    sizes = [1, 3, 2, 5, 1]
    batches = [_batch(*(b"%d-%d" % (n, i) for i in range(size))) for n, size in enumerate(sizes)]
    sessions = bench.sessions(batches=2)
    firsts = [
        await sessions.put("p", sequence, batch)
        for sequence, batch in zip(_sequences(sizes), batches, strict=True)
    ]
    for table in (sessions, bench.sessions()):
        for begin in range(len(sizes)):
            for index in range(begin, len(sizes)):
                again = await table.put("p", _sequences(sizes)[index], batches[index])
                assert again == firsts[index]._replace(repeated=True)
    assert len(bench.bodies()) == sum(sizes)
