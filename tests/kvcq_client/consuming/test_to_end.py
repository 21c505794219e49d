"""`to_end` against a real server: where a queue ends, and what is read when it is left."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import store.errors
from kvcq_client import AsyncClient, DataLossError, DeadlineError, Start
from tests.kvcq_client.consuming.filled import QUEUE, damage_behind, fill
from tests.support.until import until

if TYPE_CHECKING:
    from store.reads import PullPlan
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served


@pytest.mark.parametrize("read_before", [0, 4])
async def test_to_end_tells_of_a_queue_that_failed_before_it_began(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch, read_before: int
) -> None:
    await fill(client, 10)
    damage_behind(4, served, monkeypatch)
    async with await client.consumer({QUEUE: read_before}) as consumer:
        await until(lambda: QUEUE not in consumer._core.subscription._offsets)
        to_end = consumer.to_end(10)
        seen = [(await anext(to_end)).queue_offset for _ in range(read_before, 4)]
        with pytest.raises(DataLossError):
            await anext(to_end)
        assert seen == list(range(read_before, 4))
        assert consumer.positions() == {QUEUE: 4}
        assert [message async for message in consumer.to_end(10)] == []


async def test_a_seek_beyond_the_end_ends_to_end(client: AsyncClient) -> None:
    await fill(client, 10)
    async with await client.consumer("orders") as consumer:
        async for message in consumer.to_end(10):
            if message.queue_offset == 3:
                await consumer.seek(Start.LATEST)
        assert consumer.positions() == {QUEUE: 10}


async def test_leaving_to_end_in_the_middle_goes_on_behind_the_last_message(
    client: AsyncClient,
) -> None:
    await fill(client, 10)
    async with await client.consumer("orders") as consumer:
        async for message in consumer.to_end():
            if message.queue_offset == 3:
                break
        assert consumer.positions() == {QUEUE: 4}
        assert [m.queue_offset async for m in consumer.to_end()] == list(range(4, 10))


async def test_a_queue_whose_messages_all_expired_is_at_its_end(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch, served: Served
) -> None:
    await fill(client, 10)

    def expired(*_: object, **__: object) -> PullPlan:
        raise store.errors.OffsetOutOfRangeError("orders", 0, 5, 10, 10)

    pull = served.store.reads.plan_pull
    monkeypatch.setattr(served.store.reads, "plan_pull", expired)
    async with await client.consumer({QUEUE: 5}, when_expired=Start.EARLIEST) as consumer:
        await until(lambda: consumer._core.subscription._offsets[QUEUE] == 10)
        monkeypatch.setattr(served.store.reads, "plan_pull", pull)
        assert [message async for message in consumer.to_end(10)] == []
        assert consumer.positions() == {QUEUE: 10}


@pytest.mark.slow
async def test_to_end_says_when_nothing_comes(client: AsyncClient, line: CutLine) -> None:
    await fill(client, 10)
    async with (
        AsyncClient(line.target) as far,
        await far.consumer("orders", buffer_bytes=1, batch_messages=1) as consumer,
    ):
        ending = consumer.to_end(idle_timeout_s=2.0)
        assert (await anext(ending)).queue_offset == 0
        line.stop_accepting()
        line.cut()
        await consumer.take(1, timeout_s=0.01)  # what was on its way
        with pytest.raises(DeadlineError, match="1 queues are not at their end"):
            await anext(ending)
