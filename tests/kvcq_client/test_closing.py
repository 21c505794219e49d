"""Whatever is closed, in whatever order, with the server away: it says so, and nothing hangs."""

from __future__ import annotations

import asyncio
import threading
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Client, ClosedError, Queue
from tests.support.until import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from kvcq_client import AsyncProducer
    from kvcq_client.transport import Connection
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served

QUEUE = Queue("orders", 0)


def noted_rest(connection: Connection) -> threading.Event:
    """Set once somebody waits before another try."""
    resting = threading.Event()
    rest = connection.rest

    async def noted(wait_s: float) -> bool:
        resting.set()
        return await rest(wait_s)

    connection.rest = noted  # type: ignore[method-assign]
    return resting


@asynccontextmanager
async def undelivered(line: CutLine) -> AsyncIterator[AsyncProducer]:
    """A producer with a message, and with the server away; its client is closed in the end."""
    async with AsyncClient(line.target, timeout_s=20) as client:
        await client.create_topic("orders", 1)
        producer = client.producer()
        line.stop_accepting()
        line.cut()
        await producer.send("orders", b"x", queue_id=0)
        yield producer


async def test_a_producer_that_could_not_deliver_is_closed_again(
    served: Served, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    async with undelivered(line) as producer:
        await producer.close(timeout_s=0.01)
        await producer.close()
    assert "1 message was not delivered" in caplog.text


async def test_what_a_close_that_was_given_up_does_not_deliver_is_told(
    served: Served, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    async with undelivered(line) as producer:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(producer.close(), 0.01)
    await until(lambda: "1 message was not delivered" in caplog.text)
    assert "the producer failed" not in caplog.text


async def test_who_closes_beside_another_waits_for_what_is_delivered(served: Served) -> None:
    client = AsyncClient(served.target, timeout_s=20)
    await client.create_topic("orders", 1)
    producer = client.producer(linger_ms=60_000)
    sending = await producer.send("orders", b"x", queue_id=0)
    first = asyncio.create_task(client.close())
    await asyncio.sleep(0)
    await client.close()
    assert sending.done()
    assert (await sending).queue_offset == 0
    await first


async def test_a_consumer_that_never_began_says_that_it_is_closed(served: Served) -> None:
    async with AsyncClient(served.target) as client:
        await client.create_topic("orders", 1)
        consumer = await client.consumer({QUEUE: 0})
        waiting = asyncio.create_task(consumer.batch())
        await consumer.close()
        with pytest.raises(ClosedError):
            await waiting
        with pytest.raises(ClosedError):
            await consumer.batch()


async def test_blocking_producers_and_consumers_outlive_their_client(served: Served) -> None:
    def work() -> None:
        client = Client(served.target)
        client.create_topic("orders", 1)
        with client.consumer({QUEUE: 0}) as consumer, client.producer() as producer:
            producer.send("orders", b"x", queue_id=0).result()
            assert consumer.take(1)
            client.close()
            client.close()
            for call in (
                lambda: consumer.seek({QUEUE: 0}),
                lambda: consumer.leave([QUEUE]),
                lambda: list(consumer.to_end()),
                lambda: consumer.take(1),
                lambda: producer.send("orders", b"x", queue_id=0),
            ):
                with pytest.raises(ClosedError):
                    call()

    await asyncio.to_thread(work)


async def test_who_tries_again_hears_of_the_close(served: Served, line: CutLine) -> None:
    """In both faces: from another thread, and from another task."""

    def work() -> None:
        client = Client(line.target, timeout_s=30)
        client.create_topic("orders", 1)
        resting = noted_rest(client._connection)
        outcomes: list[BaseException] = []

        def pull() -> None:
            try:
                client.pull("orders", 0, 0)
            except BaseException as error:  # noqa: BLE001 - it is looked at below
                outcomes.append(error)

        client._thread.call_soon(break_off)
        threads = [threading.Thread(target=pull) for _ in range(4)]
        for thread in threads:
            thread.start()
        resting.wait()
        client.close()
        for thread in threads:
            thread.join()
        assert [type(each) for each in outcomes] == [ClosedError] * len(threads)

    loop = asyncio.get_running_loop()

    def break_off() -> None:
        loop.call_soon_threadsafe(line.stop_accepting)
        loop.call_soon_threadsafe(line.cut)

    await asyncio.to_thread(work)
    line.accept_again()
    far = AsyncClient(line.target, timeout_s=30)
    await far.create_topic("orders", 1)
    resting = noted_rest(far._connection)
    break_off()
    await asyncio.sleep(0)
    pulling = asyncio.create_task(far.pull("orders", 0, 0))
    await until(resting.is_set)
    await far.close()
    with pytest.raises(ClosedError):
        await pulling
