"""server/services/group.py over real gRPC: committed offsets and lag."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import shared_groups_pb2 as shared_pb
from store.state import Committed
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def orders(served: Served) -> AsyncIterator[Served]:
    """A topic `orders` with 5 messages in queue 0 and 2 in queue 1."""
    messages = [pb.Message(topic="orders", queue_id=q, body=b"x") for q in (0, 0, 0, 0, 0, 1, 1)]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    yield served


async def _commit(served: Served, group: str, **offsets: int) -> None:
    positions = [
        pb.QueuePosition(topic="orders", queue_id=int(name[1:]), offset=offset)
        for name, offset in offsets.items()
    ]
    await served.groups.CommitOffsets(pb.CommitOffsetsRequest(group=group, offsets=positions))


async def _fetch(served: Served, group: str, *queue_ids: int) -> list[pb.GroupOffset]:
    queues = [pb.Queue(topic="orders", queue_id=queue_id) for queue_id in queue_ids]
    answer = await served.groups.FetchOffsets(pb.FetchOffsetsRequest(group=group, queues=queues))
    return list(answer.offsets)


async def test_a_commit_can_be_fetched_with_its_lag(orders: Served) -> None:
    await _commit(orders, "g", q0=3)
    first, second = await _fetch(orders, "g", 0, 1)
    assert (first.offset, first.min_offset, first.max_offset, first.lag) == (3, 0, 5, 2)
    assert not second.HasField("offset")
    assert second.lag == 2


async def test_a_committed_zero_is_not_absent(orders: Served) -> None:
    await _commit(orders, "g", q0=0)
    [one] = await _fetch(orders, "g", 0)
    assert one.HasField("offset")


@pytest.mark.parametrize(
    ("to", "expected"),
    [({"earliest": True}, [0, 0]), ({"latest": True}, [5, 2]), ({"time_ms": 1}, [0, 0])],
)
async def test_reset_moves_every_queue(
    orders: Served, to: dict[str, int], expected: list[int]
) -> None:
    request = pb.ResetOffsetsRequest(group="g", topic="orders", **to)  # type: ignore[arg-type] # its oneof
    answer = await orders.groups.ResetOffsets(request)
    assert [one.offset for one in answer.offsets[:2]] == expected
    assert [one.offset for one in await _fetch(orders, "g", 0, 1)] == expected


async def test_reset_to_an_offset_checks_its_range(orders: Served) -> None:
    request = pb.ResetOffsetsRequest(group="g", topic="orders", queue_ids=[0], offset=4)
    answer = await orders.groups.ResetOffsets(request)
    assert [one.lag for one in answer.offsets] == [1]
    request.offset = 6
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await orders.groups.ResetOffsets(request)
    assert error_info(refused.value).metadata["maxOffset"] == "5"


async def test_reset_without_a_target_is_refused(orders: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await orders.groups.ResetOffsets(pb.ResetOffsetsRequest(group="g", topic="orders"))
    assert error_info(refused.value).metadata["field"] == "to"


async def test_groups_and_their_offsets_are_listed_in_pages(orders: Served) -> None:
    for group in ("g1", "g2", "g3"):
        await _commit(orders, group, q0=1, q1=1, q2=0)
    first = await orders.groups.ListGroups(pb.ListGroupsRequest(page_size=2))
    second = await orders.groups.ListGroups(
        pb.ListGroupsRequest(page_size=2, page_token=first.next_page_token)
    )
    assert [*first.groups, *second.groups] == ["g1", "g2", "g3"]
    assert second.next_page_token == ""
    found: list[tuple[int, int]] = []
    token = ""
    while True:
        page = await orders.groups.ListGroupOffsets(
            pb.ListGroupOffsetsRequest(group="g1", page_size=2, page_token=token)
        )
        found += [(one.queue_id, one.lag) for one in page.offsets]
        token = page.next_page_token
        if not token:
            break
    assert found == [(0, 4), (1, 1), (2, 0)]


@pytest.mark.parametrize(
    "token", ["x", "@orders", "-1@orders", "99999999999@orders", "1@" + "x" * 256]
)
async def test_a_made_up_page_token_is_refused(orders: Served, token: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await orders.groups.ListGroupOffsets(
            pb.ListGroupOffsetsRequest(group="g", page_token=token)
        )
    assert error_info(refused.value).metadata["field"] == "page_token"


async def test_a_queue_that_is_gone_does_not_hide_the_others(orders: Served) -> None:
    await _commit(orders, "g", q0=3)
    # As an earlier program left it where a power loss took all messages of a light queue.
    orders.store._appends.append_entries([Committed("g", "%LMQ%gone", 0, 0)])
    answer = await orders.groups.ListGroupOffsets(pb.ListGroupOffsetsRequest(group="g"))
    assert [(one.topic, one.offset) for one in answer.offsets] == [("orders", 3)]


async def test_a_deleted_group_is_gone(orders: Served) -> None:
    await _commit(orders, "g", q0=3)
    await orders.groups.DeleteGroup(pb.DeleteGroupRequest(group="g"))
    [one] = await _fetch(orders, "g", 0)
    assert not one.HasField("offset")


async def test_a_negative_offset_is_refused_by_place(orders: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _commit(orders, "g", q0=1, q1=-1)
    assert error_info(refused.value).metadata["field"] == "offsets[1].offset"


async def test_a_shared_group_has_no_offsets_to_list(orders: Served) -> None:
    await orders.shared.CreateGroup(shared_pb.CreateGroupRequest(group="work"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await orders.groups.ListGroupOffsets(pb.ListGroupOffsetsRequest(group="work"))
    assert refused.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert "commit no offsets" in str(refused.value.details())
