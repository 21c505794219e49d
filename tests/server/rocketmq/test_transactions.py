"""Transactions of RocketMQ's clients: sent, decided, and asked about on the telemetry stream."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from store.held import halves
from tests.server.rocketmq.client import Client
from tests.server.rocketmq.test_telemetry import EOF

if TYPE_CHECKING:
    from tests.support.serving import Served

ORDERS = v2.Settings(
    client_type=v2.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name="orders")])
)


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits before a transaction is asked about."""
    monkeypatch.setattr(halves, "FIRST_CHECK_MS", 0)


async def begin(client: Client, body: bytes = b"x", **system: Any) -> pb.SendResultEntry:  # noqa: ANN401
    message = client.message("orders", body, message_type=v2.TRANSACTION, **system)
    answer = await client.send(message)
    assert answer.status.code == v2.OK
    (entry,) = answer.entries
    assert entry.message_id == message.system_properties.message_id
    assert entry.transaction_id
    return entry


async def end(
    client: Client,
    transaction_id: str,
    resolution: v2.TransactionResolution,
    topic: str = "orders",
) -> v2.Code:
    request = pb.EndTransactionRequest(
        topic=v2.Resource(name=topic), transaction_id=transaction_id, resolution=resolution
    )
    answer = await client.call.EndTransaction(request, metadata=client.metadata)
    return answer.status.code  # type: ignore[no-any-return]


async def received(client: Client) -> list[v2.Message]:
    _, messages = await client.receive("g", "orders")
    return messages


async def test_what_is_committed_is_received_and_what_is_rolled_back_is_not(
    client: Client,
) -> None:
    kept, dropped = await begin(client, b"kept", tag="t", keys=["k"]), await begin(client)
    assert await received(client) == []
    assert await end(client, dropped.transaction_id, v2.ROLLBACK) == v2.OK
    assert await end(client, kept.transaction_id, v2.COMMIT) == v2.OK
    assert await end(client, kept.transaction_id, v2.COMMIT) == v2.OK
    (message,) = await received(client)
    system = message.system_properties
    assert (message.body, system.tag, list(system.keys)) == (b"kept", "t", ["k"])
    assert (system.message_id, system.message_type) == (kept.message_id, v2.TRANSACTION)
    assert not message.user_properties
    assert await end(client, kept.transaction_id, v2.ROLLBACK) == v2.INVALID_TRANSACTION_ID
    assert await end(client, dropped.transaction_id, v2.COMMIT) == v2.INVALID_TRANSACTION_ID


async def test_an_id_that_names_nothing_is_refused(client: Client) -> None:
    entry = await begin(client)
    for text in ("", " ", "nothing"):
        assert await end(client, text, v2.COMMIT) == v2.INVALID_TRANSACTION_ID
    assert await end(client, entry.transaction_id, v2.COMMIT, "other") == v2.INVALID_TRANSACTION_ID
    undecided = v2.TRANSACTION_RESOLUTION_UNSPECIFIED
    assert await end(client, entry.transaction_id, undecided) == v2.OK
    assert await received(client) == []
    assert await end(client, entry.transaction_id, v2.COMMIT) == v2.OK


@pytest.mark.usefixtures("at_once")
async def test_a_producer_that_named_the_topic_is_asked(served: Served) -> None:
    """The one that sent it is gone."""
    entry = await begin(Client(served.channel), b"orphan", tag="t", properties={"colour": "red"})
    client = Client(served.channel, "host@2@0@def")
    stream = client.telemetry()
    await client.settle(stream, ORDERS)
    command = (await stream.read()).recover_orphaned_transaction_command
    assert command.transaction_id == entry.transaction_id
    system = command.message.system_properties
    assert (command.message.topic.name, command.message.body) == ("orders", b"orphan")
    assert (system.message_id, system.tag) == (entry.message_id, "t")
    assert dict(command.message.user_properties) == {"colour": "red"}
    assert await end(client, command.transaction_id, v2.COMMIT) == v2.OK
    assert [each.body for each in await received(client)] == [b"orphan"]
    await stream.done_writing()
    while await stream.read() is not EOF:
        pass
    assert served.serving.checks.listening == 0


@pytest.mark.usefixtures("at_once")
async def test_nobody_is_asked_within_the_recovery_duration(served: Served, client: Client) -> None:
    await begin(client, orphaned_transaction_recovery_duration=Duration(seconds=3600))
    assert served.store.halves.due("orders") == []
    await begin(client)
    assert len(served.store.halves.due("orders")) == 1


@pytest.mark.parametrize(
    "system", [{"message_group": "g"}, {"delivery_timestamp": Timestamp(seconds=1)}]
)
async def test_a_transaction_has_no_group_and_no_time(
    client: Client, system: dict[str, Any]
) -> None:
    message = client.message("orders", message_type=v2.TRANSACTION, **system)
    answer = await client.send(message)
    assert answer.status.code == v2.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE


async def test_a_transaction_is_sent_by_itself(client: Client) -> None:
    messages = [client.message("orders", message_type=v2.TRANSACTION) for _ in range(2)]
    assert (await client.send(*messages)).status.code == v2.MESSAGE_CORRUPTED
