"""server/services/topic.py over real gRPC."""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import timers_pb2
from migration.steps.adopting import adopt
from store.errors import StoreBusyError
from store.message import Message
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.until import until
from tests.support.waiting_broker import ENDED, HALVES, SCHEDULE, TIMERS, WaitingBroker
from tests.support.written_broker import LAYOUT, SEGMENT_BYTES

if TYPE_CHECKING:
    from pathlib import Path

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


async def test_a_deletion_that_meets_a_stall_waits_for_it(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    await _create(served, "a")
    queues, remove = served.store.queues, served.store.queues.delete_topic
    met: list[str] = []

    def stalling(name: str, physical_offset: int) -> None:
        if not met:
            met.append(name)
            raise StoreBusyError("planted")
        remove(name, physical_offset)

    monkeypatch.setattr(queues, "delete_topic", stalling)
    await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="a"))
    assert met == ["a"]
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="a"))
    assert error_info(gone.value).reason == "UNKNOWN_TOPIC"
    await _create(served, "a")


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


async def test_a_deletion_that_is_given_up_forgets_the_queues_when_it_is_done(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a put meanwhile remembers how many there were."""
    await _create(served, "orders", queue_count=64)
    put = pb.PutRequest(message=pb.Message(topic="orders", body=b"x"))
    begun, go_on = threading.Event(), threading.Event()
    delete = served.store.delete_topic

    def slow(name: str) -> None:
        begun.set()
        go_on.wait()
        delete(name)

    monkeypatch.setattr(served.store, "delete_topic", slow)
    deleting = served.topics.DeleteTopic(pb.DeleteTopicRequest(name="orders"))
    giving_up = asyncio.ensure_future(deleting)
    await until(begun.is_set)
    giving_up.cancel()
    await asyncio.wait([giving_up])
    await served.messages.Put(put)
    go_on.set()
    turns = served.serving.puts._chooser._turns
    await until(lambda: "orders" not in turns)
    assert not served.store.list_topics("orders", None, 1)
    for _ in range(20):  # it is made anew
        assert (await served.messages.Put(put)).placed.queue_id < 4


async def test_deleting_an_unknown_topic_is_not_found(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.DeleteTopic(pb.DeleteTopicRequest(name="none"))
    assert error_info(refused.value).reason == "UNKNOWN_TOPIC"


async def test_the_type_of_a_topic_is_set_told_and_kept(served: Served) -> None:
    wanted = pb.CreateTopicRequest(name="T", message_type=pb.MESSAGE_TYPE_FIFO)
    plain = pb.CreateTopicRequest(name="A")
    made = await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=[wanted, plain]))
    types = [each.message_type for each in made.topics]
    assert types == [pb.MESSAGE_TYPE_FIFO, pb.MESSAGE_TYPE_ANY]
    changed = await served.topics.UpdateTopic(
        pb.UpdateTopicRequest(name="T", message_type=pb.MESSAGE_TYPE_PRIORITY, retention_messages=7)
    )
    assert changed.topic.message_type == pb.MESSAGE_TYPE_PRIORITY
    assert changed.topic.retention.messages == 7
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=[wanted]))
    assert error_info(refused.value).reason == "TOPIC_EXISTS"
    unknown: Any = 99
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.UpdateTopic(pb.UpdateTopicRequest(name="T", message_type=unknown))
    assert error_info(refused.value).metadata["field"] == "message_type"
    described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="T"))
    assert described.topic == changed.topic


async def test_what_a_topic_keeps_is_set_told_and_seen_by_readers(served: Served) -> None:
    wanted = pb.CreateTopicRequest(name="T", queue_count=2, retention=pb.Retention(messages=4))
    made = await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=[wanted]))
    assert made.topics[0].retention == pb.Retention(messages=4)
    batch = [pb.Message(topic="T", queue_id=0, body=b"x") for _ in range(10)]
    await served.messages.PutBatch(pb.PutBatchRequest(messages=batch))
    described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="T"))
    assert described.topic == made.topics[0]
    assert [(q.min_offset, q.max_offset, q.log_min_offset) for q in described.queues] == [
        (6, 10, 0),
        (0, 0, 0),
    ]
    updated = await served.topics.UpdateTopic(
        pb.UpdateTopicRequest(name="T", retention_messages=2, retention_time_ms=3_600_000)
    )
    assert updated.topic.retention == pb.Retention(time_ms=3_600_000, messages=2)
    queues = [pb.Queue(topic="T", queue_id=0)]
    [offsets] = (await served.messages.GetOffsets(pb.GetOffsetsRequest(queues=queues))).queues
    assert (offsets.min_offset, offsets.max_offset) == (8, 10)
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(pb.PullRequest(topic="T", offset=7))
    assert error_info(refused.value).reason == "OFFSET_OUT_OF_RANGE"
    all_again = await served.topics.UpdateTopic(
        pb.UpdateTopicRequest(name="T", retention_messages=0, retention_time_ms=0)
    )
    assert not all_again.topic.HasField("retention")


@pytest.mark.parametrize(
    ("request_", "field"),
    [
        (pb.UpdateTopicRequest(name="T"), "retention_time_ms"),
        (pb.UpdateTopicRequest(name="T", retention_time_ms=-1), "retention_time_ms"),
        (pb.UpdateTopicRequest(name="T", retention_time_ms=1 << 60), "retention_time_ms"),
        (pb.UpdateTopicRequest(name="T", retention_bytes=-1), "retention_bytes"),
        (pb.UpdateTopicRequest(name="T", retention_messages=-1), "retention_messages"),
    ],
)
async def test_what_no_topic_can_keep_is_refused(
    served: Served, request_: pb.UpdateTopicRequest, field: str
) -> None:
    [before] = await _create(served, "T")
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.UpdateTopic(request_)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(refused.value).metadata["field"] == field
    described = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="T"))
    assert described.topic == before


@pytest.mark.parametrize("name", ["none", "%LMQ%a"])
async def test_only_topics_have_settings(served: Served, name: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.UpdateTopic(pb.UpdateTopicRequest(name=name, retention_messages=1))
    assert refused.value.code() is grpc.StatusCode.NOT_FOUND
    wanted = pb.CreateTopicRequest(name="T", retention=pb.Retention(time_ms=-1))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.topics.CreateTopics(pb.CreateTopicsRequest(topics=[wanted]))
    assert error_info(refused.value).metadata["field"] == "topics[0].retention.time_ms"


async def test_topics_of_the_server_itself_are_listed_for_whoever_asks_for_them(
    served: Served,
) -> None:
    """As RocketMQ's of an adopted store are: they are names of the same kind."""
    later = timers_pb2.DelayedMessage(
        message=pb.Message(topic="rest", queue_id=0, body=b"x"), delay_ms=60_000
    )
    await served.timers.PutDelayed(timers_pb2.PutDelayedRequest(messages=[later]))
    await asyncio.to_thread(served.store.halves.begin, Message("rest", b"x", 0), "g")
    await _create(served, "a", "z")

    async def names(**wanted: Any) -> list[str]:  # noqa: ANN401
        found: list[str] = []
        while True:
            page = await served.topics.ListTopics(pb.ListTopicsRequest(**wanted))
            found += [one.name for one in page.topics]
            if not (token := page.next_page_token):
                return found
            assert len(page.topics) == wanted["page_size"], "a page is full, or the last one"
            wanted["page_token"] = token

    for size in (1, 2, 3):
        assert await names(page_size=size) == ["a", "rest", "z"]
    own = ["rmq_sys_kvcq_halves", "rmq_sys_wheel_timer"]
    assert await names(page_size=2, system_topics=True) == ["a", "rest", *own, "z"]
    assert await names(prefix="rmq_sys_", page_size=9) == []
    assert await names(prefix="rmq_sys_", page_size=9, system_topics=True) == own


async def test_system_topics_of_an_adopted_store_are_listed_for_whoever_asks(
    tmp_path: Path,
) -> None:
    broker = WaitingBroker(tmp_path / "store", now_ms=2_000_000_000_000)
    some = broker.half("half")
    broker.delay("delayed", 3)
    broker.end(some)
    root = broker.stop()
    adopt(root, layout=LAYOUT)
    async with serving(root, store={"segment_bytes": SEGMENT_BYTES}) as served:
        for asked in (False, True):
            request = pb.ListTopicsRequest(page_size=100, system_topics=asked)
            page = await served.topics.ListTopics(request)
            listed = {topic.name for topic in page.topics}
            assert "orders" in listed
            assert (listed >= {SCHEDULE, TIMERS, HALVES, ENDED}) == asked
            assert bool(listed & {SCHEDULE, TIMERS, HALVES, ENDED}) == asked
        for name in (SCHEDULE, HALVES):
            with pytest.raises(grpc.aio.AioRpcError, match="is a system topic") as refused:
                await served.topics.DeleteTopic(pb.DeleteTopicRequest(name=name))
            assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
            with pytest.raises(grpc.aio.AioRpcError, match="is a system topic"):
                await served.messages.Put(pb.PutRequest(message=pb.Message(topic=name, body=b"x")))
        pulled = await served.messages.Pull(pb.PullRequest(topic=HALVES))
        assert pulled.next_offset == 1, "it can be read"


async def test_a_parent_of_lite_topics_is_described_as_one(served: Served) -> None:
    await asyncio.to_thread(served.store.lite.make, "chats", 60_000, 2)
    await _create(served, "plain")
    light = [f"%LMQ%$chats${name}" for name in "abc"]
    message = pb.Message(topic="chats", queue_id=0, body=b"x", light_queues=light)
    await served.messages.Put(pb.PutRequest(message=message))
    request = pb.DescribeTopicRequest(name="chats", page_size=1)
    page = await served.topics.DescribeTopic(request)
    assert page.topic.lite == pb.LiteParent(expiry_ms=60_000, lite_topics=3)
    request.page_token = page.next_page_token
    assert not (await served.topics.DescribeTopic(request)).topic.HasField("lite")
    plain = await served.topics.DescribeTopic(pb.DescribeTopicRequest(name="plain"))
    assert not plain.topic.HasField("lite")
