"""A topic, or light queue, that is deleted under its readers, and made again."""

from __future__ import annotations

import asyncio
import pickle
from typing import TYPE_CHECKING

import pytest

from kvcq_client import (
    AsyncClient,
    Message,
    NotFoundError,
    OffsetOutOfRangeError,
    Queue,
    RecreatedError,
    Start,
)
from store import message
from tests.support.until import until

if TYPE_CHECKING:
    from tests.support.serving import Served

NAMES = pytest.mark.parametrize("name", ["orders", "%LMQ%room"])
OTHER = Queue("%LMQ%other")


async def put(client: AsyncClient, name: str, word: str, count: int) -> None:
    """So many messages in the queue, and in another one."""
    light = (OTHER.topic,) if name == "orders" else (name, OTHER.topic)
    if name == "orders":
        await client.create_topic(name, 1)
    for at in range(count):
        topic = name if name == "orders" else "rooms"
        await client.put(Message(topic, f"{word}{at}".encode(), 0, light_queues=light))


async def recreate(client: AsyncClient, name: str) -> None:
    await client.delete_topic(name)
    await put(client, name, "new", 8)


async def until_idle(served: Served, queues: int) -> None:
    """So many queues are watched, and all were read to their ends."""
    await until(lambda: served.serving.reads.growth.watched_queues == queues)
    for _ in range(20):
        await asyncio.sleep(0)


@NAMES
async def test_a_position_is_none_of_the_queue_that_was_made_again(
    client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 8)
    async with await client.consumer(name) as consumer:
        await consumer.take(5)
        read = consumer.positions()
        await recreate(client, name)
        await consumer.seek(read)
        with pytest.raises(OffsetOutOfRangeError, match=name) as refused:
            await consumer.take(8, 10)
        assert type(refused.value) is RecreatedError
        assert (refused.value.min_offset, refused.value.max_offset) == (0, 8)
    with pytest.raises(RecreatedError):
        await client.pull(name, 0, read[Queue(name)])
    async with await client.consumer(read, when_expired=Start.EARLIEST) as consumer:
        assert [one.body for one in await consumer.take(8)] == [b"new%d" % at for at in range(8)]
        assert [one.body for one in await consumer.take(1, 0)] == []


@NAMES
async def test_a_consumer_reads_on_in_no_queue_that_took_the_place_of_its_own(
    client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 8)
    async with await client.consumer([name, OTHER]) as consumer:
        await consumer.take(16)
        await recreate(client, name)
        with pytest.raises((NotFoundError, RecreatedError), match=name):
            await consumer.take(100, 10)
        others = [one.body for one in await consumer.take(8, 10)]
        assert others == [b"new%d" % at for at in range(8)], "the other queue goes on"


@NAMES
async def test_a_waiting_consumer_hears_at_once_that_its_queue_is_gone(
    served: Served, client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 8)
    async with await client.consumer([name, OTHER]) as consumer:
        await consumer.take(16)
        await until_idle(served, 2)
        waiting = asyncio.create_task(anext(consumer))
        await client.delete_topic(name)
        with pytest.raises(NotFoundError, match=name):
            await asyncio.wait_for(waiting, 10)
        assert served.serving.reads.growth.watched_queues == 1


@NAMES
async def test_a_parked_pull_hears_at_once_that_its_queue_is_gone(
    served: Served, client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 8)
    waiting = asyncio.create_task(client.pull(name, 0, 8, wait_s=60))
    await until_idle(served, 1)
    await client.delete_topic(name)
    with pytest.raises(NotFoundError, match=name):
        await asyncio.wait_for(waiting, 10)


async def test_a_parked_pull_is_not_answered_by_a_queue_that_was_made_again(
    served: Served, client: AsyncClient
) -> None:
    await put(client, "orders", "old", 5)
    waiting = asyncio.create_task(client.pull("orders", 0, 5, wait_s=60))
    await until_idle(served, 1)
    store = served.store  # the loop of the server stands still meanwhile
    store.delete_topic("orders")
    store.create_topics([("orders", 1)])
    store.put([message.Message("orders", b"new", 0) for _ in range(8)])
    with pytest.raises(RecreatedError):
        await asyncio.wait_for(waiting, 10)


async def test_who_waits_for_a_light_queue_to_begin_waits_on(
    served: Served, client: AsyncClient
) -> None:
    name = "%LMQ%room"
    await put(client, name, "old", 1)
    await client.delete_topic(name)
    waiting = asyncio.create_task(client.pull(name, 0, 0, wait_s=60))
    await until_idle(served, 1)
    with pytest.raises(NotFoundError):
        await client.delete_topic(name)
    await put(client, name, "new", 1)
    assert [one.body for one in (await asyncio.wait_for(waiting, 10)).messages] == [b"new0"]


@NAMES
async def test_what_was_read_before_is_not_committed_after(client: AsyncClient, name: str) -> None:
    await put(client, name, "old", 8)
    async with await client.consumer(name, reader_group="g") as consumer:
        for _ in range(5):
            await anext(consumer)  # in the middle of a batch
        await recreate(client, name)
        with pytest.raises(RecreatedError, match=name):
            await consumer.commit()
        assert [one.offset for one in await client.group_offsets("g")] == []
        await client.commit_offsets("g", {Queue(name): 5})
    [found] = await client.group_offsets("g", [Queue(name)])
    assert found.offset == 5, "a number that no answer gave is taken as it is"
    await recreate(client, name)
    with pytest.raises(RecreatedError):
        await client.commit_offsets("g", {Queue(name): found.offset})


@NAMES
async def test_ends_that_were_looked_up_are_none_of_a_later_queue(
    client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 5)
    end = (await client.offsets([Queue(name)]))[Queue(name)].max_offset
    assert (await client.pull(name, 0, end)).messages == []
    assert pickle.loads(pickle.dumps(end)).given_at == end.given_at  # type: ignore[attr-defined]
    await recreate(client, name)
    with pytest.raises(RecreatedError):
        await client.pull(name, 0, end)
