"""A roll that finds no prepared segment: refused at once, tried again, nothing lost or twice."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from migration.check import check_store
from store.config import FlushMode
from store.errors import SegmentNotReadyError, StoreError
from store.format.record import unpack_record
from store.log.segment import Segment
from store.message import Message
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.stores import open_small

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.support.serving import Served

SEGMENT_BYTES = 64 << 10
REFUSALS = "server.refusals.PutStream.STORE_BUSY"


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[threading.Event]:
    """While it is clear no segment is made."""
    works = threading.Event()
    works.set()
    create = Segment.create

    def slow(path: Path, start: int, size: int) -> Segment:
        assert works.wait(60)
        return create(path, start, size)

    monkeypatch.setattr(Segment, "create", slow)
    yield works
    works.set()


async def _refusals(served: Served) -> float:
    answer = await served.admin.GetStatistics(pb.GetStatisticsRequest())
    return float(answer.values[REFUSALS])


def _small(preallocate: object) -> dict[str, object]:
    return {"segment_bytes": SEGMENT_BYTES, "preallocate": preallocate}


@pytest.mark.parametrize("preallocate", [True, False])
async def test_a_put_that_needs_a_segment_is_refused_and_those_that_fit_go_on(
    tmp_path: Path, disk: threading.Event, preallocate: bool
) -> None:
    async with serving(tmp_path, store=_small(preallocate)) as served:
        disk.clear()
        batch = pb.PutBatchRequest(messages=[pb.Message(topic="T", body=b"x" * 9_000)] * 5)

        async def put_until_refused() -> None:
            for _ in range(100):
                await served.messages.PutBatch(batch)

        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await put_until_refused()
        assert refused.value.code() is grpc.StatusCode.UNAVAILABLE
        assert error_info(refused.value).reason == "STORE_BUSY"
        # The loop does not stand still, nor does the append lock: what fits is taken.
        await served.messages.Put(pb.PutRequest(message=pb.Message(topic="T", body=b"small")))
        disk.set()
        log = served.store.log
        missing = log.segment_end(log.appended_offset - 1)
        assert await asyncio.to_thread(log.wait_for_segment, missing, 60)
        await served.messages.PutBatch(batch)
    assert check_store(tmp_path) == []


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("preallocate", [True, False])
async def test_a_producer_gets_over_rolls_that_were_refused(
    tmp_path: Path, disk: threading.Event, mode: str, preallocate: bool
) -> None:
    store = {**_small(preallocate), "flush_mode": FlushMode(mode)}
    async with serving(tmp_path, store=store) as served, AsyncClient(served.target) as client:
        disk.clear()
        async with client.producer(batch_bytes=20_000, linger_ms=0) as producer:
            sent = [
                await producer.send("T", b"%d" % number + b"." * 5000, queue_id=0)
                for number in range(200)
            ]
            while not await _refusals(served):
                assert not sent[-1].done()
            disk.set()
            placed = await asyncio.gather(*sent)
        assert [one.queue_offset for one in placed] == list(range(200))
        found: list[bytes] = []
        while len(found) < 200:
            pulled = await served.messages.Pull(
                pb.PullRequest(topic="T", queue_id=0, offset=len(found), max_messages=200)
            )
            found += [message.body.rstrip(b".") for message in pulled.messages]
            assert pulled.max_offset == 200
        assert found == [b"%d" % number for number in range(200)]
    assert check_store(tmp_path) == []


@pytest.mark.parametrize("mode", FlushMode)
def test_an_embedded_put_waits_for_the_segment_and_an_append_says_that_it_is_not_there(
    tmp_path: Path, disk: threading.Event, mode: FlushMode
) -> None:
    with open_small(tmp_path, preallocate=True, flush_mode=mode) as store:
        disk.clear()
        count = 0

        def append_until_refused() -> None:
            nonlocal count
            while count < 1000:
                store.append([Message("T", b"%d" % count + b"." * 30_000)])
                count += 1

        with pytest.raises(SegmentNotReadyError) as refused:
            append_until_refused()
        assert count > 1, "those prepared at the start were there"
        waiter = threading.Thread(
            target=lambda: store.put([Message("T", b"%d" % count + b"." * 30_000)])
        )
        waiter.start()
        store.append([Message("T", b"fits", 1)])  # whoever waits does not hold the lock
        disk.set()
        waiter.join(60)
        assert store.log.wait_for_segment(refused.value.start_offset, 60)
        pulled = store.pull("T", 0, 0, max_messages=1000)
        bodies = [unpack_record(record).body.rstrip(b".") for record in pulled.records]
        assert bodies == [b"%d" % number for number in range(count + 1)]
    assert check_store(tmp_path) == []


def test_an_embedded_put_that_waited_in_vain_is_told_so(
    tmp_path: Path, disk: threading.Event
) -> None:
    store = open_small(tmp_path, preallocate=True, sync_flush_timeout_s=0.01)
    disk.clear()

    def put_many() -> None:
        for _ in range(1000):
            store.put([Message("T", b"." * 30_000)])

    with pytest.raises(SegmentNotReadyError):
        put_many()
    disk.set()
    store.close()
    with pytest.raises(StoreError):
        store.put([Message("T", b".")])
    assert check_store(tmp_path) == []
