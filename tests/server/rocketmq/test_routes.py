"""Routes, assignments and types of topics, as RocketMQ 5's clients ask for them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from kvcq_client.pb.v1 import kvcq_pb2
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from store.metadata import MessageType, SharedGroup
from tests.server.rocketmq.client import ENDPOINTS, Client
from tests.support.serving import serving

if TYPE_CHECKING:
    from pathlib import Path

    from tests.support.serving import Served


async def test_a_route_makes_the_topic_and_echoes_the_address_of_the_client(
    served: Served, client: Client
) -> None:
    route = await client.route("orders")
    assert route.status.code == v2.OK
    assert [each.id for each in route.message_queues] == [0, 1, 2, 3]
    for each in route.message_queues:
        assert (each.broker.id, each.broker.endpoints) == (0, ENDPOINTS)
        assert each.permission == v2.READ_WRITE
        assert {v2.NORMAL, v2.FIFO, v2.DELAY, v2.TRANSACTION} <= {*each.accept_message_types}
    assert served.store.describe_topic("orders").queue_count == 4


async def test_a_route_of_many_queues_has_them_all(served: Served, client: Client) -> None:
    served.store.create_topics([("wide", 20_000)])
    route = await client.route("wide")
    assert [each.id for each in route.message_queues] == list(range(20_000))
    served.store.groups.create("fifo", SharedGroup(in_order=True))
    answer = await client.call.QueryAssignment(
        pb.QueryAssignmentRequest(
            topic=v2.Resource(name="wide"), group=v2.Resource(name="fifo"), endpoints=ENDPOINTS
        ),
        metadata=client.metadata,
    )
    assert len(answer.assignments) == 20_000


async def test_a_route_names_the_advertised_address(tmp_path: Path) -> None:
    async with serving(tmp_path, advertised_address="mq.example:9000") as served:
        route = await Client(served.channel).route("orders")
        endpoints = route.message_queues[0].broker.endpoints
        assert endpoints.scheme == v2.DOMAIN_NAME
        assert [(each.host, each.port) for each in endpoints.addresses] == [("mq.example", 9000)]


async def test_without_topics_made_on_first_use_a_route_is_not_found(tmp_path: Path) -> None:
    async with serving(tmp_path, store={"auto_create_topics": False}) as served:
        client = Client(served.channel)
        assert (await client.route("orders")).status.code == v2.TOPIC_NOT_FOUND
        answer = await client.send(client.message("orders"))
        assert (answer.status.code, len(answer.entries)) == (v2.TOPIC_NOT_FOUND, 0)


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        ("", v2.ILLEGAL_TOPIC),
        ("with blank", v2.ILLEGAL_TOPIC),
        ("x" * 300, v2.ILLEGAL_TOPIC),
        ("TBW102", v2.ILLEGAL_TOPIC),
        ("%DLQ%group", v2.TOPIC_NOT_FOUND),
    ],
)
async def test_no_topic_is_made_of_such_a_name(client: Client, topic: str, code: v2.Code) -> None:
    assert (await client.route(topic)).status.code == code


async def test_a_group_in_order_is_assigned_each_queue_and_others_any(
    served: Served, client: Client
) -> None:
    served.store.groups.create("fifo", SharedGroup(in_order=True, max_deliveries=None))
    for group, ids in (("fifo", [0, 1, 2, 3]), ("new", [-1])):
        answer = await client.call.QueryAssignment(
            pb.QueryAssignmentRequest(
                topic=v2.Resource(name="orders"),
                group=v2.Resource(name=group),
                endpoints=ENDPOINTS,
            ),
            metadata=client.metadata,
        )
        assert answer.status.code == v2.OK
        assert [each.message_queue.id for each in answer.assignments] == ids


TYPED: dict[MessageType, dict[str, Any]] = {
    MessageType.NORMAL: {},
    MessageType.FIFO: {"message_group": "g"},
    MessageType.DELAY: {"delivery_timestamp": Timestamp(seconds=1), "message_group": "g"},
    MessageType.TRANSACTION: {"message_type": v2.TRANSACTION},
    MessageType.LITE: {"lite_topic": "session"},
    MessageType.PRIORITY: {"priority": 1},
}


@pytest.mark.parametrize("topic_type", TYPED)
async def test_a_topic_of_a_type_takes_no_other_messages(
    served: Served, client: Client, topic_type: MessageType
) -> None:
    served.store.create_topics([("typed", 2)], types={"typed": topic_type})
    route = await client.route("typed")
    number = v2.MessageType.Value(topic_type.name)
    assert [list(each.accept_message_types) for each in route.message_queues] == [[number]] * 2
    for message_type, system in TYPED.items():
        answer = await client.send(client.message("typed", **system))
        fits = message_type == topic_type
        assert (answer.status.code != v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE) is fits
        if not fits:
            assert f"--type {message_type.name.lower()}" in answer.status.message


async def test_a_type_that_is_changed_counts_for_the_next_message(
    served: Served, client: Client
) -> None:
    await client.route("typed")
    for message_type, code in (
        (kvcq_pb2.MESSAGE_TYPE_FIFO, v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE),
        (kvcq_pb2.MESSAGE_TYPE_NORMAL, v2.OK),
    ):
        await served.topics.UpdateTopic(
            kvcq_pb2.UpdateTopicRequest(name="typed", message_type=message_type)
        )
        assert (await client.send(client.message("typed"))).status.code == code
