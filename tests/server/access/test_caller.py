"""server/access/caller.py over real gRPC: what changes while a stream is open."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from kvcq_client import (
    Client,
    Credentials,
    JobStatus,
    Message,
    PermissionDeniedError,
    Right,
    Role,
    UnauthenticatedError,
)
from kvcq_client.pb.v1 import access_pb2 as access
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.secured import Signer
from tests.support.held_jobs import HeldKind
from tests.support.users import client_of, refusal, secret_of

if TYPE_CHECKING:
    from tests.support.serving import Served


async def test_a_right_that_is_taken_away_stops_open_streams(served: Served) -> None:
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    batch = pb.PutBatchRequest(messages=[pb.Message(topic="orders", queue_id=0, body=b"x")])
    puts: Any = served.messages.PutStream(metadata=headers)
    reads: Any = served.messages.Subscribe(metadata=headers)
    calls: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls(metadata=headers)

    async def put() -> int:
        await puts.write(pb.PutStreamRequest(request_id=1, batch=batch))
        return int((await puts.read()).error.code)

    async def call(request: Any, method: str) -> int:  # noqa: ANN401 - a message
        one = pb.Call(id=1, method=method, request=request.SerializeToString())
        await calls.write(pb.CallsRequest(calls=[one]))
        return int((await calls.read()).results[0].error.code)

    pull = pb.PullRequest(topic="orders", queue_id=0, offset=0)
    assert await put() == 0
    assert await call(pull, "Pull") == 0
    start = pb.QueuePosition(topic="orders", queue_id=0, offset=0)
    await reads.write(pb.SubscribeRequest(add=[start], credit_bytes=1 << 20))
    assert (await reads.read()).queues[0].batch.messages[0].body == b"x"
    parked = asyncio.create_task(
        call(pb.PullRequest(topic="orders", queue_id=0, offset=1, wait_ms=20_000), "Pull")
    )

    async with client_of(served, "ops") as ops:
        rights = [
            Right(Role.SUBSCRIBE, topic="orders*"),
            Right(Role.PUBLISH, topic="orders*"),
        ]
        await ops.access.revoke("app", rights)
        assert await put() == 7
        await ops.put(Message("orders", b"not for them", queue_id=0))
        assert (await reads.read()).queues[0].error.reason == "PERMISSION_DENIED"
        assert await parked == 7
        assert await call(pull, "Pull") == 7
        await ops.access.grant("app", rights)
        assert await put() == 0
        assert await call(pull, "Pull") == 0
    for stream in (puts, reads, calls):
        stream.cancel()


@pytest.mark.parametrize("change", ["delete", "rotate", "delete and make again"])
async def test_a_user_that_is_gone_is_gone_from_open_streams(served: Served, change: str) -> None:
    async with client_of(served, "ops") as ops, client_of(served, "app") as app:
        await app.put(Message("orders", b"x"))
        if change == "rotate":
            assert await ops.access.rotate_secret("app", "a-new-secret") == "a-new-secret"
        else:
            await ops.access.delete_user("app")
        if change == "delete and make again":
            await ops.access.create_user("app", secret="a-new-secret")
        with pytest.raises(UnauthenticatedError, match="deleted, or has a new secret"):
            await app.put(Message("orders", b"x"))
        await refusal(app)
        await ops.put(Message("orders", b"the rest goes on"))
        if change != "delete":
            async with client_of(served, "app", "a-new-secret") as again:
                assert (await again.access.who_am_i()).name == "app"


@pytest.mark.parametrize("change", ["delete", "rotate"])
async def test_an_open_stream_is_no_way_back_for_a_user_that_is_gone(
    served: Served, change: str
) -> None:
    """As of one whose secret leaked: whoever has it may have a stream open."""
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    calls: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls(metadata=headers)

    async def reason_of(method: str, request: Any) -> str:  # noqa: ANN401 - a message
        one = pb.Call(id=1, method=method, request=request.SerializeToString())
        await calls.write(pb.CallsRequest(calls=[one]))
        return str((await calls.read()).results[0].error.reason)

    assert await reason_of("Echo", pb.EchoRequest()) == ""
    async with client_of(served, "ops") as ops:
        if change == "rotate":
            await ops.access.rotate_secret("app", "a-new-secret")
        else:
            await ops.access.delete_user("app")
    asked: list[tuple[str, Any]] = [
        ("RotateSecret", access.RotateSecretRequest(user="app", secret="taken-over")),
        ("GetUser", access.GetUserRequest(user="app")),
        ("WhoAmI", access.WhoAmIRequest()),
        ("GetStatistics", pb.GetStatisticsRequest()),
        ("Echo", pb.EchoRequest()),
    ]
    for method, request in asked:
        assert await reason_of(method, request) == "UNAUTHENTICATED", method
    calls.cancel()
    if change == "rotate":
        async with client_of(served, "app", "a-new-secret") as app:
            assert (await app.access.who_am_i()).name == "app"


async def test_whoever_watches_a_job_is_asked_again(served: Served) -> None:
    kind = served.serving.jobs.jobs._kinds["compact"] = HeldKind()
    async with client_of(served, "ops") as ops:
        await ops.access.create_user("second", admin=True, secret=secret_of("second"))
        job_id = (await ops.jobs.compact()).job_id
        async with client_of(served, "second") as second:
            watching = aiter(second.jobs.watch(job_id))
            while (job := await anext(watching)).step != "half":
                assert job.status is JobStatus.RUNNING
            await ops.access.delete_user("second")
            kind.end.set()
            with pytest.raises(UnauthenticatedError, match="deleted"):
                await anext(watching)


async def test_the_stream_of_a_blocking_caller_is_its_users(served: Served) -> None:
    def work() -> None:
        app = Credentials("app", secret_of("app"))
        with Client(served.target, credentials=app) as client:
            while client._connection.call_stream.own is None:
                client.put(Message("orders", b"x"))
            client.put(Message("orders", b"x"))
            with pytest.raises(PermissionDeniedError):
                client.put(Message("payments", b"x"))
            assert client._connection.call_stream.own is not None, "a refusal is an answer"

    await asyncio.to_thread(work)
