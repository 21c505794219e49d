"""A topic, or light queue, that is deleted under its readers, and made again."""

from __future__ import annotations

import asyncio
import pickle
from contextlib import suppress
from typing import TYPE_CHECKING, Any

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
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from tests.support.serving import Served

NAMES = pytest.mark.parametrize("name", ["orders", "%LMQ%room"])
ROOM, OTHER = Queue("%LMQ%room"), Queue("%LMQ%other")


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
        bodies: list[bytes] = []
        if name == "orders":
            with pytest.raises((NotFoundError, RecreatedError), match=name):
                await consumer.take(100, 10)
        while len(bodies) < 8:
            with suppress(RecreatedError):  # of the light queue, if it came back before the notice
                bodies += [one.body for one in await consumer.take(8 - len(bodies), 10)]
        assert bodies == [b"new%d" % at for at in range(8)], "the other queue goes on"
        assert Queue(name) not in consumer._core.subscription.queues


async def test_a_waiting_consumer_hears_at_once_that_its_topic_is_gone(
    served: Served, client: AsyncClient
) -> None:
    await put(client, "orders", "old", 8)
    async with await client.consumer(["orders", OTHER]) as consumer:
        await consumer.take(16)
        await until_idle(served, 2)
        waiting = asyncio.create_task(anext(consumer))
        await client.delete_topic("orders")
        with pytest.raises(NotFoundError, match="orders"):
            await asyncio.wait_for(waiting, LIMIT_S)
        assert served.serving.reads.growth.watched_queues == 1


async def test_a_light_queue_that_is_deleted_ends_and_the_others_go_on(
    served: Served, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, ROOM.topic, "old", 8)
    async with await client.consumer([ROOM.topic, OTHER], reader_group="g") as consumer:
        await consumer.take(16)
        await consumer.commit()
        await until_idle(served, 2)
        waiting = asyncio.create_task(anext(consumer))
        await client.delete_topic(ROOM.topic)
        await until(lambda: "'%LMQ%room' was deleted; no longer following it" in caplog.text)
        await client.put("rooms", b"more", light_queues=[OTHER.topic])
        assert (await asyncio.wait_for(waiting, LIMIT_S)).body == b"more"
        assert consumer.positions() == {OTHER: 9}
        await consumer.commit()
        assert [one.topic for one in await client.group_offsets("g")] == [OTHER.topic]
        assert caplog.text.count("was deleted") == 1
        await consumer.follow([ROOM.topic])
        await client.put("rooms", b"again", light_queues=[ROOM.topic])
        assert (await asyncio.wait_for(anext(consumer), LIMIT_S)).body == b"again"
        assert consumer.positions() == {OTHER: 9, ROOM: 1}


async def test_its_messages_that_were_fetched_are_read_and_no_longer_committed(
    served: Served, client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, ROOM.topic, "old", 8)
    async with await client.consumer([ROOM.topic, OTHER], reader_group="g") as consumer:
        await anext(consumer)
        await until(lambda: len(consumer._core.subscription._buffer) == 1)
        await client.delete_topic(ROOM.topic)
        await until(lambda: "was deleted" in caplog.text)
        assert len(await consumer.take(100, 0.2)) == 15
        await consumer.commit()
        assert consumer.positions() == {OTHER: 8}


async def test_the_only_light_queue_that_is_deleted_is_an_error(client: AsyncClient) -> None:
    await put(client, ROOM.topic, "old", 1)
    async with await client.consumer([ROOM.topic]) as consumer:
        await consumer.take(1)
        await client.delete_topic(ROOM.topic)
        with pytest.raises(NotFoundError, match="room"):
            await consumer.take(1, 10)


async def test_a_deleted_light_queue_is_followed_anew_where_the_settings_say_so(
    client: AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    await put(client, ROOM.topic, "old", 8)
    async with await client.consumer(ROOM, when_expired="earliest") as consumer:
        await consumer.take(8)
        await client.delete_topic(ROOM.topic)
        await until(lambda: "was deleted; following it anew" in caplog.text)
        await put(client, ROOM.topic, "new", 3)
        assert [one.body for one in await consumer.take(3, 10)] == [b"new0", b"new1", b"new2"]


async def test_light_queues_without_messages_are_left_out_of_a_commit(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = [f"%LMQ%silent-{at}" for at in range(5)]
    await put(client, ROOM.topic, "old", 3)
    async with await client.consumer([ROOM.topic, *silent], reader_group="g") as consumer:
        await consumer.commit()
        await consumer.take(3)
        asked: list[object] = []
        plain = client.commit_offsets

        async def counted(*args: Any, **named: Any) -> None:  # noqa: ANN401 - as the call has them
            asked.append(args)
            await plain(*args, **named)

        monkeypatch.setattr(client, "commit_offsets", counted)
        await consumer.commit()
        assert len(asked) == 1, "what is known to be empty is not asked for again"
        assert [one.offset for one in await client.group_offsets("g")] == [3]
        with pytest.raises(NotFoundError):
            await consumer.commit({Queue(silent[0]): 0})  # the caller's own positions
        await client.put("rooms", b"first", light_queues=[silent[2]])
        await consumer.take(1, 10)
        await consumer.commit()
        found = {one.topic: one.offset for one in await client.group_offsets("g")}
        assert found == {ROOM.topic: 3, silent[2]: 1}


@NAMES
async def test_a_parked_pull_hears_at_once_that_its_queue_is_gone(
    served: Served, client: AsyncClient, name: str
) -> None:
    await put(client, name, "old", 8)
    waiting = asyncio.create_task(client.pull(name, 0, 8, wait_s=60))
    await until_idle(served, 1)
    await client.delete_topic(name)
    with pytest.raises(NotFoundError, match=name):
        await asyncio.wait_for(waiting, LIMIT_S)


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
        await asyncio.wait_for(waiting, LIMIT_S)


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
    assert [one.body for one in (await asyncio.wait_for(waiting, LIMIT_S)).messages] == [b"new0"]


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
