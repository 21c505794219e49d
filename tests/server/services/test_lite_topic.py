"""server/services/lite_topic.py over real gRPC: the lists."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest
import pytest_asyncio

from kvcq_client import LiteSettings, PermissionDeniedError
from kvcq_client.pb.v1 import kvcq_pb2, lite_topics_pb2_grpc
from kvcq_client.pb.v1 import lite_topics_pb2 as pb
from tests.server.services.test_timers import refused_field
from tests.support.serving import serving
from tests.support.users import client_of, guarded

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def lite(served: Served) -> lite_topics_pb2_grpc.LiteTopicServiceStub:
    """Two parents, one of them with ten lite topics of one message each."""
    for parent, expiry_ms in (("chats", 60_000), ("agents", 0)):
        await asyncio.to_thread(served.store.lite.make, parent, expiry_ms)
    light = [f"%LMQ%$chats$s{number}" for number in range(10)]
    message = kvcq_pb2.Message(topic="chats", queue_id=0, body=b"x", light_queues=light)
    await served.messages.Put(kvcq_pb2.PutRequest(message=message))
    return lite_topics_pb2_grpc.LiteTopicServiceStub(served.channel)


async def test_lite_topics_are_listed_with_where_they_stand(
    lite: lite_topics_pb2_grpc.LiteTopicServiceStub,
) -> None:
    request = pb.ListLiteTopicsRequest(topic="chats", with_states=True, page_size=6)
    page = await lite.ListLiteTopics(request)
    assert list(page.lite_topics) == [f"s{number}" for number in range(6)]
    assert {(one.min_offset, one.max_offset, one.clients) for one in page.states} == {(0, 1, 0)}
    assert {one.ends_ms - one.last_ms for one in page.states} == {60_000}
    request.page_token = page.next_page_token
    page = await lite.ListLiteTopics(request)
    assert (len(page.lite_topics), len(page.states), page.next_page_token) == (4, 4, "")
    plain = await lite.ListLiteTopics(pb.ListLiteTopicsRequest(topic="chats"))
    assert (len(plain.lite_topics), len(plain.states)) == (10, 0)
    request = pb.ListLiteTopicsRequest(topic="chats", with_states=True, page_size=1001)
    assert await refused_field(lite.ListLiteTopics(request)) == "page_size"


async def test_parents_are_listed(lite: lite_topics_pb2_grpc.LiteTopicServiceStub) -> None:
    page = await lite.ListLiteParents(pb.ListLiteParentsRequest(page_size=1))
    assert [one.topic for one in page.parents] == ["agents"]
    request = pb.ListLiteParentsRequest(page_size=1, page_token=page.next_page_token)
    page = await lite.ListLiteParents(request)
    assert page.next_page_token == ""
    (one,) = page.parents
    assert (one.topic, one.lite.expiry_ms, one.lite.lite_topics) == ("chats", 60_000, 10)
    found = await lite.ListLiteParents(pb.ListLiteParentsRequest(prefix="a"))
    assert [one.topic for one in found.parents] == ["agents"]


@pytest.mark.parametrize("size", [-1, 101])
async def test_a_page_of_parents_is_bounded(
    lite: lite_topics_pb2_grpc.LiteTopicServiceStub, size: int
) -> None:
    request = pb.ListLiteParentsRequest(page_size=size)
    assert await refused_field(lite.ListLiteParents(request)) == "page_size"


async def test_a_parent_that_was_put_to_before_it_existed_takes_messages(tmp_path: Path) -> None:
    """The queues of a topic that does not exist yet are guessed, and the guess is remembered."""
    message = kvcq_pb2.Message(topic="chats", body=b"x")
    async with serving(tmp_path / "store", store={"auto_create_topics": False}) as served:
        with pytest.raises(grpc.aio.AioRpcError, match="no topic 'chats'"):
            await served.messages.Put(kvcq_pb2.PutRequest(message=message))
        stub = lite_topics_pb2_grpc.LiteTopicServiceStub(served.channel)
        await stub.CreateLiteParent(pb.CreateLiteParentRequest(topic="chats", queue_count=1))
        for _ in range(8):
            await served.messages.Put(kvcq_pb2.PutRequest(message=message))


async def test_who_may_not_read_the_parent_takes_no_lite_topic_from_others(tmp_path: Path) -> None:
    rights = {"member": ["subscribe group g", "subscribe topic chats"]}
    rights["other"] = rights["member"][:1]
    async with guarded(tmp_path / "store", rights) as served, client_of(served, "ops") as ops:
        await ops.create_lite_parent("chats")
        await ops.create_group("g", in_order=True, lite=LiteSettings("chats", exclusive=True))
        async with client_of(served, "member") as member, client_of(served, "other") as other:
            receiver = member.lite_receiver("chats", group="g", exclusive=True)
            await receiver.subscribe("tea")
            with pytest.raises(PermissionDeniedError, match="'chats'"):
                await other.lite_receiver("chats", group="g", exclusive=True).subscribe("tea")
            await receiver.subscribe("milk")
            assert receiver.lost() == []
