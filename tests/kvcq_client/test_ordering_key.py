"""An ordering key: the same key, the same queue, by every way that a message is put."""

from __future__ import annotations

import asyncio
from itertools import cycle
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client import AsyncClient, Client, InvalidArgumentError, Message, Placed
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.puts.queue_chooser import queue_of_key

if TYPE_CHECKING:
    from tests.support.serving import Served

KEYS = [f"user-{number}" for number in range(5)]
QUEUES = {key: queue_of_key(key, 8) for key in KEYS}
WAYS = ("put", "put at once", "large put", "send", "send_many", "with properties", "put_numbered")


async def _place(client: AsyncClient, way: str, messages: list[Message]) -> list[Placed]:
    if way == "put at once":
        return await asyncio.gather(*map(client.put, messages))
    if way in ("put", "large put"):
        return [await client.put(one) for one in messages]
    if way == "put_numbered":
        await client.put_numbered(messages, producer_id="p", sequence=0)
        stored = await client.stored_batch("p", 0)
        assert stored is not None
        return [
            Placed(one.queue_id, one.queue_offset, one.physical_offset, one.message_id, 0)
            for one in stored.messages
        ]
    async with client.producer() as producer:
        if way == "send":
            sendings = [
                await producer.send(one.topic, one.body, ordering_key=one.ordering_key)
                for one in messages
            ]
            return [await sending for sending in sendings]
        return await (await producer.send_many(messages))


@pytest.mark.parametrize("way", WAYS)
async def test_messages_with_one_key_stand_in_one_queue_in_order(
    client: AsyncClient, way: str
) -> None:
    await client.create_topic("orders", 8)
    tail = bytes(100 << 10) if way == "large put" else b""
    properties = {"a": "b"} if way == "with properties" else None
    messages = [
        Message("orders", b"%s %d" % (key.encode(), at) + tail, None, properties=properties)
        if key == "none"
        else Message("orders", b"%s %d" % (key.encode(), at) + tail, ordering_key=key)
        for at, key in zip(range(60), cycle([*KEYS, "none"]), strict=False)
    ]
    placed = await _place(client, way, messages)
    for message, place in zip(messages, placed, strict=True):
        if message.ordering_key:
            assert place.queue_id == QUEUES[message.ordering_key]
    read: dict[str, list[bytes]] = {}
    async with await client.consumer("orders") as consumer:
        async for found in consumer.to_end():
            assert found.properties.get("__SHARDINGKEY", "") == found.ordering_key
            read.setdefault(found.ordering_key, []).append(found.body)
    for key in KEYS:
        assert read[key] == [one.body for one in messages if one.ordering_key == key]


async def test_blocking_senders_have_the_same(served: Served, client: AsyncClient) -> None:
    await client.create_topic("orders", 8)

    def send() -> list[int]:
        with Client(served.target) as blocking, blocking.producer() as producer:
            sendings = [producer.send("orders", b"", ordering_key=key) for key in KEYS]
            return [sending.result().queue_id for sending in sendings]

    assert await asyncio.to_thread(send) == list(QUEUES.values())


async def test_a_topic_that_the_first_put_creates_keeps_the_key_where_it_is(
    client: AsyncClient,
) -> None:
    places = [await client.put(Message("new", b"", ordering_key="alice")) for _ in range(4)]
    assert {place.queue_id for place in places} == {queue_of_key("alice", 4)}


async def test_a_message_that_is_copied_stays_with_its_key(client: AsyncClient) -> None:
    """By its properties, as it was read."""
    await client.create_topics({"orders": 8, "copies": 8})
    place = await client.put(Message("orders", b"", ordering_key="alice"))
    read = (await client.pull("orders", place.queue_id, place.queue_offset)).messages[0]
    copies = [
        await client.put(Message("copies", read.body, properties=read.properties)) for _ in range(3)
    ]
    assert {copy.queue_id for copy in copies} == {queue_of_key("alice", 8)}
    moved = await client.put(Message("copies", read.body, 5, properties=read.properties))
    assert moved.queue_id == 5


async def test_a_key_beside_a_queue_is_refused(client: AsyncClient, served: Served) -> None:
    both = Message("orders", b"", 1, ordering_key="alice")
    with pytest.raises(ValueError, match="ordering_key: cannot be combined"):
        await client.put(both)
    async with client.producer() as producer:
        with pytest.raises(ValueError, match="ordering_key: cannot be combined"):
            await producer.send("orders", b"", queue_id=1, ordering_key="alice")
        with pytest.raises(ValueError, match="ordering_key: cannot be combined"):
            await producer.send_many([both])
    # By a client of another make.
    message = pb.Message(topic="orders", queue_id=1, ordering_key="alice")
    columns = pb.MessageColumns(
        topics=["orders"], bodies=[b"", b""], queue_ids=[-1, 1], ordering_keys=["a", "b"]
    )
    for request, field in (
        (pb.PutBatchRequest(messages=[message]), r"messages\[0\].ordering_key"),
        (pb.PutBatchRequest(columns=columns), r"messages\[1\].ordering_key"),
    ):
        with pytest.raises(grpc.aio.AioRpcError, match=field) as refused:
            await served.messages.PutBatch(request)
        assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    with pytest.raises(grpc.aio.AioRpcError, match=r"message\.ordering_key"):
        await served.messages.Put(pb.PutRequest(message=message))
    with pytest.raises(InvalidArgumentError, match="properties"):
        await client.put(Message("orders", b"", properties={"__SHARDINGKEY": "a\x02"}))
