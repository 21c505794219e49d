"""server/services/timers.py over real gRPC, and the client's calls: put, recall, list."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

from kvcq_client import (
    DELAY_LEVELS,
    AsyncClient,
    InvalidArgumentError,
    Message,
    NotFoundError,
    RecallOutcome,
)
from kvcq_client.pb.v1 import kvcq_pb2
from kvcq_client.pb.v1 import timers_pb2 as pb
from store.format import DELAY_LEVELS_MS
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable

    from tests.support.serving import Served

FAR = timedelta(days=30)


@pytest_asyncio.fixture
async def client(served: Served) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(served.target) as client:
        yield client


async def refused_field(call: Awaitable[object]) -> str:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await call
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    info: Any = error_info(refused.value)
    field: str = info.metadata["field"]
    return field


async def bodies(client: AsyncClient, topic: str, wait_s: float = 0) -> list[bytes]:
    try:
        pulled = await client.pull(topic, 0, 0, wait_s=wait_s)
    except NotFoundError:
        return []
    return [message.body for message in pulled.messages]


async def test_a_delayed_message_is_read_at_its_time_and_not_before(client: AsyncClient) -> None:
    scheduled = await client.put_delayed(
        "orders", b"soon", deliver_at=timedelta(seconds=0.3), queue_id=0, keys=("k",)
    )
    assert await bodies(client, "orders") == []
    (message,) = (await client.pull("orders", 0, 0, wait_s=20)).messages
    assert message.body == b"soon"
    assert message.keys == ("k",)
    assert message.store_time_ms >= scheduled.deliver_at_ms
    assert await client.delayed_pending() == 0


async def test_what_is_over_is_now(client: AsyncClient) -> None:
    for when in (datetime(2001, 1, 1, tzinfo=UTC), timedelta(seconds=-5)):
        await client.put_delayed("orders", b"x", queue_id=0, deliver_at=when)
    first = await client.pull("orders", 0, 0, wait_s=20)
    second = await client.pull("orders", 0, 1, wait_s=20)
    assert len(first.messages) + len(second.messages) >= 2


async def test_a_recalled_message_is_not_delivered(client: AsyncClient) -> None:
    messages = [Message("orders", b"%d" % at, 0) for at in range(3)]
    first, second, third = await client.put_delayed_many(messages, [FAR] * 3)
    outcomes = await client.recall("orders", [first.handle, third.handle, first.handle])
    assert outcomes == [
        RecallOutcome.RECALLED,
        RecallOutcome.RECALLED,
        RecallOutcome.NOT_WAITING,
    ]
    (left,) = await client.delayed("orders")
    assert (left.handle, left.body_bytes, left.topic) == (second.handle, 1, "orders")
    assert await client.delayed_pending() == 1
    with pytest.raises(InvalidArgumentError, match="not the handle of a delayed message"):
        await client.recall("others", second.handle)


async def test_several_messages_may_have_one_time(client: AsyncClient) -> None:
    messages = [Message("orders", b"x", 0), Message("orders", b"y", 0)]
    for when in (timedelta(days=1), datetime.now(UTC) + timedelta(days=1)):
        first, second = await client.put_delayed_many(messages, when)
        assert first.deliver_at_ms == second.deliver_at_ms
        assert first.handle != second.handle
    with pytest.raises(TypeError, match="deliver_at: expected a datetime or a timedelta or a seq"):
        await client.put_delayed_many(messages, 5)  # type: ignore[arg-type]


async def test_all_pages_are_listed_the_next_one_first(client: AsyncClient) -> None:
    times = [FAR - timedelta(hours=at) for at in range(30)]
    messages = [Message("orders", b"x", 0, tag=f"{at}") for at in range(30)]
    await client.put_delayed_many(messages, times)
    found = await client.delayed(max_messages=7)
    assert [one.tag for one in found] == [f"{at}" for at in reversed(range(23, 30))]
    assert len(await client.delayed("orders")) == 30
    assert await client.delayed("others") == []


async def test_each_wrong_field_is_named_and_nothing_is_written(served: Served) -> None:
    message = kvcq_pb2.Message(topic="orders", body=b"x")
    before = served.store.log.appended_offset
    cases = [
        ({}, "messages[0].deliver_at_ms"),
        ({"deliver_at_ms": -1}, "messages[0].deliver_at_ms"),
        ({"delay_ms": -1}, "messages[0].delay_ms"),
        ({"delay_ms": (1 << 63) - 1}, "messages[0].delay_ms"),
        ({"delay_ms": 41 * 24 * 3_600_000}, "messages[0].delay_ms"),
        ({"delay_level": 0}, "messages[0].delay_level"),
        ({"delay_level": 19}, "messages[0].delay_level"),
    ]
    for when, field in cases:
        request = pb.PutDelayedRequest(messages=[pb.DelayedMessage(message=message, **when)])
        assert await refused_field(served.timers.PutDelayed(request)) == field
    assert await refused_field(served.timers.PutDelayed(pb.PutDelayedRequest())) == "messages"
    many = [pb.DelayedMessage(message=message, delay_ms=1)] * 1025
    request = pb.PutDelayedRequest(messages=many)
    assert await refused_field(served.timers.PutDelayed(request)) == "messages"
    recall = pb.RecallRequest(topic="orders", handles=["x"])
    assert await refused_field(served.timers.Recall(recall)) == "handles[0]"
    listed = pb.ListDelayedRequest(page_token="zz")
    assert await refused_field(served.timers.ListDelayed(listed)) == "page_token"
    listed = pb.ListDelayedRequest(page_token="aa")
    assert await refused_field(served.timers.ListDelayed(listed)) == "page_token"
    assert served.store.log.appended_offset == before


async def test_rocketmqs_levels_are_times(served: Served) -> None:
    message = kvcq_pb2.Message(topic="orders", body=b"x")
    asked = [pb.DelayedMessage(message=message, delay_level=at) for at in range(4, 19)]
    before = served.store.timers.now_ms()
    answer = await served.timers.PutDelayed(pb.PutDelayedRequest(messages=asked))
    delays = [due - before for due in answer.deliver_at_ms]
    for delay, level in zip(delays, DELAY_LEVELS_MS[3:], strict=True):
        assert level <= delay <= level + 60_000
    assert [round(each.total_seconds() * 1000) for each in DELAY_LEVELS[1:]] == [*DELAY_LEVELS_MS]


async def test_a_time_too_far_ahead_names_what_was_given(client: AsyncClient) -> None:
    for when in (timedelta(days=41), datetime(2100, 1, 1, tzinfo=UTC)):
        with pytest.raises(
            InvalidArgumentError, match=r"messages\[0\]\.deliver_at: .* days"
        ) as one:
            await client.put_delayed("orders", b"x", deliver_at=when)
        assert one.value.field == "messages[0].deliver_at"


async def test_a_time_without_a_zone_is_refused_by_the_client(client: AsyncClient) -> None:
    with pytest.raises(ValueError, match="time zone"):
        await client.put_delayed("orders", b"x", deliver_at=datetime(2030, 1, 1))  # noqa: DTZ001
    with pytest.raises(TypeError):
        await client.put_delayed("orders", b"x", deliver_at=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="1 times for 2"):
        await client.put_delayed_many([Message("t", b""), Message("t", b"")], [FAR])
