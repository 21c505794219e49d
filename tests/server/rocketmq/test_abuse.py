"""What callers that mean no good, or have gone wrong, get: a status, and no stop of the loop."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from server.rocketmq import SERVICE
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from store.groups import MOST_HANDLES
from tests.server.rocketmq.client import ENDPOINTS, Client, handle_of
from tests.support.loop_stops import LONGEST_STOP_S, watched_server
from tests.support.rocketmq import status_in

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.support.serving import Served

MIB = 1 << 20
METADATA = (("x-mq-client-id", "c"),)
TOPIC, GROUP = v2.Resource(name="orders"), v2.Resource(name="g")


def _topics(count: int, length: int) -> v2.Settings:
    topics = [v2.Resource(name=f"{number:0{length}}") for number in range(count)]
    return v2.Settings(publishing=v2.Publishing(topics=topics))


def _handles(count: int, handle: str) -> pb.AckMessageRequest:
    entries = [pb.AckMessageEntry(message_id="m", receipt_handle=handle) for _ in range(count)]
    return pb.AckMessageRequest(group=GROUP, topic=TOPIC, entries=entries)


def _message(body: bytes = b"x", **system: Any) -> v2.Message:  # noqa: ANN401 - of a message
    given = {"message_id": secrets.token_hex(17), **system}
    return v2.Message(topic=TOPIC, body=body, system_properties=v2.SystemProperties(**given))


def _endpoints_of_many() -> v2.Endpoints:
    return v2.Endpoints(scheme=v2.IPv4, addresses=[v2.Address(host="h" * 100, port=1)] * 100_000)


def _names(count: int) -> pb.SyncLiteSubscriptionRequest:
    names = [f"s{number}" for number in range(count)]
    return pb.SyncLiteSubscriptionRequest(
        action=v2.COMPLETE_ADD, topic=TOPIC, group=GROUP, lite_topic_set=names
    )


#: Made when they are sent: some have 60 MiB, and each worker of xdist would keep them.
REQUESTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "settings of 60 MiB": (
        "Telemetry",
        lambda: pb.TelemetryCommand(settings=_topics(60 * 1024, 1024)),
    ),
    "settings with 20,000 topics": (
        "Telemetry",
        lambda: pb.TelemetryCommand(settings=_topics(20_000, 40)),
    ),
    "a name of 60 MiB": (
        "QueryRoute",
        lambda: pb.QueryRouteRequest(topic=v2.Resource(name="t" * (60 * MIB)), endpoints=ENDPOINTS),
    ),
    "endpoints of 10 MiB": (
        "QueryRoute",
        lambda: pb.QueryRouteRequest(topic=TOPIC, endpoints=_endpoints_of_many()),
    ),
    "a thousand handles that are none": ("AckMessage", lambda: _handles(MOST_HANDLES, "x" * 80)),
    "a hundred thousand handles": ("AckMessage", lambda: _handles(100_000, "x" * 80)),
    "a million lite topics": ("SyncLiteSubscription", lambda: _names(1_000_000)),
    "100,001 lite topics": ("SyncLiteSubscription", lambda: _names(100_001)),
    "100,000 lite topics": ("SyncLiteSubscription", lambda: _names(100_000)),
    "2,000 lite topics": ("SyncLiteSubscription", lambda: _names(2000)),
    "4,000 messages": ("SendMessage", lambda: pb.SendMessageRequest(messages=[_message()] * 4000)),
    "1,024 messages of which the last is bad": (
        "SendMessage",
        lambda: pb.SendMessageRequest(messages=[*[_message()] * 1023, _message(b"")]),
    ),
    "1,024 messages": ("SendMessage", lambda: pb.SendMessageRequest(messages=[_message()] * 1024)),
    "a message with 100,000 keys": (
        "SendMessage",
        lambda: pb.SendMessageRequest(messages=[_message(keys=["k"] * 100_000)]),
    ),
    "a message from the year 9999": (
        "SendMessage",
        lambda: pb.SendMessageRequest(
            messages=[_message(born_timestamp=Timestamp(seconds=1 << 62))]
        ),
    ),
    "a filter of 60 MiB": (
        "ReceiveMessage",
        lambda: pb.ReceiveMessageRequest(
            group=GROUP,
            message_queue=v2.MessageQueue(topic=TOPIC),
            filter_expression=v2.FilterExpression(type=v2.SQL, expression="(" * (60 * MIB)),
            long_polling_timeout={"seconds": 0},
        ),
    ),
    "a filter of 2,000 parts": (
        "ReceiveMessage",
        lambda: pb.ReceiveMessageRequest(
            group=GROUP,
            message_queue=v2.MessageQueue(topic=TOPIC),
            filter_expression=v2.FilterExpression(type=v2.TAG, expression="||".join("ab" * 2000)),
            long_polling_timeout={"seconds": 0},
        ),
    ),
}


@pytest.mark.parametrize("what", REQUESTS)
async def test_it_is_answered_by_a_status_and_the_loop_goes_on(tmp_path: Path, what: str) -> None:
    name, request = REQUESTS[what]
    data = request().SerializeToString()
    async with watched_server(tmp_path) as watched:
        watched.served.store.create_topics([("orders", 4)])
        answers: list[v2.Status] = []
        errors: list[grpc.RpcError] = []

        def call() -> None:
            answers.clear()
            errors.clear()
            options = (("grpc.max_receive_message_length", -1),)
            with grpc.insecure_channel(watched.served.target, options=options) as channel:
                path = f"/{SERVICE.full_name}/{name}"
                method: Any = (
                    channel.stream_stream if name == "Telemetry" else channel.unary_stream
                )(path, None, None)
                given = iter([data]) if name == "Telemetry" else data
                try:
                    answers.extend(
                        status_in(each) for each in method(given, metadata=METADATA, timeout=60)
                    )
                except grpc.RpcError as error:
                    errors.append(error)

        longest_s = await watched.shortest_stop_s(call)
        if len(data) > watched.served.server._config.max_receive_bytes:
            (error,) = errors  # gRPC itself does not take it
            assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        else:
            assert answers
            assert not errors
            assert answers[0].code not in (v2.INTERNAL_ERROR, v2.INTERNAL_SERVER_ERROR)
        assert longest_s <= LONGEST_STOP_S, f"{longest_s * 1000:.0f} ms"
        assert (await Client(watched.served.channel).route("orders")).status.code == v2.OK


async def test_forged_handles_take_nothing_from_anybody(served: Served) -> None:
    client = Client(served.channel)
    await client.route("orders")
    await client.send(client.message("orders", b"x"))
    _, (got,) = await client.receive("g", "orders")
    handle = handle_of(got)
    forged = [
        handle[:-1] + ("A" if handle[-1] != "A" else "B"),
        handle[:20],
        handle + handle,
        "",
        "0 1795780125728 10000 0 0 broker 2 0 4459471",
        "\x00" * 80,
        secrets.token_urlsafe(60),
    ]
    answer = await client.acknowledge("g", "orders", forged)
    assert {each.status.code for each in answer.entries} == {v2.INVALID_RECEIPT_HANDLE}
    for each in forged:
        changed = await client.change("g", "orders", each, 1)
        assert changed.status.code == v2.INVALID_RECEIPT_HANDLE
        buried = await client.call.ForwardMessageToDeadLetterQueue(
            pb.ForwardMessageToDeadLetterQueueRequest(
                group=v2.Resource(name="g"), topic=TOPIC, receipt_handle=each
            ),
            metadata=client.metadata,
        )
        assert buried.status.code == v2.INVALID_RECEIPT_HANDLE
    # A good one of another group is none of this one.
    other = await client.acknowledge("other", "orders", [handle])
    assert other.status.code == v2.INVALID_RECEIPT_HANDLE
    assert (await client.acknowledge("g", "orders", [handle])).status.code == v2.OK
