"""Calls that an interceptor stands before, as OpenTelemetry's for gRPC puts there: all of them go
on, by gRPC's public methods."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest
from opentelemetry.instrumentation.grpc import GrpcAioInstrumentorClient, GrpcInstrumentorClient

from kvcq_client import AsyncClient, Client, Message, Queue
from kvcq_client.transport import call_stream

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.support.serving import Served

pytestmark = pytest.mark.usefixtures("both_ways")

QUEUE = Queue("T", 0)


@pytest.fixture(autouse=True)
def _intercepted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(call_stream, "CALLS_BEFORE", 3)
    instrumentors = GrpcAioInstrumentorClient(), GrpcInstrumentorClient()
    for each in instrumentors:
        each.instrument()
    yield
    for each in instrumentors:
        each.uninstrument()


async def test_asyncio(served: Served) -> None:
    async with AsyncClient(served.target, timeout_s=20) as client:
        await client.create_topic("T", 1)
        for number in range(12):
            assert (await client.put(Message("T", b"x", 0))).queue_offset == number
        async with client.producer() as producer, await client.consumer({QUEUE: 0}) as consumer:
            await (await producer.send("T", b"x", queue_id=0))
            assert len(await consumer.take(13)) == 13


async def test_blocking(served: Served) -> None:
    def work() -> None:
        with Client(served.target, timeout_s=20) as client:
            client.create_topic("T", 1)
            for number in range(12):
                assert client.put(Message("T", b"x", 0)).queue_offset == number
            with client.producer() as producer, client.consumer({QUEUE: 0}) as consumer:
                producer.send("T", b"x", queue_id=0).result()
                assert len(consumer.take(13)) == 13

    await asyncio.to_thread(work)
