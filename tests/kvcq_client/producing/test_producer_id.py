"""A producer's name: what a fixed one means over several runs, and when the name changes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from kvcq_client import AsyncClient, Client, Message, NotPossibleError, ProducerConfig, Queue
from server.errors import NumbersUnknownError
from server.puts.producer_sessions import ProducerSessions
from tests.support.free_port import free_port
from tests.support.serving import serving
from tests.support.until import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


async def _bodies(client: AsyncClient, topic: str = "orders") -> list[bytes]:
    async with await client.consumer({Queue(topic, 0): 0}) as consumer:
        return [message.body async for message in consumer.to_end()]


async def test_each_run_under_one_name_stores_its_messages(tmp_path: Path) -> None:
    """Also the same messages as the run before, and also when the server was away in between."""
    for run in range(3):
        async with serving(tmp_path) as served, AsyncClient(served.target) as client:
            for again in range(2):
                async with client.producer(producer_id="app") as producer:
                    assert producer.next_sequence is None
                    placed = await producer.put(Message("orders", b"started", 0))
                    assert (placed.queue_offset, placed.repeated) == (2 * run + again, False)
                    assert producer.next_sequence == 2 * run + again + 1
    async with serving(tmp_path) as served, AsyncClient(served.target) as client:
        assert await _bodies(client) == [b"started"] * 6


async def test_blocking_runs_under_one_name_store_their_messages(served: Served) -> None:
    def run() -> int:
        with Client(served.target) as client, client.producer(producer_id="app") as producer:
            return producer.send("orders", b"started", queue_id=0).result().queue_offset

    assert [await asyncio.to_thread(run) for _ in range(3)] == [0, 1, 2]


async def test_what_was_stored_under_a_chosen_number_is_said_to_be_repeated(
    client: AsyncClient,
) -> None:
    for repeated in (False, True, True):
        async with client.producer(producer_id="app", first_sequence=0) as producer:
            placed = await producer.put(Message("orders", b"started", 0))
            assert (placed.queue_offset, placed.repeated) == (0, repeated)
    assert await _bodies(client) == [b"started"]


async def test_two_producers_of_one_config_do_not_share_a_name(client: AsyncClient) -> None:
    config = ProducerConfig(linger_ms=0)
    async with client.producer(config) as one, client.producer(config) as other:
        assert one.producer_id != other.producer_id
        await one.put(Message("orders", b"started", 0))
        await other.put(Message("orders", b"started", 0))
    assert await _bodies(client) == [b"started"] * 2


@pytest.mark.parametrize("bodies", [[b"same"] * 50, [b"%d" % at for at in range(50)]])
async def test_two_producers_of_one_name_at_once_lose_nothing(
    client: AsyncClient, bodies: list[bytes]
) -> None:
    settings = {"producer_id": "app", "batch_messages": 1, "linger_ms": 0}
    async with (
        client.producer(**settings) as one,  # type: ignore[arg-type] # as a mapping
        client.producer(**settings) as other,  # type: ignore[arg-type] # as a mapping
    ):
        sendings = []
        for body in bodies:
            sendings.append(await one.send("orders", b"one " + body, queue_id=0))
            sendings.append(await other.send("orders", b"one " + body, queue_id=0))
        await asyncio.gather(one.flush(30), other.flush(30))
        placed = [await sending for sending in sendings]
    assert sorted(one.queue_offset for one in placed) == list(range(100))
    assert sorted(await _bodies(client)) == sorted([b"one " + body for body in bodies] * 2)


async def test_a_new_name_is_none_of_an_earlier_run(client: AsyncClient) -> None:
    """An earlier run may have left its name as well: numbers under the next one must be free."""
    names: set[str] = set()
    for _ in range(3):
        async with client.producer(producer_id="app") as producer:
            producer._core.delivery._new_name()
            names.add(producer.producer_id)
            placed = await producer.put(Message("orders", b"x", 0))
            assert not placed.repeated
    assert len(names) == 3
    assert len(await _bodies(client)) == 3


async def test_where_the_number_cannot_be_told_the_sender_hears_what_to_do(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def unknown(_: ProducerSessions, producer_id: str) -> int:
        raise NumbersUnknownError(producer_id)

    monkeypatch.setattr(ProducerSessions, "next_sequence", unknown)
    async with client.producer(producer_id="app") as producer:
        with pytest.raises(NotPossibleError, match="first_sequence"):
            await producer.put(Message("orders", b"x", 0))
    async with client.producer(producer_id="app", first_sequence=0) as producer:
        await producer.put(Message("orders", b"x", 0))


async def test_the_number_is_asked_for_again_when_the_server_is_back(tmp_path: Path) -> None:
    port = free_port()
    async with (
        serving(tmp_path, port=port) as served,
        AsyncClient(served.target) as client,
        client.producer(producer_id="app") as producer,
    ):
        await producer.put(Message("orders", b"0", 0))
    async with (
        AsyncClient(f"127.0.0.1:{port}", timeout_s=0.2) as client,
        client.producer(producer_id="app", linger_ms=0) as producer,
    ):
        sending = await producer.send("orders", b"1", queue_id=0)
        await until(lambda: producer._core.delivery._last_error)  # it was asked for in vain
        async with serving(tmp_path, port=port):
            assert (await sending).queue_offset == 1
