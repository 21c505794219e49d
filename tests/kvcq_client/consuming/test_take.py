"""`take` against a real server: what it hands out is read, and nothing else is, however it ends."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import AsyncClient, CorruptRecordError, DataLossError, Message, Queue
from kvcq_client.consuming.subscription import Fetched
from tests.kvcq_client.consuming.filled import QUEUE, damage_behind, fill
from tests.support.until import until

if TYPE_CHECKING:
    from kvcq_client import AsyncConsumer
    from tests.support.serving import Served


async def test_a_take_that_is_cancelled_has_read_nothing(client: AsyncClient) -> None:
    await fill(client, 30, queues=2)
    async with await client.consumer("orders") as consumer:
        first = await anext(consumer)
        before = consumer.positions()
        task = await _waiting_take(consumer, 29)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert consumer.positions() == before
        rest = await consumer.take(100, 0.1)
        seen = sorted((one.queue_id, one.queue_offset) for one in [first, *rest])
        assert seen == [(queue_id, at) for queue_id in (0, 1) for at in range(15)]


async def _waiting_take(consumer: AsyncConsumer, at_hand: int) -> asyncio.Task[Any]:
    """A take of 100 that has so many, and waits for more."""
    task = asyncio.create_task(consumer.take(100))
    await until(lambda: consumer._core.at_hand() == at_hand)
    return task


async def test_what_a_waiting_take_has_is_not_read_yet(client: AsyncClient) -> None:
    await fill(client, 30, queues=2)
    async with await client.consumer("orders", reader_group="g") as consumer:
        task = await _waiting_take(consumer, 30)
        await consumer.commit()
        assert {one.offset for one in await client.group_offsets("g")} == {0}
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await consumer.take(30)) == 30
        assert consumer.positions() == {QUEUE: 15, Queue("orders", 1): 15}


async def test_a_waiting_take_forgets_queues_that_are_left_or_moved(client: AsyncClient) -> None:
    await fill(client, 30, queues=2)
    async with await client.consumer("orders") as consumer:
        task = await _waiting_take(consumer, 30)
        await consumer.seek({QUEUE: 10})
        consumer.leave([Queue("orders", 1)])
        await until(lambda: consumer._core.at_hand() == 5)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert consumer.positions() == {QUEUE: 10}
        assert [m.queue_offset for m in await consumer.take(100, 0.1)] == list(range(10, 15))
        assert consumer.positions() == {QUEUE: 15}


@pytest.mark.parametrize("way", ["to_end", "batch", "next", "take"])
async def test_after_a_take_that_was_cancelled_any_way_reads_on(
    client: AsyncClient, way: str
) -> None:
    await fill(client, 50, tag="a")
    async with client.producer() as producer:  # nothing of these is left by the filter
        await producer.send_many([Message("orders", b"b", 0, "b") for _ in range(40)])
    async with await client.consumer("orders", tag_filter="a") as consumer:
        task = await _waiting_take(consumer, 50)
        await until(lambda: not consumer._core.subscription._passed)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        if way == "to_end":
            seen = [message async for message in consumer.to_end(10)]
        elif way == "next":
            seen = [await anext(consumer) for _ in range(50)]
        elif way == "take":
            seen = await consumer.take(50)
        else:
            seen = []
            while batch := await consumer.batch(0.1):
                seen += batch
        assert [message.queue_offset for message in seen] == list(range(50))
        assert await consumer.batch(0.05) == []
        assert consumer.positions() == {QUEUE: 90}


async def test_a_take_gives_out_what_comes_before_the_error_of_a_queue(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, 10)
    damage_behind(4, served, monkeypatch)
    async with await client.consumer("orders") as consumer:
        await until(lambda: QUEUE not in consumer._core.subscription._offsets)
        assert [m.queue_offset for m in await consumer.take(10, 10)] == [0, 1, 2, 3]
        assert consumer.positions() == {QUEUE: 4}
        with pytest.raises(DataLossError):
            await consumer.take(10, 10)


async def test_a_take_gives_out_what_comes_before_a_corrupt_record(client: AsyncClient) -> None:
    await fill(client, 10)
    async with await client.consumer("orders") as consumer:
        core = consumer._core
        await until(lambda: bool(core.subscription._buffer))
        core.subscription._put([Fetched(QUEUE, b"no record", [10], 11)])
        assert len(await consumer.take(100, 10)) == 10
        assert consumer.positions() == {QUEUE: 10}
        for _ in range(2):
            with pytest.raises(CorruptRecordError):
                await consumer.take(100, 10)
        await consumer.seek({QUEUE: 5})  # who has seen it may go elsewhere
        assert [m.queue_offset for m in await consumer.take(5, 10)] == list(range(5, 10))


async def test_what_a_filter_leaves_out_takes_no_room_in_a_waiting_take(
    client: AsyncClient,
) -> None:
    await fill(client, 50, queues=2, tag="a")
    async with (
        client.producer() as producer,
        await client.consumer("orders", tag_filter="a") as consumer,
    ):
        core = consumer._core
        task = await _waiting_take(consumer, 50)
        batches = len(core._ahead)
        for _ in range(5):
            left_out = [Message("orders", b"b", at % 2, "b") for at in range(20)]
            end = 1 + max(one.queue_offset for one in await (await producer.send_many(left_out)))
            await until(lambda end=end: set(core.subscription._offsets.values()) == {end})  # type: ignore[misc]
            await until(lambda: not core.subscription._passed)
        assert len(core._ahead) == batches
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert len(await consumer.take(50)) == 50
        assert await consumer.batch(0.05) == []
        assert consumer.positions() == {QUEUE: 75, Queue("orders", 1): 75}


async def test_a_reader_that_never_waits_lets_the_event_loop_run(client: AsyncClient) -> None:
    await fill(client, 2, queues=1)
    async with await client.consumer("orders") as consumer:
        while not await consumer.take(1, timeout_s=0):
            pass
    async with await client.consumer("orders") as consumer:
        while not await consumer.batch(timeout_s=0):
            pass
