"""server/access/limits.py over real gRPC: limits of one user leave the others alone."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvcq_client import BusyError, Credentials, Message
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport import call_stream, connection
from kvcq_client.transport.secured import Signer
from server.access import Limits
from server.edge import CallKind
from server.services import health
from tests.support.rpc_errors import error_info
from tests.support.until import until
from tests.support.users import client_of, secret_of, users_of

if TYPE_CHECKING:
    from tests.support.serving import Served


async def test_limits_hold_one_user_back_and_no_other(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    users = users_of(served)
    users.set_limits("app", Limits(messages_per_s=50))
    async with client_of(served, "app") as app, client_of(served, "ops") as ops:
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        async with app.producer(batch_messages=20) as producer:
            for number in range(100):
                await producer.send("orders", b"%d" % number)
        for _ in range(200):
            await ops.put(Message("orders", b"x"))
        assert loop.time() - begun_s >= 0.5
        users.set_limits("app", Limits(bytes_per_s=1))
        headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
        put = pb.PutRequest(message=pb.Message(topic="orders", body=b"x" * 1000))
        await served.messages.Put(put, metadata=headers)  # paid for within a quarter of an hour
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await served.messages.Put(put, metadata=headers)
        assert error_info(refused.value).reason == "USER_LIMIT"
        monkeypatch.setattr(connection, "FIRST_WAIT_S", 60.0)  # it is told of the first refusal
        with pytest.raises(BusyError, match="1 bytes per s"):
            await app.put(Message("orders", b"x"), timeout_s=20.0)


async def test_connections_and_calls_of_a_user_are_limited(served: Served) -> None:
    users = users_of(served)
    users.set_limits("app", Limits(connections=1, calls=2))
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    put = pb.PutRequest(message=pb.Message(topic="orders", queue_id=1, body=b"x"))

    async def refusal_on(channel: grpc.aio.Channel) -> str:
        stub: Any = kvcq_pb2_grpc.MessageServiceStub(channel)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await stub.Put(put, metadata=headers)
        assert error_info(refused.value).reason == "USER_LIMIT"
        return refused.value.details() or ""

    # gRPC shares connections of one process otherwise.
    apart = grpc.aio.insecure_channel(served.target, options=(("grpc.channel_id", 2),))
    async with apart, client_of(served, "app") as app:
        await app.put(Message("orders", b"x", queue_id=1))  # its stream stays open
        assert "1 connections" in await refusal_on(apart)
        pulls = [asyncio.create_task(app.pull("orders", 0, 0, wait_s=30.0)) for _ in range(2)]
        await until(lambda: served.server._edge.gate.under_way(CallKind.PULL) >= 2)
        assert "2 calls" in await refusal_on(served.channel)
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        users.set_limits("app", Limits())
        await kvcq_pb2_grpc.MessageServiceStub(apart).Put(put, metadata=headers)


async def test_who_may_make_one_call_at_a_time_makes_many(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A client that calls often has more streams open, which are no calls."""
    monkeypatch.setattr(call_stream, "CALLS_BEFORE", 3)
    users_of(served).set_limits("app", Limits(calls=1))
    async with client_of(served, "app") as app:
        while app._connection.call_stream.own is None:
            await app.put(Message("orders", b"x", queue_id=1))
        await app.put(Message("orders", b"x", queue_id=1))


@pytest.mark.parametrize("shared", [False, True], ids=["calls", "stream"])
async def test_what_is_refused_counts_as_well(served: Served, *, shared: bool) -> None:
    users_of(served).set_limits("app", Limits(bytes_per_s=100))
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    put = pb.PutRequest(message=pb.Message(topic="not-theirs", body=b"x" * 1000))
    reasons = []
    if shared:
        calls: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls(metadata=headers)
        for number in range(2):
            one = pb.Call(id=number, method="Put", request=put.SerializeToString())
            await calls.write(pb.CallsRequest(calls=[one]))
            reasons.append((await calls.read()).results[0].error.reason)
        calls.cancel()
    else:
        for _ in range(2):
            with pytest.raises(grpc.aio.AioRpcError) as refused:
                await served.messages.Put(put, metadata=headers)
            reasons.append(error_info(refused.value).reason)
    assert reasons == ["PERMISSION_DENIED", "USER_LIMIT"]


async def test_strangers_that_watch_health_leave_streams_to_users(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(health, "MAX_WATCHERS", 2)
    stub: Any = health_pb2_grpc.HealthStub(served.channel)
    watching = [stub.Watch(health_pb2.HealthCheckRequest()) for _ in range(2)]
    for each in watching:
        assert (await each.read()).status == health_pb2.HealthCheckResponse.SERVING
    with pytest.raises(grpc.aio.AioRpcError) as refused:
        await stub.Watch(health_pb2.HealthCheckRequest()).read()
    assert error_info(refused.value).reason == "TOO_MANY_CALLS"
    watching[0].cancel()
    await until(lambda: served.server._edge.gate.under_way(CallKind.STREAM) <= 1)
    again = stub.Watch(health_pb2.HealthCheckRequest())
    assert (await again.read()).status == health_pb2.HealthCheckResponse.SERVING
    for each in (watching[1], again):
        each.cancel()
