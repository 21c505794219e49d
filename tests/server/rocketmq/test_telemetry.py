"""The stream of a client: its settings are answered as it needs them, each time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from server.rocketmq import RocketmqService
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from server.rocketmq.telemetry import MOST_WAITING, Outbox, Streams, telemetry
from server.stage import Stage
from store.metadata import SharedGroup
from tests.server.rocketmq.client import Client
from tests.support.serving import serving
from tests.support.until import LIMIT_S, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Served

EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out
PRODUCER = v2.Settings(client_type=v2.PRODUCER, publishing=v2.Publishing())


def _consumer(language: v2.Language = v2.PYTHON, group: str = "g") -> v2.Settings:
    return v2.Settings(
        client_type=v2.PUSH_CONSUMER,
        subscription=v2.Subscription(group=v2.Resource(name=group)),
        user_agent=v2.UA(language=language),
    )


def streams_of(served: Served) -> Streams:
    service = served.serving.services[RocketmqService]
    assert isinstance(service, RocketmqService)
    return service._streams


async def test_settings_of_a_producer_are_answered_each_time(served: Served) -> None:
    client = Client(served.channel)
    beat = await client.call.Heartbeat(pb.HeartbeatRequest(), metadata=client.metadata)
    assert beat.status.code == v2.UNRECOGNIZED_CLIENT_TYPE
    stream = client.telemetry()
    for _ in range(2):
        answer = await client.settle(stream, PRODUCER)
        assert answer.status.code == v2.OK
        settings = answer.settings
        assert settings.publishing.max_body_size == served.store.config.max_body_bytes
        assert settings.publishing.validate_message_type
        assert settings.backoff_policy.max_attempts == 3
        assert settings.backoff_policy.WhichOneof("strategy") == "exponential_backoff"
        assert settings.client_type == v2.PRODUCER
    beat = await client.call.Heartbeat(pb.HeartbeatRequest(), metadata=client.metadata)
    assert beat.status.code == v2.OK
    await stream.done_writing()
    assert await stream.read() is EOF
    assert await stream.code() is grpc.StatusCode.OK
    ended = await client.call.NotifyClientTermination(
        pb.NotifyClientTerminationRequest(), metadata=client.metadata
    )
    assert ended.status.code == v2.OK
    beat = await client.call.Heartbeat(pb.HeartbeatRequest(), metadata=client.metadata)
    assert beat.status.code == v2.UNRECOGNIZED_CLIENT_TYPE


async def test_a_consumer_is_told_what_its_group_does(served: Served) -> None:
    client = Client(served.channel)
    served.store.groups.create(
        "fifo", SharedGroup(in_order=True, max_deliveries=5, backoff_ms=(2000, 7000))
    )
    stream = client.telemetry()
    told = (await client.settle(stream, _consumer(group="fifo"))).settings
    assert told.subscription.fifo
    assert told.backoff_policy.max_attempts == 5
    assert [each.seconds for each in told.backoff_policy.customized_backoff.next] == [2, 7]
    told = (await client.settle(stream, _consumer(group="new"))).settings
    assert not told.subscription.fifo
    assert told.subscription.long_polling_timeout.seconds == 20
    assert told.subscription.receive_batch_size == 32
    assert told.backoff_policy.max_attempts == 17
    assert len(told.backoff_policy.customized_backoff.next) == 18
    # Node understands no other policy.
    told = (await client.settle(stream, _consumer(v2.NODE_JS))).settings
    assert told.backoff_policy.exponential_backoff.initial.seconds == 1
    stream.cancel()


@pytest.mark.parametrize("settings", [v2.Settings(), v2.Settings(client_type=v2.PRODUCER)])
async def test_settings_of_nobody_end_the_stream_with_a_status(
    served: Served, settings: v2.Settings
) -> None:
    client = Client(served.channel)
    stream = client.telemetry()
    assert (await client.settle(stream, settings)).status.code == v2.BAD_REQUEST
    assert await stream.read() is EOF


async def test_streams_end_when_the_server_drains(tmp_path: Path) -> None:
    async with serving(tmp_path, drain_grace_s=60.0) as served:
        client = Client(served.channel)
        stream = client.telemetry()
        await client.settle(stream, PRODUCER)
        served.server.stop()
        async with asyncio.timeout(30):
            assert await stream.read() is EOF
        assert await stream.code() is grpc.StatusCode.OK


async def test_a_stream_that_opens_while_the_server_drains_ends_at_once() -> None:
    stage = Stage()
    stage.drain()

    async def silent() -> AsyncIterator[pb.TelemetryCommand]:
        await asyncio.Event().wait()
        yield pb.TelemetryCommand()

    async def settle(settings: v2.Settings) -> v2.Settings:
        return settings

    outbox = Outbox()
    async with asyncio.timeout(LIMIT_S):
        assert [each async for each in telemetry(silent(), stage, settle, outbox)] == []
        assert not await outbox.hand_over(pb.TelemetryCommand())


async def test_what_the_server_says_by_itself_comes_in_order_with_answers(served: Served) -> None:
    client = Client(served.channel, "c")
    streams = streams_of(served)
    told = pb.TelemetryCommand(reconnect_endpoints_command=pb.ReconnectEndpointsCommand(nonce="1"))
    assert not streams.tell(("", "c"), told), "there is no stream"
    stream = client.telemetry()
    await client.settle(stream, PRODUCER)
    (key,) = streams._outboxes
    assert streams.tell(key, told)
    assert await stream.read() == told
    assert (await client.settle(stream, PRODUCER)).HasField("settings")
    again = Client(served.channel, "c").telemetry()  # takes its place
    await client.settle(again, PRODUCER)
    assert streams.tell(key, told)
    assert await again.read() == told
    await stream.done_writing()
    assert await stream.read() is EOF
    assert streams.tell(key, told), "the end of the former one is not its end"
    again.cancel()
    await until(lambda: not streams.tell(key, told))


async def test_a_stream_that_is_not_read_is_told_no_more_and_holds_up_nobody(
    served: Served,
) -> None:
    client = Client(served.channel, "deaf")
    stream = client.telemetry()
    await client.settle(stream, PRODUCER)
    streams = streams_of(served)
    (key,) = streams._outboxes
    large = pb.ReconnectEndpointsCommand(nonce="n" * (1 << 20))
    told = pb.TelemetryCommand(reconnect_endpoints_command=large)
    await until(lambda: not streams.tell(key, told))
    assert len(streams._outboxes[key]._waiting) == MOST_WAITING
    writing = asyncio.create_task(_write_until_it_waits(stream))
    other = Client(served.channel, "other")
    assert (await other.settle(other.telemetry(), PRODUCER)).status.code == v2.OK
    writing.cancel()
    stream.cancel()
    await until(lambda: key not in streams._outboxes)


async def _write_until_it_waits(stream: Any) -> None:  # noqa: ANN401 - grpc's call
    while True:
        await stream.write(pb.TelemetryCommand(settings=PRODUCER))


async def test_streams_have_places_of_their_own(served: Served) -> None:
    streams = []
    for number in range(700):  # more than a connection has of other streams
        client = Client(served.channel, f"client-{number}")
        streams.append(client.telemetry())
        assert (await client.settle(streams[-1], PRODUCER)).status.code == v2.OK
    for stream in streams:
        stream.cancel()


async def test_behind_fronts_it_is_the_same(tmp_path: Path) -> None:
    async with serving(tmp_path, workers=2) as served:
        client = Client(served.channel)
        stream = client.telemetry()
        assert (await client.settle(stream, PRODUCER)).status.code == v2.OK
        await client.send(client.message("orders", b"x"))
        status, (got,) = await client.receive("g", "orders", poll_s=5)
        assert (status.code, got.body) == (v2.OK, b"x")
        assert (await client.route("not a topic")).status.code == v2.ILLEGAL_TOPIC
        await stream.done_writing()
        assert await stream.read() is EOF
