"""Queues in error against a real server: what is told, what is skipped, and what goes on."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

import store.errors
from kvcq_client import (
    AsyncClient,
    ClosedError,
    CorruptRecordError,
    DataLossError,
    Message,
    NotFoundError,
    OffsetOutOfRangeError,
    Queue,
    Start,
)
from kvcq_client.consuming import subscription
from kvcq_client.consuming.subscription import Fetched
from kvcq_client.transport import Backoff
from tests.kvcq_client.consuming.filled import QUEUE, fill
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from store.reads import PullPlan
    from tests.support.cut_line import CutLine
    from tests.support.serving import Served


async def test_an_offset_outside_is_an_error_or_a_new_start(client: AsyncClient) -> None:
    await fill(client, 10)
    async with await client.consumer({QUEUE: 11}) as consumer:
        with pytest.raises(OffsetOutOfRangeError) as caught:
            await asyncio.wait_for(anext(consumer), LIMIT_S)
        assert (caught.value.min_offset, caught.value.max_offset) == (0, 10)
    async with await client.consumer({QUEUE: 11}, when_expired=Start.EARLIEST) as consumer:
        assert (await asyncio.wait_for(anext(consumer), LIMIT_S)).queue_offset == 0


async def test_an_error_that_is_raised_again_has_a_trace_of_its_own(client: AsyncClient) -> None:
    await fill(client, 1)
    consumer = await client.consumer("orders")
    await consumer.take(1, 10)
    await consumer.close()
    lengths = set()
    for _ in range(5):
        with pytest.raises(ClosedError) as raised:
            await consumer.take(1)
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1


async def test_one_queue_in_error_leaves_the_others(client: AsyncClient) -> None:
    await fill(client, 10)
    wrong = Queue("absent", 0)
    async with await client.consumer({wrong: 0, QUEUE: 0}) as consumer:
        bodies: list[bytes] = []
        errors = 0
        while len(bodies) < 10 or not errors:
            try:
                bodies.append((await asyncio.wait_for(anext(consumer), LIMIT_S)).body)
            except NotFoundError:
                errors += 1
        assert errors == 1
        assert consumer._core.subscription.queues == [QUEUE]


async def test_a_topic_that_is_not_there_is_told_at_once(client: AsyncClient) -> None:
    with pytest.raises(NotFoundError):
        await client.consumer("absent")


async def test_a_corrupt_record_ends_reading_and_is_not_skipped(client: AsyncClient) -> None:
    await fill(client, 10)
    async with await client.consumer("orders") as consumer:
        pulled = await client.pull("orders", 0, 0)
        record = bytearray(pulled.messages[0].record)
        record[90] ^= 1
        consumer._core.subscription._put([Fetched(QUEUE, bytes(record), [0], 1)])
        with suppress(CorruptRecordError):
            await consumer.take(100, timeout_s=10)  # those that came before it
        with pytest.raises(CorruptRecordError):
            await anext(consumer)


async def test_damage_is_skipped_where_the_settings_say_so(
    served: Served,
    client: AsyncClient,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    await fill(client, 10)
    await client.put(Message("other", b"sound", 0))
    whole, asked = served.store.reads.plan_pull, []

    def damaged(topic: str, queue_id: int, offset: int, **limits: Any) -> PullPlan:  # noqa: ANN401
        if topic == "orders" and offset <= 4:
            if offset == 4:  # at first it is being rebuilt
                asked.append(offset)
                error = store.errors.DamagedQueueError("orders", 0, 4, "its unit is missing", 7)
                error.next_offset = error.behind if len(asked) > 3 else None
                raise error
            limits["max_messages"] = min(limits["max_messages"], 4 - offset)
        return whole(topic, queue_id, offset, **limits)

    monkeypatch.setattr(subscription, "REBUILD_WAIT_S", 0.001)
    monkeypatch.setattr(served.store.reads, "plan_pull", damaged)
    async with await client.consumer(["orders", Queue("other", 0)], skip_damaged=True) as consumer:
        seen = [(one.topic, one.queue_offset) async for one in consumer.to_end()]
        assert sorted(seen) == [
            *(("orders", at) for at in (0, 1, 2, 3, 7, 8, 9)),
            ("other", 0),
        ]
        assert consumer.positions() == {QUEUE: 10, Queue("other", 0): 1}
    assert "skipped: queue 0 of 'orders' is damaged at offset 4" in caplog.text
    asked.clear()
    async with await client.consumer({QUEUE: 4}) as consumer:
        with pytest.raises(DataLossError) as met:
            await anext(consumer)
        assert (met.value.queue, met.value.next_offset) == (QUEUE, None)
        asked += [4, 4, 4]
        await consumer.seek({QUEUE: 4})
        with pytest.raises(DataLossError) as met:
            await anext(consumer)
        assert (met.value.queue, met.value.next_offset) == (QUEUE, 7)
        await consumer.seek({QUEUE: 7})
        assert (await anext(consumer)).queue_offset == 7


async def test_a_queue_that_is_being_rebuilt_can_be_left_and_moved(
    served: Served, client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    await fill(client, 10)
    whole = served.store.reads.plan_pull
    met = asyncio.Event()

    def damaged(topic: str, queue_id: int, offset: int, **limits: Any) -> PullPlan:  # noqa: ANN401
        if offset == 0:
            met.set()
            raise store.errors.DamagedQueueError(topic, queue_id, 0, "its unit is missing")
        return whole(topic, queue_id, offset, **limits)

    monkeypatch.setattr(served.store.reads, "plan_pull", damaged)
    async with await client.consumer({QUEUE: 0}, skip_damaged=True) as consumer:
        await met.wait()
        await until(lambda: consumer._core.subscription._delayed)
        await consumer.seek({QUEUE: 5})
        assert (await anext(consumer)).queue_offset == 5
        assert not consumer._core.subscription._delayed
        met.clear()
        await consumer.seek({QUEUE: 0})
        await met.wait()
        await until(lambda: consumer._core.subscription._delayed)
        consumer.leave([QUEUE])
        assert consumer._core.subscription.queues == []


async def test_a_server_that_is_away_is_told_and_that_it_is_back(
    client: AsyncClient, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "kvcq_client")
    await fill(client, 1)
    async with AsyncClient(line.target) as far, await far.consumer("orders") as consumer:
        assert (await anext(consumer)).body == b"0"
        assert "away" not in caplog.text
        line.cut()
        await client.put(Message("orders", b"1", 0))
        assert (await anext(consumer)).body == b"1"
    assert f"the server at {line.target} is unavailable, retrying: " in caplog.text
    assert f"the server at {line.target} is back" in caplog.text


async def test_a_queue_that_cannot_be_read_for_a_while_is_asked_for_again_ever_later(
    client: AsyncClient, served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at once: a server that is short of something would be asked without end."""
    await fill(client, 8, queues=2)
    plan_pull = served.store.reads.plan_pull
    refusals = iter(range(4))
    waits: list[float] = []

    def busy(topic: str, queue_id: int, *place: Any, **rest: Any) -> PullPlan:  # noqa: ANN401 - handed on
        if queue_id == 0 and next(refusals, None) is not None:
            raise store.errors.StoreBusyError("it is short of something")
        return plan_pull(topic, queue_id, *place, **rest)

    class Noted(Backoff):
        def next_s(self) -> float:
            waits.append(super().next_s())
            return 0.0

    monkeypatch.setattr(subscription, "Backoff", Noted)
    monkeypatch.setattr(served.store.reads, "plan_pull", busy)
    async with await client.consumer("orders") as consumer:
        found = [message.body for message in await consumer.take(8)]
    assert [body for body in found if int(body) % 2] == [b"1", b"3", b"5", b"7"]
    assert [body for body in found if not int(body) % 2] == [b"0", b"2", b"4", b"6"]
    assert len(waits) == 4
    assert max(waits) > 2 * min(waits)


async def test_a_server_that_rejects_puts_is_read_again_after_a_lost_connection(
    served: Served, client: AsyncClient, line: CutLine, caplog: pytest.LogCaptureFixture
) -> None:
    await fill(client, 1)
    async with AsyncClient(line.target) as far, await far.consumer("orders") as consumer:
        assert len(await consumer.take(1, 30)) == 1
        served.server._stage.fail()
        line.stop_accepting()
        line.cut()
        await until(lambda: "is unavailable, retrying" in caplog.text)
        line.accept_again()
        await client.put(Message("orders", b"after", 0))
        assert [message.body for message in await consumer.take(1, 30)] == [b"after"]
