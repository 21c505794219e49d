"""server/rocketmq over real gRPC: what official clients send is answered as they need it."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import zlib
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from kvcq_client import AsyncClient, Message
from kvcq_client.pb.v1 import kvcq_pb2
from server.config import ServerConfig
from server.edge import request_limit
from server.rocketmq import SERVICE as ROCKETMQ
from server.rocketmq import RocketmqService
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from store.metadata import MessageType
from tests.server.rocketmq.client import Client, handle_of
from tests.support.rocketmq import status_in
from tests.support.until import LIMIT_S

if TYPE_CHECKING:
    from tests.support.serving import Served


# --- sends ---------------------------------------------------------------------------------


async def test_what_is_sent_is_received_with_all_that_it_has(client: Client) -> None:
    born = Timestamp(seconds=1_700_000_000)
    sent = client.message(
        "orders",
        b"body",
        tag="paid",
        keys=["k1", "k2"],
        born_timestamp=born,
        message_group="customer-7",
        trace_context="00-trace",
        properties={"colour": "blue"},
    )
    answer = await client.send(sent)
    assert answer.status.code == v2.OK
    (entry,) = answer.entries
    assert (entry.status.code, entry.offset) == (v2.OK, 0)
    assert entry.message_id == sent.system_properties.message_id
    status, (got,) = await client.receive("g", "orders")
    assert status.code == v2.OK
    system = got.system_properties
    assert (got.body, got.topic.name) == (b"body", "orders")
    assert dict(got.user_properties) == {"colour": "blue", "__SHARDINGKEY": "customer-7"}
    assert (system.tag, list(system.keys)) == ("paid", ["k1", "k2"])
    assert (system.message_id, system.message_group) == (entry.message_id, "customer-7")
    assert (system.message_type, system.delivery_attempt) == (v2.FIFO, 1)
    assert system.born_timestamp == born
    assert system.trace_context == "00-trace"
    assert (system.body_encoding, system.body_digest.type) == (v2.IDENTITY, v2.MD5)
    assert system.body_digest.checksum == hashlib.md5(b"body").hexdigest().upper()
    assert system.HasField("queue_offset")
    assert system.HasField("store_timestamp")


async def test_a_batch_has_an_entry_for_each_message_and_a_group_one_queue(client: Client) -> None:
    sent = [client.message("orders", b"%d" % n, message_group="one") for n in range(5)]
    answer = await client.send(*sent)
    assert [each.offset for each in answer.entries] == [0, 1, 2, 3, 4]
    assert [each.message_id for each in answer.entries] == [
        each.system_properties.message_id for each in sent
    ]
    _, got = await client.receive("g", "orders")
    assert [each.body for each in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert len({each.system_properties.queue_id for each in got}) == 1


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"message_id": " "}, v2.ILLEGAL_MESSAGE_ID),
        ({"body": b""}, v2.MESSAGE_BODY_EMPTY),
        ({"body": bytes((4 << 20) + 1)}, v2.MESSAGE_BODY_TOO_LARGE),
        ({"tag": "a|b"}, v2.ILLEGAL_MESSAGE_TAG),
        ({"tag": "  "}, v2.ILLEGAL_MESSAGE_TAG),
        ({"keys": [" "]}, v2.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["\x01"]}, v2.ILLEGAL_MESSAGE_KEY),
        ({"keys": ["\tb"]}, v2.ILLEGAL_MESSAGE_KEY),
        ({"message_group": "x" * 64}, v2.ILLEGAL_MESSAGE_GROUP),
        ({"message_group": " "}, v2.ILLEGAL_MESSAGE_GROUP),
        ({"properties": {"UNIQ_KEY": "x"}}, v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"properties": {"a": "\x02"}}, v2.ILLEGAL_MESSAGE_PROPERTY_KEY),
        ({"message_type": v2.DELAY}, v2.ILLEGAL_DELIVERY_TIME),
        ({"lite_topic": "session"}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        ({"priority": 1}, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
    ],
)
async def test_a_bad_message_is_refused_by_its_code_and_its_batch_is_not_stored(
    client: Client, change: dict[str, Any], code: v2.Code
) -> None:
    answer = await client.send(client.message("orders"), client.message("orders", **change))
    assert answer.status.code == code
    assert answer.status.message
    status, _ = await client.receive("g", "orders")
    assert status.code in (v2.MESSAGE_NOT_FOUND, v2.TOPIC_NOT_FOUND)
    assert (await client.send(client.message("orders", **change))).status.code == code


async def test_a_request_without_messages_or_of_two_topics_is_corrupted(client: Client) -> None:
    assert (await client.send()).status.code == v2.MESSAGE_CORRUPTED
    mixed = await client.send(client.message("a"), client.message("b"))
    assert mixed.status.code == v2.MESSAGE_CORRUPTED


async def test_a_message_for_a_queue_that_its_topic_lost_is_told_that_the_topic_is_not_found(
    served: Served, client: Client
) -> None:
    """The topic was replaced by one with fewer queues after the queue was chosen."""
    served.store.create_topics([("orders", 8)])
    message = client.message("orders", message_group="session-1")  # of queue 3
    assert (await client.send(message)).status.code == v2.OK
    served.store.delete_topic("orders")
    served.store.create_topics([("orders", 1)])
    answer = await client.send(message)
    assert answer.status.code == v2.TOPIC_NOT_FOUND
    assert answer.status.message == "topic 'orders' has queues 0 to 0, not 3"


# --- receives ------------------------------------------------------------------------------


async def test_what_is_acknowledged_and_given_back_counts_for_the_group(
    served: Served, client: Client
) -> None:
    """As with kvcq's own clients."""
    await client.send(client.message("orders"))
    _, (got,) = await client.receive("g", "orders")
    await client.change("g", "orders", handle_of(got), 0)
    _, (again,) = await client.receive("g", "orders")
    await client.acknowledge("g", "orders", [handle_of(again)])
    assert served.server._metrics.groups.read()["g"] == (2, 1, 1, 1)


async def test_handles_of_a_deleted_group_came_too_late(served: Served, client: Client) -> None:
    """At any other status clients try again for ever."""
    await client.send(client.message("orders"))
    _, (got,) = await client.receive("g", "orders")
    served.store.delete_group("g")
    acknowledged = await client.acknowledge("g", "orders", [handle_of(got)])
    assert acknowledged.status.code == v2.INVALID_RECEIPT_HANDLE
    assert acknowledged.entries[0].status.message == "the group was deleted since"
    for hold_s in (0, 30):
        changed = await client.change("g", "orders", handle_of(got), hold_s)
        assert changed.status.code == v2.INVALID_RECEIPT_HANDLE
    buried = await client.call.ForwardMessageToDeadLetterQueue(
        pb.ForwardMessageToDeadLetterQueueRequest(
            group=v2.Resource(name="g"),
            topic=v2.Resource(name="orders"),
            receipt_handle=handle_of(got),
        ),
        metadata=client.metadata,
    )
    assert buried.status.code == v2.OK


async def test_a_message_is_acknowledged_once(client: Client) -> None:
    await client.send(client.message("orders"))
    _, (got,) = await client.receive("g", "orders")
    handle = handle_of(got)
    answer = await client.acknowledge("g", "orders", [handle, "garbage", handle])
    assert answer.status.code == v2.MULTIPLE_RESULTS
    codes = [each.status.code for each in answer.entries]
    assert codes == [v2.OK, v2.INVALID_RECEIPT_HANDLE, v2.INVALID_RECEIPT_HANDLE]
    again = await client.acknowledge("g", "orders", [handle])
    assert again.status.code == again.entries[0].status.code == v2.INVALID_RECEIPT_HANDLE
    status, _ = await client.receive("g", "orders")
    assert status.code == v2.MESSAGE_NOT_FOUND
    assert (await client.acknowledge("g", "orders", [])).status.code == v2.BAD_REQUEST


async def test_a_message_comes_again_when_its_time_is_over(client: Client) -> None:
    await client.send(client.message("orders", b"again"))
    _, (first,) = await client.receive("g", "orders")
    changed = await client.change("g", "orders", handle_of(first), 0)
    assert changed.status.code == v2.OK
    _, (second,) = await client.receive("g", "orders")
    assert second.system_properties.delivery_attempt == 2
    assert second.system_properties.message_id == first.system_properties.message_id
    held = await client.change("g", "orders", handle_of(second), 60)
    assert (held.status.code, held.receipt_handle) == (v2.OK, handle_of(second))
    late = await client.change("g", "orders", handle_of(first), 60)
    assert late.status.code == v2.INVALID_RECEIPT_HANDLE
    for hold_s in (-1, 12 * 3600 + 1):
        refused = await client.change("g", "orders", handle_of(second), hold_s)
        assert refused.status.code == v2.ILLEGAL_INVISIBLE_TIME
    acknowledged = await client.acknowledge("g", "orders", [held.receipt_handle])
    assert acknowledged.status.code == v2.OK


async def test_what_is_forwarded_is_a_dead_letter_once(client: Client) -> None:
    sent = client.message("orders", b"poison", tag="t", keys=["k"], properties={"p": "v"})
    await client.send(sent)
    _, (got,) = await client.receive("g", "orders")
    for _ in range(2):  # clients go on until they are told that it is done
        answer = await client.call.ForwardMessageToDeadLetterQueue(
            pb.ForwardMessageToDeadLetterQueueRequest(
                group=v2.Resource(name="g"),
                topic=v2.Resource(name="orders"),
                receipt_handle=handle_of(got),
                message_id=sent.system_properties.message_id,
            ),
            metadata=client.metadata,
        )
        assert answer.status.code == v2.OK
    status, _ = await client.receive("g", "orders")
    assert status.code == v2.MESSAGE_NOT_FOUND
    assert (await client.route("%DLQ%g")).status.code == v2.OK
    _, (letter,) = await client.receive("undertakers", "%DLQ%g")
    system = letter.system_properties
    assert (letter.body, system.tag, list(system.keys)) == (b"poison", "t", ["k"])
    assert letter.user_properties["p"] == "v"
    assert system.message_id == sent.system_properties.message_id
    origin = system.dead_letter_queue
    assert (origin.topic, origin.message_id) == ("orders", sent.system_properties.message_id)


async def test_what_has_a_higher_priority_comes_first_and_the_rest_is_not_forgotten(
    served: Served, client: Client
) -> None:
    served.store.create_topics([("urgent", 4)], types={"urgent": MessageType.PRIORITY})
    for priority in (0, 1, 3, 9):
        sent = await client.send(client.message("urgent", b"%d" % priority, priority=priority))
        assert sent.status.code == v2.OK
    refused = await client.send(client.message("urgent", priority=-1))
    assert refused.status.code == v2.BAD_REQUEST
    _, messages = await client.receive("a", "urgent")
    _, others = await client.receive("b", "urgent")
    orders = [[each.system_properties.priority for each in got] for got in (messages, others)]
    assert orders == [[3, 9, 1, 0]] * 2, "the tenth receive goes round, not the first"
    assert {each.system_properties.message_type for each in messages} == {v2.PRIORITY}
    assert not any(each.user_properties for each in messages)
    for _ in range(60):
        await client.send(client.message("urgent", b"high", priority=3))
    await client.send(client.message("urgent", b"low", priority=0))
    bodies = []
    for _ in range(61):
        _, (one,) = await client.receive("a", "urgent", batch_size=1)
        bodies.append(one.body)
    assert bodies.index(b"low") < 60, "it waited for all others"


async def test_a_tag_filter_finishes_what_it_does_not_want(client: Client) -> None:
    await client.send(client.message("orders", b"a", tag="a"))
    await client.send(client.message("orders", b"b", tag="b"))
    _, got = await client.receive("g", "orders", filter_="b || c")
    assert [each.body for each in got] == [b"b"]
    status, _ = await client.receive("g", "orders", filter_="a||*")
    assert status.code == v2.ILLEGAL_FILTER_EXPRESSION


async def test_a_star_is_a_tag_like_any_other(client: Client) -> None:
    await client.send(client.message("orders", b"starred", tag="*"))
    await client.send(client.message("orders", b"tagged", tag="a"))
    _, only_a = await client.receive("tagged", "orders", filter_="a")
    assert [each.body for each in only_a] == [b"tagged"]
    _, everything = await client.receive("all", "orders", filter_="*")
    # In the order of their queues, of which the first is drawn by lot.
    assert {(each.body, each.system_properties.tag) for each in everything} == {
        (b"starred", "*"),
        (b"tagged", "a"),
    }


async def test_a_condition_chooses_by_properties(client: Client) -> None:
    for price in ("5", "50"):
        await client.send(client.message("orders", price.encode(), properties={"price": price}))
    _, got = await client.receive("g", "orders", filter_="price > 10", filter_type=v2.SQL)
    assert [each.body for each in got] == [b"50"]
    status, _ = await client.receive("g", "orders", filter_="price >", filter_type=v2.SQL)
    assert status.code == v2.ILLEGAL_FILTER_EXPRESSION


async def test_a_receive_waits_for_a_message_and_ends_before_its_deadline(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.rocketmq.service._RESERVE_S", 30.0)  # for a machine that is busy
    await client.route("orders")
    waiting = asyncio.create_task(client.receive("g", "orders", poll_s=20))
    await asyncio.sleep(0)
    await client.send(client.message("orders", b"late"))
    async with asyncio.timeout(LIMIT_S):
        status, (got,) = await waiting
    assert (status.code, got.body) == (v2.OK, b"late")
    status, _ = await client.receive("g", "orders", poll_s=20, timeout=30.5)
    assert status.code == v2.MESSAGE_NOT_FOUND


async def test_what_a_client_that_ends_was_pushed_comes_to_another(
    served: Served, client: Client
) -> None:
    await client.send(client.message("orders", b"pushed"))
    _, (got,) = await client.receive("g", "orders", auto_renew=True)
    other = Client(served.channel, "other")
    waiting = asyncio.create_task(other.receive("g", "orders", poll_s=20, auto_renew=True))
    await client.call.NotifyClientTermination(
        pb.NotifyClientTerminationRequest(), metadata=client.metadata
    )
    async with asyncio.timeout(LIMIT_S):
        _, (again,) = await waiting
    assert again.system_properties.message_id == got.system_properties.message_id
    assert again.system_properties.delivery_attempt == 2
    late = await client.acknowledge("g", "orders", [handle_of(got)])
    assert late.status.code == v2.INVALID_RECEIPT_HANDLE


async def test_a_group_by_offsets_is_refused(served: Served, client: Client) -> None:
    await client.route("orders")
    served.store.commit_offsets("readers", [("orders", 0, 0)])
    status, _ = await client.receive("readers", "orders")
    assert status.code == v2.ILLEGAL_CONSUMER_GROUP


async def test_a_call_without_a_client_id_is_refused_where_it_matters(served: Served) -> None:
    call = Client(served.channel).call
    answer = await call.Heartbeat(pb.HeartbeatRequest())
    assert answer.status.code == v2.CLIENT_ID_REQUIRED


# --- interchange ---------------------------------------------------------------------------


async def test_what_kvcq_puts_is_received_here_and_the_other_way_round(
    served: Served, client: Client
) -> None:
    async with AsyncClient(served.target) as ours:
        await ours.put(
            Message(
                "orders",
                b"ours",
                tag="t",
                keys=("k",),
                properties={"p": "v"},
                ordering_key="customer-7",
            )
        )
        _, (got,) = await client.receive("g", "orders")
        system = got.system_properties
        assert (got.body, system.tag, list(system.keys)) == (b"ours", "t", ["k"])
        assert (got.user_properties["p"], system.message_group) == ("v", "customer-7")
        stored = await ours.get(system.message_id)
        assert stored.body == b"ours"
        theirs = client.message(
            "orders", b"theirs", tag="t", keys=["k2"], message_group="customer-7"
        )
        (entry,) = (await client.send(theirs)).entries
        found = (await ours.query("orders", entry.message_id)).messages
        assert [each.body for each in found] == [b"theirs"]
        assert found[0].queue_id == stored.queue_id  # of the same customer
        assert found[0].queue_offset == entry.offset
        assert (found[0].tag, list(found[0].keys)) == ("t", ["k2"])


@pytest.mark.parametrize("compress", [zlib.compress, gzip.compress])
async def test_a_compressed_body_stays_so_for_them_and_is_plain_for_kvcq(
    served: Served, client: Client, compress: object
) -> None:
    assert callable(compress)
    body = compress(b"a" * 5000)
    (entry,) = (await client.send(client.message("z", body, body_encoding=v2.GZIP))).entries
    _, (got,) = await client.receive("g", "z")
    assert (got.body, got.system_properties.body_encoding) == (body, v2.GZIP)
    assert got.system_properties.body_digest.checksum == hashlib.md5(body).hexdigest().upper()
    async with AsyncClient(served.target) as ours:
        (found,) = (await ours.query("z", entry.message_id)).messages
        assert found.body == b"a" * 5000


# --- what is not served --------------------------------------------------------------------


@pytest.mark.parametrize(
    "name",
    ["QueryOffset", "UpdateOffset", "GetOffset"],
)
async def test_what_is_not_served_says_so_in_a_status(client: Client, name: str) -> None:
    answer = await getattr(client.call, name)(
        getattr(pb, f"{name}Request")(), metadata=client.metadata
    )
    assert answer.status.code == v2.UNSUPPORTED
    (pulled,) = [each async for each in client.call.PullMessage(pb.PullMessageRequest())]
    assert pulled.status.code == v2.UNSUPPORTED


async def test_what_is_no_message_is_refused_in_a_status(served: Served) -> None:
    method: Any = served.channel.unary_unary(
        "/apache.rocketmq.v2.MessagingService/SendMessage", None, None
    )
    answer = pb.SendMessageResponse.FromString(await method(b"\xff\xff\xff"))
    assert answer.status.code == v2.BAD_REQUEST
    telemetry: Any = served.channel.stream_stream(
        "/apache.rocketmq.v2.MessagingService/Telemetry", None, None
    )
    stream = telemetry(iter([b"\xff\xff\xff"]), metadata=(("x-mq-client-id", "c"),))
    answers = [pb.TelemetryCommand.FromString(each) async for each in stream]
    assert [each.status.code for each in answers] == [v2.BAD_REQUEST]
    assert await stream.code() is grpc.StatusCode.OK


async def test_a_request_above_its_limit_is_refused_in_a_status(served: Served) -> None:
    for method in ROCKETMQ.methods:
        limit = request_limit(method, ServerConfig()).request_bytes
        if limit > 4 << 20 or method.client_streaming:
            continue
        path = f"/{ROCKETMQ.full_name}/{method.name}"
        call: Any = served.channel.unary_stream(path, None, None)
        answers = [each async for each in call(bytes(limit + 1))]
        assert [status_in(each).code for each in answers] == [v2.BAD_REQUEST], method.name


async def test_their_calls_are_counted_apart_from_ours(served: Served, client: Client) -> None:
    await client.send(client.message("orders"))
    numbers = (await served.admin.GetStatistics(kvcq_pb2.GetStatisticsRequest())).values
    assert numbers["server.calls.apache.rocketmq.v2.MessagingService/SendMessage"] == 1
    assert numbers["server.messages_put"] == 1


class _Context:
    """Of a call that a test makes itself, part by part."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return (("x-mq-client-id", "c"),)

    def time_remaining(self) -> None:
        return None


async def test_an_attempt_made_again_keeps_what_the_broken_call_was_given(
    served: Served, client: Client
) -> None:
    """Its connection breaks off unnoticed; the client asks again on another one."""
    await client.send(client.message("orders", b"x"))
    service = served.serving.services[RocketmqService]
    assert isinstance(service, RocketmqService)
    request = pb.ReceiveMessageRequest(
        group=v2.Resource(name="g"),
        message_queue=v2.MessageQueue(topic=v2.Resource(name="orders"), id=-1),
        filter_expression=v2.FilterExpression(type=v2.TAG, expression="*"),
        long_polling_timeout=Duration(),
        attempt_id="attempt",
        auto_renew=True,
    )
    broken = service.ReceiveMessage(request, _Context())  # type: ignore[arg-type]
    await anext(broken)
    again = service.ReceiveMessage(request, _Context())  # type: ignore[arg-type]
    parts = [pb.ReceiveMessageResponse.FromString(part) async for part in again]
    (got,) = [part.message for part in parts if part.HasField("message")]
    await broken.aclose()
    await asyncio.gather(*service._renewals._giving_back)
    acknowledged = await client.acknowledge("g", "orders", [handle_of(got)])
    assert acknowledged.status.code == v2.OK
    # Without a second call it comes to another client soon.
    await client.send(client.message("orders", b"y"))
    broken = service.ReceiveMessage(request, _Context())  # type: ignore[arg-type]
    await anext(broken)
    await broken.aclose()
    async with asyncio.timeout(10):
        _, (other,) = await client.receive("g", "orders", poll_s=10)
    assert (other.body, other.system_properties.delivery_attempt) == (b"y", 1)
    assert not service._sending
