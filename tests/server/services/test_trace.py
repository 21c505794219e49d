"""What became of a message, over real gRPC and by the client's call."""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio

import store.trace.traces as traces_module
from kvcq_client import (
    AsyncClient,
    InvalidArgumentError,
    MessageState,
    NotFoundError,
    PermissionDeniedError,
    TraceEventKind,
    TraceGroupState,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.support.rpc_errors import error_info
from tests.support.users import ADMIN, client_of, guarded

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def client(served: Served) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(served.target) as client:
        yield client


async def test_who_received_a_message_and_what_they_did(client: AsyncClient) -> None:
    placed = await client.put("orders", b"a", queue_id=0)
    await client.create_group("g")
    (delivery,) = await client.receive("orders", group="g")
    trace = await client.trace(placed.message_id)
    (group,) = trace.groups
    assert (group.state, group.deliveries) == (TraceGroupState.IN_FLIGHT, 1)
    assert group.until_ms == delivery.until_ms
    assert group.address.startswith("127.0.0.1:")
    assert trace.events[0].address == group.address
    await client.acknowledge("g", [delivery])
    trace = await client.trace(placed.message_id)
    (group,) = trace.groups
    assert [each.what for each in trace.events_of(group)] == [
        TraceEventKind.DELIVERED,
        TraceEventKind.ACKNOWLEDGED,
    ]
    assert trace.outcome(group) == "acknowledged"
    assert trace.state is MessageState.READABLE
    assert trace.places == (("orders", 0, 0),)
    assert (trace.log_start_offset, trace.next_page_token, trace.groups_limited) == (0, "", False)


async def test_what_waits_is_traced_by_its_handle(client: AsyncClient) -> None:
    scheduled = await client.put_delayed("orders", b"x", deliver_at=timedelta(days=1))
    trace = await client.trace(handle=scheduled.handle, topic="orders")
    assert trace.state is MessageState.PENDING
    assert trace.due_ms == scheduled.deliver_at_ms
    await client.recall("orders", scheduled.handle)
    trace = await client.trace(handle=scheduled.handle, topic="orders")
    assert [each.what for each in trace.events][1:] == [TraceEventKind.RECALLED]
    by_id = await client.trace(trace.message_id)
    assert by_id.events == trace.events


async def test_pages_are_joined_and_an_early_end_says_where_to_go_on(
    client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    placed = await client.put("orders", b"a", queue_id=0)
    await client.create_group("g", max_deliveries=1000)
    for _ in range(300):
        (delivery,) = await client.receive("orders", group="g")
        await client.give_back("g", [delivery], 0)
    whole = await client.trace(placed.message_id)
    monkeypatch.setattr(traces_module, "MOST_RECORDS", 1)
    assert (await client.trace(placed.message_id)).events == whole.events
    first = await client.trace(placed.message_id, search_s=0)
    assert first.searched_until_ms is not None
    rest = await client.trace(placed.message_id, page_token=first.next_page_token)
    assert (*first.events, *rest.events) == whole.events
    assert len(whole.events) == 600


@pytest.mark.parametrize(
    ("asked", "field"),
    [
        ({}, "message_id"),
        ({"message_id": "7F", "handle": "x"}, "message_id"),
        ({"message_id": "7F"}, "message_id"),
        ({"handle": "x"}, "topic"),
        ({"handle": "x", "topic": "T"}, "handle"),
        ({"transaction_id": "x"}, "transaction_id"),
        ({"message_id": "0" * 32, "page_token": "x"}, "page_token"),
    ],
)
async def test_what_names_no_message_is_refused_by_its_field(
    served: Served, asked: dict[str, str], field: str
) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Trace(pb.TraceRequest(**asked))
    info: Any = error_info(refused.value)
    assert info.metadata["field"] == field


async def test_a_message_that_is_not_there_is_named_as_it_was_asked_for(
    client: AsyncClient,
) -> None:
    placed = await client.put("orders", b"a")
    with pytest.raises(NotFoundError, match=wrong_of(placed.message_id)):
        await client.trace(wrong_of(placed.message_id))
    with pytest.raises(InvalidArgumentError):
        await client.trace(placed.message_id, page_token="5b395d")


def wrong_of(message_id: str) -> str:
    return message_id[:-1] + "3"


async def test_only_groups_that_the_caller_may_see_are_told_of(tmp_path: Path) -> None:
    rights = {"one": ["subscribe topic orders", "subscribe group g"], "two": ["subscribe group g"]}
    async with (
        guarded(tmp_path / "store", rights) as served,
        AsyncClient(served.target, credentials=ADMIN) as admin,
        client_of(served, "one") as one,
        client_of(served, "two") as two,
    ):
        placed = await admin.put("orders", b"a")
        for group in ("g", "h"):
            await admin.create_group(group)
            await admin.receive("orders", group=group)
        whole = await admin.trace(placed.message_id)
        assert {each.group for each in whole.groups} == {"g", "h"}
        assert {each.user for each in whole.groups} == {ADMIN.access_key}
        some = await one.trace(placed.message_id)
        assert {each.group for each in some.groups} == {each.group for each in some.events} == {"g"}
        assert some.groups_limited
        with pytest.raises(PermissionDeniedError, match="message"):
            await two.trace(placed.message_id)
