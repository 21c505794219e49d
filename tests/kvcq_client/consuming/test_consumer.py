"""The consumer against a real server: order, positions, resuming, seeking, committing."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, ClosedError, Message, Queue, Start
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.kvcq_client.consuming.filled import QUEUE, fill
from tests.support.free_port import free_port
from tests.support.serving import serving
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.cut_line import CutLine


async def test_iteration_follows_many_queues_each_in_order(client: AsyncClient) -> None:
    await fill(client, 4000, queues=4)
    seen: dict[int, list[int]] = {}
    async with await client.consumer("orders") as consumer:
        async for message in consumer:
            seen.setdefault(message.queue_id, []).append(message.queue_offset)
            if sum(map(len, seen.values())) == 4000:
                break
        assert consumer.positions() == {Queue("orders", at): 1000 for at in range(4)}
    assert seen == {queue_id: list(range(1000)) for queue_id in range(4)}


async def test_new_messages_come_to_a_waiting_reader(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with await client.consumer("orders") as consumer:
        waiting = asyncio.create_task(anext(consumer))
        await client.put(Message("orders", b"new", 0))
        assert (await asyncio.wait_for(waiting, LIMIT_S)).body == b"new"
        assert await consumer.batch(timeout_s=0.01) == []


async def test_commit_and_go_on_from_there(client: AsyncClient) -> None:
    await fill(client, 100)
    async with await client.consumer("orders", reader_group="g") as consumer:
        assert len(await consumer.take(30)) == 30
        await consumer.commit()
    [committed] = await client.group_offsets("g")
    assert (committed.offset, committed.lag) == (30, 70)
    async with await client.consumer("orders", reader_group="g") as consumer:
        assert (await anext(consumer)).queue_offset == 30


async def test_commit_needs_a_group(client: AsyncClient) -> None:
    await fill(client, 1)
    with pytest.raises(ValueError, match="needs a reader_group"):
        await client.consumer("orders", start=Start.COMMITTED)
    async with await client.consumer("orders") as consumer:
        with pytest.raises(ValueError, match="without reader_group"):
            await consumer.commit()


async def test_start_latest_skips_what_was_there(client: AsyncClient) -> None:
    await fill(client, 10)
    async with await client.consumer("orders", start=Start.LATEST) as consumer:
        await client.put(Message("orders", b"new", 0))
        assert (await asyncio.wait_for(anext(consumer), LIMIT_S)).queue_offset == 10


async def test_seek_inside_a_batch_drops_what_was_fetched(client: AsyncClient) -> None:
    await fill(client, 3000)
    async with await client.consumer("orders") as consumer:
        assert [m.queue_offset for m in await consumer.take(5)] == [0, 1, 2, 3, 4]
        await consumer.seek({QUEUE: 2000})
        assert [m.queue_offset for m in await consumer.take(1000)] == list(range(2000, 3000))
        await consumer.seek(Start.EARLIEST)
        assert [m.queue_offset for m in await consumer.take(3000)] == list(range(3000))


async def test_leave_and_follow_again(client: AsyncClient) -> None:
    await fill(client, 200, queues=2)
    one = Queue("orders", 1)
    async with await client.consumer("orders") as consumer:
        consumer.leave([QUEUE])
        rest = await consumer.take(100)
        assert {message.queue_id for message in rest} == {1}
        await consumer.follow({QUEUE: 90})
        assert [m.queue_offset for m in await consumer.take(10)] == list(range(90, 100))
        assert consumer.positions() == {QUEUE: 100, one: 100}


async def test_bytes_that_come_of_a_queue_that_was_left_are_granted_again(
    client: AsyncClient,
) -> None:
    """Else the server has less and less to send on, and in the end stops."""
    await fill(client, 100)
    async with await client.consumer("orders", buffer_bytes=1000) as consumer:
        subscription = consumer._core.subscription
        await consumer.take(10)
        late = pb.SubscribeResponse()  # was on its way when the queue was left
        late.queues.add(topic="orders", queue_id=1, batch={"records": bytes(1000)})
        before = subscription._taken
        subscription._received(late)
        assert subscription._taken == before + 1000
        grants = [request.credit_bytes for request in subscription._requests()]
        assert sum(grants) == before + 1000


async def test_tag_filter_moves_positions_over_what_it_drops(client: AsyncClient) -> None:
    await fill(client, 50, tag="a")
    async with client.producer() as producer:
        await producer.send("orders", b"b", queue_id=0, tag="b")
    async with await client.consumer("orders", tag_filter="b") as consumer:
        assert [message.body async for message in consumer.to_end()] == [b"b"]
        assert consumer.positions() == {QUEUE: 51}


@pytest.mark.parametrize("answer_bytes", [0, 5_000, 60_000])
async def test_lost_connections_lose_and_repeat_nothing(
    client: AsyncClient, line: CutLine, answer_bytes: int
) -> None:
    await fill(client, 5000)
    async with (
        AsyncClient(line.target) as far,
        await far.consumer("orders", batch_messages=100, buffer_bytes=20_000) as consumer,
    ):
        offsets = []
        async for message in consumer.to_end():
            offsets.append(message.queue_offset)
            if len(offsets) in (100, 2500):
                line.cut_after_answer_bytes = answer_bytes
    assert line.cuts >= 1
    assert offsets == list(range(5000))


async def test_a_restarted_server_is_found_again(tmp_path: Path) -> None:
    port = free_port()
    async with serving(tmp_path, port=port) as first:
        client = AsyncClient(first.target)
        await fill(client, 10)
        consumer = await client.consumer("orders")
        assert len(await consumer.take(10)) == 10
    async with serving(tmp_path, port=port):
        await client.put(Message("orders", b"after", 0))
        assert (await asyncio.wait_for(anext(consumer), LIMIT_S)).queue_offset == 10
        await client.close()


async def test_the_server_sends_no_more_than_was_granted(client: AsyncClient) -> None:
    await fill(client, 20_000)
    async with await client.consumer(
        "orders", buffer_bytes=100_000, batch_messages=100
    ) as consumer:
        first = await anext(consumer)
        largest = 0
        async for message in consumer.to_end():
            largest = max(largest, consumer._core.subscription._buffered)
            assert message.queue_offset > first.queue_offset
        # The last response may go over by its own size.
        assert 0 < largest <= 100_000 + 100 * 150


async def test_arguments_that_cannot_be_are_refused_and_change_nothing(
    client: AsyncClient,
) -> None:
    await fill(client, 10)
    async with await client.consumer("orders") as consumer:
        with pytest.raises(ValueError, match=r"^to: offset -1 of orders/0 is below 0$"):
            await consumer.seek({QUEUE: -1})
        with pytest.raises(ValueError, match=r"^queues: offset -1 of orders/0 is below 0$"):
            await client.consumer({QUEUE: -1})
        with pytest.raises(ValueError, match=r"^count: -1 is below 0$"):
            await consumer.take(-1)
        with pytest.raises(
            TypeError, match=r"^queues: expected a sequence of names and Queues, not Queue$"
        ):
            consumer.leave(QUEUE)  # type: ignore[arg-type]
        assert len(await consumer.take(10, 10)) == 10
        with pytest.raises(TypeError, match=r"^timeout_s: expected a number, not str$"):
            await consumer.batch("1")  # type: ignore[arg-type]


async def test_messages_left_out_are_passed_in_bounded_memory(client: AsyncClient) -> None:
    """A reader that is busy elsewhere, and a filter that matches next to nothing."""
    await client.create_topic("orders", 1)
    async with await client.consumer({QUEUE: 0}, tag_filter="wanted") as consumer:
        subscription = consumer._core.subscription
        for number in range(20):
            await client.put(Message("orders", b"%d" % number, 0, "other"))
            await until(lambda: subscription._offsets[QUEUE] == number + 1)  # noqa: B023 - at once
            assert len(subscription._buffer) + len(subscription._passed) == 1
        assert await consumer.batch(0) == []
        assert consumer.positions() == {QUEUE: 20}
        await client.put(Message("orders", b"at last", 0, "wanted"))
        assert (await asyncio.wait_for(anext(consumer), LIMIT_S)).body == b"at last"


async def test_a_reader_that_stopped_waiting_leaves_nothing_behind(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    async with await client.consumer({QUEUE: 0}) as consumer:
        for _ in range(3):
            assert await consumer.batch(0.01) == []
        woken: list[int] = []
        subscription = consumer._core.subscription
        subscription.when_fetched(lambda: woken.append(1))
        subscription.when_fetched(lambda: woken.append(2))
        await client.put(Message("orders", b"0", 0))
        await until(lambda: woken)
        assert woken == [2]


async def test_closing_wakes_the_reader(client: AsyncClient) -> None:
    await client.create_topic("orders", 1)
    consumer = await client.consumer("orders")
    waiting = asyncio.create_task(anext(consumer))
    await asyncio.sleep(0)
    await consumer.close()
    with pytest.raises(ClosedError):
        await asyncio.wait_for(waiting, LIMIT_S)
    await consumer.close()
