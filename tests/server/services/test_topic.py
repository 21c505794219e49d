"""server/services/topic.py over real gRPC."""

from __future__ import annotations

from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from tests.support.rpc_errors import error_info

if TYPE_CHECKING:
    from tests.support.serving import Served


async def _create(served: Served, *names: str, queue_count: int = 0) -> list[pb.Topic]:
    wanted = [pb.CreateTopicRequest(name=name, queue_count=queue_count) for name in names]
    answer = await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=wanted))
    return list(answer.topics)


async def test_topics_are_created_and_described(served: Served) -> None:
    [default, *_] = await _create(served, "a", "b")
    [three] = await _create(served, "c", queue_count=3)
    assert (default.queue_count, three.queue_count) == (4, 3)
    message = pb.Message(topic="c", queue_id=2, body=b"x")
    await served.messages.Put(pb.PutRequest(message=message))
    described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="c"))
    assert described.topic == three
    assert [(one.queue_id, one.min_offset, one.max_offset) for one in described.queues] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 1),
    ]


async def test_queues_of_a_topic_come_in_pages(served: Served) -> None:
    await _create(served, "many", queue_count=7)
    found: list[int] = []
    token, pages = "", 0
    while token or not pages:
        page = await served.topics.DescribeTopic(
            pb.DescribeTopicRequest(name="many", page_size=3, page_token=token)
        )
        assert page.topic.queue_count == 7
        found += [one.queue_id for one in page.queues]
        token, pages = page.next_page_token, pages + 1
    assert (found, pages) == (list(range(7)), 3)
    beyond = await served.topics.DescribeTopic(
        pb.DescribeTopicRequest(name="many", page_token="99")
    )
    assert (beyond.topic.name, len(beyond.queues), beyond.next_page_token) == ("many", 0, "")
    for token in ("x", "-1", "9" * 20):
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.topics.DescribeTopic(
                pb.DescribeTopicRequest(name="many", page_token=token)
            )
        assert error_info(refused.value).metadata["field"] == "page_token"


async def test_creating_again_with_the_same_settings_changes_nothing(served: Served) -> None:
    [first] = await _create(served, "a", queue_count=2)
    assert await _create(served, "a", queue_count=2) == [first]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _create(served, "a", queue_count=3)
    assert refused.value.code() is grpc.StatusCode.ALREADY_EXISTS


async def test_pages_give_each_topic_once(served: Served) -> None:
    names = [f"orders-{number:02}" for number in range(7)]
    await _create(served, *names, "other")
    found: list[str] = []
    token, pages = "", 0
    while True:
        page = await served.topics.ListTopics(
            pb.ListTopicsRequest(prefix="orders-", page_size=3, page_token=token)
        )
        found += [topic.name for topic in page.topics]
        token, pages = page.next_page_token, pages + 1
        if not token:
            break
    assert found == names
    assert pages == 3


async def test_light_queues_are_listed_by_prefix(served: Served) -> None:
    names = [f"%LMQ%room-{number}" for number in range(4)]
    message = pb.Message(topic="chat", body=b"x", light_queues=[*names, "%LMQ%zoo"])
    await served.messages.Put(pb.PutRequest(message=message))
    first = await served.topics.ListTopics(
        pb.ListTopicsRequest(prefix="room-", light_queues=True, page_size=3)
    )
    second = await served.topics.ListTopics(
        pb.ListTopicsRequest(
            prefix="%LMQ%room-", light_queues=True, page_size=3, page_token=first.next_page_token
        )
    )
    assert [topic.name for topic in (*first.topics, *second.topics)] == names


async def test_a_deleted_topic_is_gone_and_starts_clean_when_it_comes_back(served: Served) -> None:
    for body in (b"a", b"b"):
        message = pb.Message(topic="orders", queue_id=0, body=body)
        await served.messages.Put(pb.PutRequest(message=message))
    await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(pb.PullRequest(topic="orders"))
    assert error_info(refused.value).reason == "UNKNOWN_TOPIC"
    await _create(served, "orders", queue_count=1)
    answers = [
        await served.messages.Put(pb.PutRequest(message=pb.Message(topic="orders", body=b"c")))
        for _ in range(2)
    ]
    assert [answer.placed.queue_id for answer in answers] == [0, 0]
    assert [answer.placed.queue_offset for answer in answers] == [0, 1]


@pytest.mark.parametrize("page_size", [-1, 10_001])
async def test_a_page_size_out_of_range_is_refused(served: Served, page_size: int) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.ListTopics(pb.ListTopicsRequest(page_size=page_size))
    assert error_info(refused.value).metadata["field"] == "page_size"


async def test_deleting_an_unknown_topic_is_not_found(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="none"))
    assert error_info(refused.value).reason == "UNKNOWN_TOPIC"
