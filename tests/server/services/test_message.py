"""server/services/message.py over real gRPC: put, pull, query, get, offsets."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import grpc
import pytest

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from store.config import FlushMode
from store.format.record import unpack_record
from tests.support.rpc_errors import error_info, trailers_of
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


def _message(body: bytes, **fields: object) -> pb.Message:
    message = pb.Message(topic="orders", queue_id=0, body=body)
    message.MergeFrom(pb.Message(**fields))  # type: ignore[arg-type] # any fields of a message
    return message


async def _put(served: Served, *messages: pb.Message) -> pb.PutBatchResponse:
    answer = await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    assert isinstance(answer, pb.PutBatchResponse)
    return answer


async def test_a_message_comes_back_with_every_field(served: Served) -> None:
    sent = _message(
        b"hello",
        tag="created",
        keys=["order-1", "customer-2"],
        light_queues=["%LMQ%a", "%LMQ%b"],
        properties={"colour": "blue"},
        flag=7,
        born_time_ms=1_700_000_000_123,
    )
    put = await served.messages.Put(pb.PutRequest(message=sent))
    assert list(put.placed.light_queue_offsets) == [0, 0]
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", queue_id=0))
    [got] = pulled.messages
    assert (pulled.status, pulled.next_offset, pulled.max_offset) == (pb.PULL_STATUS_FOUND, 1, 1)
    assert (got.topic, got.queue_id, got.queue_offset, got.body) == ("orders", 0, 0, b"hello")
    assert (got.tag, list(got.keys), got.flag) == ("created", ["order-1", "customer-2"], 7)
    assert got.properties["colour"] == "blue"
    assert "TAGS" not in got.properties
    assert (got.born_time_ms, got.store_time_ms) == (1_700_000_000_123, put.store_time_ms)
    assert got.born_host.startswith("127.0.0.1:")
    assert got.store_host == served.target
    assert got.message_id == put.placed.message_id
    by_id = await served.messages.Get(pb.GetRequest(message_id=got.message_id))
    assert by_id.message == got


async def test_a_batch_is_answered_in_columns(served: Served) -> None:
    answer = await _put(
        served,
        _message(b"1"),
        _message(b"2", light_queues=["%LMQ%x", "%LMQ%y"]),
        pb.Message(topic="bills", queue_id=2, body=b"3"),
        _message(b"4", light_queues=["%LMQ%y"]),
    )
    assert list(answer.queue_ids) == [0, 0, 2, 0]
    assert list(answer.queue_offsets) == [0, 1, 0, 2]
    assert list(answer.physical_offsets) == sorted(answer.physical_offsets)
    assert list(answer.light_queue_offsets) == [0, 0, 1]
    assert len(answer.store_host) == 8
    message_id = (answer.store_host + answer.physical_offsets[2].to_bytes(8, "big")).hex().upper()
    got = await served.messages.Get(pb.GetRequest(message_id=message_id))
    assert got.message.body == b"3"


async def test_a_batch_with_a_bad_message_stores_nothing(served: Served) -> None:
    await _put(served, _message(b"before"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await _put(served, _message(b"good"), pb.Message(topic="not good", body=b"x"))
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert error_info(refused.value).metadata["field"] == "messages[1].topic"
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders"))
    assert [message.body for message in pulled.messages] == [b"before"]


async def test_whole_records_are_those_of_the_log(served: Served) -> None:
    await _put(served, *(_message(b"%d" % number) for number in range(5)))
    pulled = await served.messages.Pull(
        pb.PullRequest(topic="orders", offset=1, max_messages=3, form=pb.RECORD_FORM_WHOLE)
    )
    assert list(pulled.queue_offsets) == [1, 2, 3]
    assert not pulled.messages
    rest, bodies = pulled.records, []
    while rest:
        record = unpack_record(rest)
        bodies.append(record.body)
        rest = rest[record.record_size :]
    assert bodies == [b"1", b"2", b"3"]


async def test_a_light_queue_gives_its_own_offsets(served: Served) -> None:
    await _put(served, _message(b"a"), _message(b"b"), _message(b"c", light_queues=["%LMQ%x"]))
    pulled = await served.messages.Pull(pb.PullRequest(topic="%LMQ%x"))
    [got] = pulled.messages
    assert (got.body, got.topic, got.queue_offset) == (b"c", "orders", 0)
    assert got.topic_queue_offset == 2


async def test_a_lite_topic_of_rocketmqs_is_a_light_queue(served: Served) -> None:
    name = "%LMQ%$orders$customer-7"
    await _put(served, _message(b"a", light_queues=[name]), _message(b"b", light_queues=[name]))
    pulled = await served.messages.Pull(pb.PullRequest(topic=name))
    assert [message.body for message in pulled.messages] == [b"a", b"b"]
    page = await served.topics.ListTopics(
        pb.ListTopicsRequest(prefix="%LMQ%$orders$", light_queues=True)
    )
    assert [topic.name for topic in page.topics] == [name]
    await served.topics.DeleteTopic(pb.DeleteTopicRequest(name=name))
    with pytest.raises(grpc.aio.AioRpcError) as gone:
        await served.messages.Pull(pb.PullRequest(topic=name))
    assert gone.value.code() is grpc.StatusCode.NOT_FOUND


async def test_tags_are_filtered(served: Served) -> None:
    await _put(served, *(_message(b"%d" % n, tag=f"t{n % 3}") for n in range(6)))
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", tag_filter="t0 || t2"))
    assert [message.body for message in pulled.messages] == [b"0", b"2", b"3", b"5"]
    none = await served.messages.Pull(pb.PullRequest(topic="orders", tag_filter="other"))
    assert (none.status, none.next_offset) == (pb.PULL_STATUS_NO_MATCH, 6)


async def test_properties_are_filtered(served: Served) -> None:
    await _put(served, *(_message(b"%d" % n, properties={"n": str(n)}) for n in range(2000)))
    found, at = [], 0
    while at < 2000:
        request = pb.PullRequest(
            topic="orders", offset=at, sql_filter="n BETWEEN 3 AND 5 OR n > 1998"
        )
        pulled = await served.messages.Pull(request)
        found += [int(message.body) for message in pulled.messages]
        at = pulled.next_offset
    assert found == [3, 4, 5, 1999]
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(pb.PullRequest(topic="orders", sql_filter="n >"))
    assert error_info(refused.value).metadata["field"] == "sql_filter"
    with pytest.raises(grpc.aio.AioRpcError, match="sql_filter"):
        await served.messages.Pull(
            pb.PullRequest(topic="orders", tag_filter="a", sql_filter="n = 1")
        )


async def test_bytes_bound_a_pull_but_one_message_always_comes(served: Served) -> None:
    await _put(served, *(_message(b"x" * 1000) for _ in range(5)))
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", max_bytes=2500))
    assert len(pulled.messages) == 2
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", max_bytes=1))
    assert len(pulled.messages) == 1


async def test_a_queue_is_chosen_in_turn(served: Served) -> None:
    messages = [pb.Message(topic="any", body=b"x") for _ in range(8)]
    answer = await served.messages.PutBatch(pb.PutBatchRequest(messages=messages))
    assert sorted(answer.queue_ids) == [0, 0, 1, 1, 2, 2, 3, 3]


async def test_concurrent_single_puts_all_land(served: Served) -> None:
    answers = await asyncio.gather(
        *(
            served.messages.Put(pb.PutRequest(message=_message(b"%d" % number)))
            for number in range(100)
        )
    )
    assert sorted(answer.placed.queue_offset for answer in answers) == list(range(100))
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", max_messages=200))
    by_offset = {message.queue_offset: message.body for message in pulled.messages}
    assert all(
        by_offset[answer.placed.queue_offset] == b"%d" % number
        for number, answer in enumerate(answers)
    )


async def test_query_pages_until_it_is_complete(served: Served) -> None:
    await _put(served, *(_message(b"%d" % n, keys=["k", f"k{n}"]) for n in range(5)))
    bodies: list[bytes] = []
    cursor = b""
    while True:
        page = await served.messages.Query(
            pb.QueryRequest(topic="orders", key="k", max_messages=2, cursor=cursor)
        )
        bodies += [message.body for message in page.messages]
        cursor = page.cursor
        if page.complete:
            break
    assert bodies == [b"0", b"1", b"2", b"3", b"4"]
    one = await served.messages.Query(
        pb.QueryRequest(topic="orders", key="k3", form=pb.RECORD_FORM_WHOLE)
    )
    assert unpack_record(one.records).body == b"3"
    assert one.complete


async def test_offsets_and_search_by_time(served: Served) -> None:
    answer = await _put(served, _message(b"a"), _message(b"b"))
    offsets = await served.messages.GetOffsets(
        pb.GetOffsetsRequest(
            queues=[pb.Queue(topic="orders", queue_id=0), pb.Queue(topic="orders", queue_id=3)]
        )
    )
    assert [(one.queue_id, one.min_offset, one.max_offset) for one in offsets.queues] == [
        (0, 0, 2),
        (3, 0, 0),
    ]
    late = await served.messages.SearchTime(
        pb.SearchTimeRequest(topic="orders", time_ms=answer.store_time_ms + 1)
    )
    early = await served.messages.SearchTime(
        pb.SearchTimeRequest(topic="orders", time_ms=1, boundary=pb.TIME_BOUNDARY_LOWER)
    )
    assert (late.offset, early.offset) == (2, 0)


@pytest.mark.parametrize(
    ("request_", "code", "reason", "metadata"),
    [
        (pb.PullRequest(topic="none"), "NOT_FOUND", "UNKNOWN_TOPIC", {"topic": "none"}),
        (
            pb.PullRequest(topic="orders", queue_id=99),
            "NOT_FOUND",
            "UNKNOWN_QUEUE",
            {"queueId": "99", "queueCount": "4"},
        ),
        (
            pb.PullRequest(topic="orders", offset=9),
            "OUT_OF_RANGE",
            "OFFSET_OUT_OF_RANGE",
            {"queueOffset": "9", "minOffset": "0", "maxOffset": "1"},
        ),
        (pb.PullRequest(topic="orders", offset=-1), "INVALID_ARGUMENT", None, {"field": "offset"}),
        (
            pb.PullRequest(topic="orders", max_messages=10_001),
            "INVALID_ARGUMENT",
            None,
            {"field": "max_messages"},
        ),
        (
            pb.PullRequest(topic="orders", wait_ms=10**9),
            "INVALID_ARGUMENT",
            None,
            {"field": "wait_ms"},
        ),
        (pb.PullRequest(topic="%LMQ%none"), "NOT_FOUND", "UNKNOWN_TOPIC", {"topic": "%LMQ%none"}),
    ],
)
async def test_a_refused_pull_says_why(
    served: Served,
    request_: pb.PullRequest,
    code: str,
    reason: str | None,
    metadata: dict[str, str],
) -> None:
    await _put(served, _message(b"one"))
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(request_)
    info = error_info(refused.value)
    assert refused.value.code().name == code
    assert info.reason == (reason or "INVALID_ARGUMENT")
    assert metadata.items() <= dict(info.metadata).items()


async def test_an_end_of_queue_is_no_error(served: Served) -> None:
    await _put(served, _message(b"one"))
    pulled = await served.messages.Pull(pb.PullRequest(topic="orders", offset=1))
    assert (pulled.status, pulled.next_offset) == (pb.PULL_STATUS_NO_NEW_MESSAGE, 1)


@pytest.mark.parametrize("message_id", ["", "xyz", "Z" * 32])
async def test_a_malformed_message_id_is_refused(served: Served, message_id: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Get(pb.GetRequest(message_id=message_id))
    assert error_info(refused.value).metadata["field"] == "message_id"


async def test_an_unknown_message_id_is_not_found(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Get(pb.GetRequest(message_id="7F00000100001FA30000000000000123"))
    info = error_info(refused.value)
    assert info.reason == "MESSAGE_NOT_FOUND"
    assert info.metadata["messageId"] == "7F00000100001FA30000000000000123"
    assert str(refused.value.details()).count("7F00000100001FA30000000000000123") == 1


async def test_the_callers_request_id_is_kept(served: Served) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await served.messages.Pull(
            pb.PullRequest(topic="none"), metadata=(("x-request-id", "call-77"),)
        )
    assert error_info(refused.value).metadata["requestId"] == "call-77"
    assert trailers_of(refused.value)["x-request-id"] == "call-77"


async def test_a_request_that_is_too_large_is_refused(tmp_path: Path) -> None:
    async with serving(tmp_path, max_receive_bytes=1 << 17) as served:
        await _put(served, _message(b"x" * 1000))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await _put(served, _message(b"x" * (1 << 17)))
        assert refused.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED


async def test_echo_sends_back_what_it_got(served: Served) -> None:
    request = pb.EchoRequest(
        batch=pb.PutBatchRequest(messages=[_message(b"a")]), payload=b"payload"
    )
    answer = await served.messages.Echo(request)
    assert (answer.batch, answer.payload) == (request.batch, b"payload")


async def test_sync_puts_are_durable_when_answered(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"flush_mode": FlushMode.SYNC}) as served:
        answers = await asyncio.gather(
            *(
                served.messages.Put(pb.PutRequest(message=_message(b"%d" % number)))
                for number in range(20)
            )
        )
        batch = await _put(served, _message(b"batch"))
        store = served.store
        assert store.flushed_offset > max(answer.placed.physical_offset for answer in answers)
        assert store.flushed_offset > batch.physical_offsets[0]
        pulled = await served.messages.Pull(pb.PullRequest(topic="orders"))
        assert len(pulled.messages) == 21
