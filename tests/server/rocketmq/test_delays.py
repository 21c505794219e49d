"""Delayed messages of RocketMQ 5's clients, and their recall."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from google.protobuf.timestamp_pb2 import Timestamp

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2

if TYPE_CHECKING:
    from tests.server.rocketmq.client import Client
    from tests.support.serving import Served


def later(milliseconds: int) -> Timestamp:
    at_ms = time.time_ns() // 1_000_000 + milliseconds
    return Timestamp(seconds=at_ms // 1000, nanos=at_ms % 1000 * 1_000_000)


async def test_a_delayed_message_comes_at_its_time_and_is_of_type_delay(client: Client) -> None:
    await client.receive("g", "orders")
    at = later(500)
    sent = client.message("orders", delivery_timestamp=at, message_group="m")
    answer = await client.send(sent)
    (entry,) = answer.entries
    assert entry.status.code == v2.OK
    assert entry.recall_handle
    got: list[v2.Message] = []
    while not got:
        _, got = await client.receive("g", "orders")
    (message,) = got
    system = message.system_properties
    assert system.message_id == sent.system_properties.message_id
    assert system.message_type == v2.DELAY
    assert (system.delivery_timestamp, system.message_group) == (at, "m")
    assert system.store_timestamp.ToMilliseconds() >= at.ToMilliseconds()
    assert "REAL_TOPIC" not in message.user_properties
    late = await recall(client, "orders", entry.recall_handle)
    assert late.status.code == v2.BAD_REQUEST


async def recall(client: Client, topic: str, handle: str) -> pb.RecallMessageResponse:
    request = pb.RecallMessageRequest(topic=v2.Resource(name=topic), recall_handle=handle)
    answer: pb.RecallMessageResponse = await client.call.RecallMessage(
        request, metadata=client.metadata
    )
    return answer


async def test_a_recalled_message_does_not_come_and_a_second_recall_is_answered_so(
    served: Served, client: Client
) -> None:
    sent = client.message("orders", delivery_timestamp=later(3_600_000))
    (entry,) = (await client.send(sent)).entries
    for _ in range(2):
        answer = await recall(client, "orders", entry.recall_handle)
        assert answer.status.code == v2.OK
        assert answer.message_id == sent.system_properties.message_id
    assert served.store.timers.count() == 0
    for topic, handle in (("others", entry.recall_handle), ("orders", "x"), ("orders", "")):
        assert (await recall(client, topic, handle)).status.code == v2.BAD_REQUEST


async def test_a_time_too_far_ahead_or_for_some_of_a_request_is_refused(
    served: Served, client: Client
) -> None:
    far = client.message("orders", delivery_timestamp=later(41 * 24 * 3_600_000))
    assert (await client.send(far)).status.code == v2.ILLEGAL_DELIVERY_TIME
    soon = client.message("orders", delivery_timestamp=later(60_000))
    mixed = await client.send(soon, client.message("orders"))
    assert mixed.status.code == v2.MESSAGE_CORRUPTED
    assert served.store.timers.count() == 0
    both = await client.send(soon, client.message("orders", delivery_timestamp=later(90_000)))
    assert len({each.recall_handle for each in both.entries}) == 2
    assert served.store.timers.count() == 2
