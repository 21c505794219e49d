"""server/access/ as a whole over real gRPC: credentials, open streams, limits, the audit."""

from __future__ import annotations

import asyncio
import json
import logging
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc
import pytest
import pytest_asyncio
from grpc_health.v1 import health_pb2, health_pb2_grpc

from kvcq_client import (
    AsyncClient,
    Credentials,
    Message,
    NotPossibleError,
    PermissionDeniedError,
    Queue,
    ResourceExhaustedError,
    Start,
    UnauthenticatedError,
)
from kvcq_client.pb.v1 import access_pb2 as access
from kvcq_client.pb.v1 import jobs_pb2, kvcq_pb2_grpc
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.secured import Signer
from server.access import AUDIT, Gatekeeper, Kind, Limits, Role, audit
from server.access.gatekeeper import MAX_SKEW_S
from server.edge import CallKind
from server.errors import KeyFileError
from server.errors import UnauthenticatedError as ServerUnauthenticatedError
from server.process import LineLimit
from server.services import health
from server.stage import Stage
from store.errors import InvalidArgumentError
from tests.support.held_jobs import HeldKind
from tests.support.rpc_errors import error_info
from tests.support.serving import serving
from tests.support.users import ADMIN, add_users, client_of, guarded, secret_of, users_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.support.serving import Served


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    rights = {
        "app": ["publish topic orders*", "subscribe topic orders*", "subscribe group billing"],
        "reader": ["subscribe topic orders", "subscribe topic %LMQ%me"],
    }
    async with guarded(tmp_path / "store", rights) as running:
        yield running


async def refusal(client: AsyncClient) -> str:
    with pytest.raises(UnauthenticatedError) as refused:
        await client.statistics()
    return str(refused.value)


# --- credentials ---------------------------------------------------------------------------


async def test_users_work_within_their_rights(served: Served) -> None:
    async with client_of(served, "app") as app, client_of(served, "reader") as reader:
        async with app.producer() as producer:
            await producer.send("orders", b"one")
        await app.put(Message("orders", b"two"))
        async with await app.consumer("orders", group="billing", start=Start.EARLIEST) as consumer:
            assert len([message async for message in consumer.to_end()]) == 2
            await consumer.commit()
        async with await reader.consumer("orders", start=Start.EARLIEST) as consumer:
            assert len([message async for message in consumer.to_end()]) == 2
        with pytest.raises(PermissionDeniedError, match="kvcq acl grant reader publish --topic"):
            await reader.put(Message("orders", b"three"))
        with pytest.raises(PermissionDeniedError, match="may not publish to topic '%LMQ%me'"):
            await app.put(Message("orders", b"x", light_queues=("%LMQ%me",)))
        async with app.producer() as producer:
            sending = await producer.send("payments", b"not ours")
            with pytest.raises(PermissionDeniedError):
                await sending
            await (await producer.send("orders", b"goes on"))


async def test_wrong_credentials_are_refused_and_the_rest_goes_on(served: Served) -> None:
    async with client_of(served, "app") as app:
        await app.statistics()
        async with AsyncClient(served.target, timeout_s=5) as nobody:
            assert "signed calls alone" in await refusal(nobody)
            await nobody.ping()
        told = set()
        for name, secret in (("app", "wrong-secret"), ("unknown", "any-secret"), ("APP", None)):
            async with client_of(served, name, secret) as other:
                told.add(await refusal(other))
        assert len(told) == 1, "a wrong secret is not told from a wrong name"
        await app.put(Message("orders", b"x"))


async def test_strangers_cost_next_to_nothing(served: Served) -> None:
    """A large request is refused before it is read; a crowd of them holds no user up."""
    large = pb.PutBatchRequest(messages=[pb.Message(topic="orders", body=bytes(1 << 20))] * 8)
    memory = served.server._edge.memory
    wrong: Any = Signer(Credentials("app", "wrong-secret")).headers()

    async def refused(request: pb.PutBatchRequest) -> grpc.StatusCode:
        with pytest.raises(grpc.aio.AioRpcError) as error:
            await served.messages.PutBatch(request, metadata=wrong)
        return error.value.code()

    taken = memory.was_used
    used = 0

    def was_used() -> None:
        nonlocal used
        used += 1
        taken()

    memory.was_used = was_used  # type: ignore[method-assign] # called for each large request read
    small = pb.PutBatchRequest(messages=[pb.Message(topic="orders", body=b"x")])
    async with client_of(served, "app") as app:
        crowd = [asyncio.create_task(refused(small)) for _ in range(300)]
        crowd += [asyncio.create_task(refused(large)) for _ in range(4)]
        for number in range(50):
            await app.put(Message("orders", b"%d" % number))
        codes = await asyncio.gather(*crowd)
    assert set(codes[:300]) == {grpc.StatusCode.UNAUTHENTICATED}
    # Where the client was still sending, gRPC may tell it of the end in another way.
    assert grpc.StatusCode.OK not in codes
    assert used == 0


async def test_altered_signatures_are_refused(served: Served) -> None:
    good = dict(Signer(Credentials("app", secret_of("app"))).headers())
    ask = served.admin.GetStatistics
    await ask(pb.GetStatisticsRequest(), metadata=tuple(good.items()))
    signed = good["authorization"]
    last = "0" if signed[-1] != "0" else "1"
    altered = [
        {**good, "authorization": signed[:-1] + last},
        {**good, "authorization": signed.replace("=app,", "=ops,")},
        {**good, "x-mq-date-time": good["x-mq-date-time"][:-2] + "0Z"}
        if good["x-mq-date-time"][-2] != "0"
        else {**good, "x-mq-date-time": good["x-mq-date-time"][:-2] + "1Z"},
        {"authorization": signed},
        {"x-mq-date-time": good["x-mq-date-time"]},
    ]
    for each in altered:
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(pb.GetStatisticsRequest(), metadata=tuple(each.items()))
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
    await ask(pb.GetStatisticsRequest(), metadata=tuple(good.items()))


async def test_a_signature_cannot_be_used_for_ever(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also one that was good before, and is remembered; a clock that is off is told apart."""
    keeper = served.server._gatekeeper
    assert keeper is not None
    begun_s = keeper._now_s()
    headers = Signer(Credentials("app", secret_of("app")), now_s=lambda: begun_s).headers()
    ask = served.admin.GetStatistics
    await ask(pb.GetStatisticsRequest(), metadata=headers)
    for later_s in (MAX_SKEW_S + 2, -MAX_SKEW_S - 2, 3600):
        monkeypatch.setattr(keeper, "_now_s", partial(float, begun_s + later_s))
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await ask(pb.GetStatisticsRequest(), metadata=headers)
        assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED
        assert "set the clocks" in (refused.value.details() or "")
    monkeypatch.setattr(keeper, "_now_s", lambda: begun_s + MAX_SKEW_S - 2)
    await ask(pb.GetStatisticsRequest(), metadata=headers)


async def test_good_signatures_alone_are_remembered_and_not_without_end(
    served: Served, monkeypatch: pytest.MonkeyPatch
) -> None:
    keeper = served.server._gatekeeper
    assert keeper is not None
    async with client_of(served, "app", "wrong-secret") as wrong:
        await refusal(wrong)
    assert not keeper._good
    users = users_of(served)
    begun_s = keeper._now_s()
    for second in range(4100):
        now_s = begun_s + second
        signer = Signer(Credentials("app", secret_of("app")), now_s=partial(float, now_s))
        monkeypatch.setattr(keeper, "_now_s", partial(float, now_s))
        keeper.let_in(signer.headers(), "kvcq.v1.MessageService", needs_user=True)
    assert len(keeper._good) <= 4096
    assert users.find("app") is not None


# --- what changes while a stream is open ---------------------------------------------------


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
            access.AccessRight(role=access.ROLE_SUBSCRIBE, topic="orders*"),
            access.AccessRight(role=access.ROLE_PUBLISH, topic="orders*"),
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
                assert (await again.access.who_am_i()).user == "app"


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
            assert (await app.access.who_am_i()).user == "app"


async def test_whoever_watches_a_job_is_asked_again(served: Served) -> None:
    kind = served.serving.jobs.jobs._kinds["compact"] = HeldKind()
    async with client_of(served, "ops") as ops:
        await ops.access.create_user("second", admin=True, secret=secret_of("second"))
        job_id = (await ops.jobs.compact()).job_id
        async with client_of(served, "second") as second:
            watching = aiter(second.jobs.watch(job_id))
            while (job := await anext(watching)).step != "half":
                assert job.status == jobs_pb2.JOB_STATUS_RUNNING
            await ops.access.delete_user("second")
            kind.end.set()
            with pytest.raises(UnauthenticatedError, match="deleted"):
                await anext(watching)


# --- managing ------------------------------------------------------------------------------


async def test_users_are_managed_over_the_network(served: Served) -> None:
    async with client_of(served, "ops") as ops:
        secret = await ops.access.create_user("new", limits=access.UserLimits(calls=5))
        assert len(secret) >= 40
        await ops.access.grant("new", [access.AccessRight(role=access.ROLE_ADMIN, topic="new-*")])
        assert [user.user for user in await ops.access.users()] == ["app", "new", "ops", "reader"]
        async with client_of(served, "new", secret) as new:
            await new.create_topic("new-one", 1)
            await new.put(Message("new-one", b"x"))
            own = await new.access.user("new")
            assert own == await new.access.who_am_i()
            assert own.limits.calls == 5
            secret = await new.access.rotate_secret("new")
            await refusal(new)
        async with client_of(served, "new", secret) as new:
            await new.delete_topic("new-one")
            for forbidden in (
                new.access.users(),
                new.access.user("app"),
                new.access.rotate_secret("app"),
                new.access.create_user("mine", admin=True),
                new.access.grant("new", own.rights),
            ):
                with pytest.raises(PermissionDeniedError):
                    await forbidden
        with pytest.raises(NotPossibleError, match="only administrator"):
            await ops.access.delete_user("ops")


async def test_pages_of_users(served: Served) -> None:
    headers: Any = Signer(ADMIN).headers()
    ask: Any = served.channel.unary_unary(
        "/kvcq.v1.AccessService/ListUsers",
        access.ListUsersRequest.SerializeToString,
        access.ListUsersResponse.FromString,
    )
    names, token = [], ""
    while True:
        page = await ask(access.ListUsersRequest(page_size=2, page_token=token), metadata=headers)
        names += [user.user for user in page.users]
        if not (token := page.next_page_token):
            break
    assert names == ["app", "ops", "reader"]


async def test_rights_that_mean_nothing_are_refused(served: Served) -> None:
    topic = access.AccessRight(role=access.ROLE_ADMIN, topic="t")
    wrong = {
        "rights": [],
        "rights[1].role": [topic, access.AccessRight(topic="t")],
        "rights[0]": [access.AccessRight(role=access.ROLE_ADMIN)],
        "rights[0].pattern": [access.AccessRight(role=access.ROLE_ADMIN, topic="a*b")],
    }
    async with client_of(served, "ops") as ops:
        for field, rights in wrong.items():
            with pytest.raises(Exception) as refused:  # noqa: PT011 - its field says which
                await ops.access.grant("app", rights)
            assert getattr(refused.value, "field", "") == field
        assert len((await ops.access.user("app")).rights) == 3


async def test_without_access_nobody_manages_users_and_everybody_is_served(
    tmp_path: Path,
) -> None:
    async with serving(tmp_path) as served, AsyncClient(served.target) as client:
        with pytest.raises(NotPossibleError, match="--access"):
            await client.access.create_user("planted", admin=True)
        await client.put(Message("orders", b"x"))
        assert served.store.metadata.states("access.") == []


async def test_a_store_without_an_administrator_is_not_served(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="kvcq user add admin --admin --data"):
        async with serving(tmp_path / "store", access=True):
            pytest.fail("it must not become ready")
    async with serving(tmp_path / "store") as served:
        assert served.store.metadata.states("access.") == []


async def test_users_stay_over_a_restart(tmp_path: Path) -> None:
    async with (
        guarded(tmp_path / "store", {"app": ["admin topic *"]}) as served,
        client_of(served, "app") as app,
    ):
        await app.put(Message("orders", b"x"))
    async with (
        serving(tmp_path / "store", access=True) as served,
        client_of(served, "app") as app,
    ):
        assert [topic.name async for topic in app.topics()] == ["orders"]


async def test_a_change_while_a_caller_is_let_in_is_noticed(served: Served) -> None:
    users = users_of(served)

    class Late:
        """Deletes the user after it was looked up, before the call begins."""

        generation = property(lambda _: users.generation)

        def find(self, name: str) -> object:
            found = users.find(name)
            if found is not None:
                users.delete(name)
            return found

    gatekeeper = Gatekeeper(Stage())
    gatekeeper.users = Late()  # type: ignore[assignment] # as far as it is asked
    signer = Signer(Credentials("app", secret_of("app")))
    caller = gatekeeper.let_in(signer.headers(), "kvcq.v1.MessageService", needs_user=True)
    with pytest.raises(ServerUnauthenticatedError, match="deleted"):
        caller.check(Role.PUBLISH, Kind.TOPIC, "orders")


async def test_a_store_without_its_key_gets_no_new_one(tmp_path: Path) -> None:
    add_users(tmp_path / "store", {})
    key = tmp_path / "store.key"
    key.rename(tmp_path / "kept")
    with pytest.raises(KeyFileError, match="is missing, and the store has users"):
        async with serving(tmp_path / "store", access=True):
            pytest.fail("it must not become ready")
    assert not key.exists()
    (tmp_path / "kept").rename(key)
    async with (
        serving(tmp_path / "store", access=True) as served,
        client_of(served, "ops") as ops,
    ):
        await ops.statistics()


# --- limits --------------------------------------------------------------------------------


async def test_limits_hold_one_user_back_and_no_other(served: Served) -> None:
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
        with pytest.raises(ResourceExhaustedError, match="1 bytes per s"):
            await app.put(Message("orders", b"x"), timeout_s=1.0)


async def test_connections_and_calls_of_a_user_are_limited(served: Served) -> None:
    users = users_of(served)
    users.set_limits("app", Limits(connections=1, calls=3))
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
        while served.server._edge.gate.under_way(CallKind.PULL) < 2:
            await asyncio.sleep(0)
        assert "3 calls" in await refusal_on(served.channel)
        for pull in pulls:
            pull.cancel()
        await asyncio.gather(*pulls, return_exceptions=True)
        users.set_limits("app", Limits())
        await kvcq_pb2_grpc.MessageServiceStub(apart).Put(put, metadata=headers)


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
    while served.server._edge.gate.under_way(CallKind.STREAM) > 1:
        await asyncio.sleep(0)
    again = stub.Watch(health_pb2.HealthCheckRequest())
    assert (await again.read()).status == health_pb2.HealthCheckResponse.SERVING
    for each in (watching[1], again):
        each.cancel()


# --- audit ---------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[dict[str, Any]]:
    return [json.loads(record.message) for record in caplog.records if record.name == AUDIT]


async def test_refusals_and_acts_are_audited(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with client_of(served, "ops") as ops, client_of(served, "reader") as reader:
        secret = await ops.access.create_user("new", secret="a-secret-nobody-sees")
        await ops.access.grant("new", [access.AccessRight(role=access.ROLE_PUBLISH, topic="a*")])
        await ops.create_topics(["orders", "a1"])
        await reader.statistics()
        with pytest.raises(PermissionDeniedError):
            await reader.delete_topic("orders")
        with pytest.raises(PermissionDeniedError):
            await reader.put(Message("orders", b"a-body-nobody-sees"))
        with pytest.raises(Exception, match="no user"):
            await ops.access.delete_user("never")
    async with client_of(served, "reader", "wrong-secret") as wrong:
        await refusal(wrong)
    async with AsyncClient(served.target) as nobody:
        await refusal(nobody)
    found = lines(caplog)
    assert [(one["event"], one.get("user"), one["method"]) for one in found] == [
        ("done", "ops", "CreateUser"),
        ("done", "ops", "Grant"),
        ("done", "ops", "CreateTopics"),
        ("refused", "reader", "DeleteTopic"),
        ("refused", "reader", "Put"),
        ("failed", "ops", "DeleteUser"),
        ("refused", "reader", "GetStatistics"),
        ("refused", None, "GetStatistics"),
    ]
    assert found[0]["target"] == ["new"]
    assert found[1]["target"] == ["new", "publish topic a*"]
    assert found[2]["target"] == ["orders", "a1"]
    assert [one.get("reason") for one in found[3:]] == [
        "PERMISSION_DENIED",
        "PERMISSION_DENIED",
        "UNKNOWN_USER",
        "UNAUTHENTICATED",
        "UNAUTHENTICATED",
    ]
    for one in found:
        assert one["peer"].startswith("ipv4:127.0.0.1:")
        assert one["requestId"]
        assert one["time"].endswith("Z")
    assert secret not in caplog.text
    assert "a-body" not in caplog.text


async def test_a_caller_that_never_stops_does_not_fill_the_disk(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0
    monkeypatch.setattr(audit, "_limit", LineLimit(audit.AT_ONCE, lambda: now_s))
    caplog.set_level(logging.INFO, AUDIT)
    topics = (f"not-theirs-{number}" for number in count())
    headers: Any = Signer(Credentials("app", secret_of("app"))).headers()
    calls: Any = kvcq_pb2_grpc.CallServiceStub(served.channel).Calls(metadata=headers)

    async def flood() -> None:
        puts = [pb.PutRequest(message=pb.Message(topic=next(topics), body=b"x")) for _ in range(60)]
        many = [
            pb.Call(id=number, method="Put", request=put.SerializeToString())
            for number, put in enumerate(puts)
        ]
        await calls.write(pb.CallsRequest(calls=many))
        left = len(many)
        while left:
            left -= len((await calls.read()).results)

    for _ in range(5):
        await flood()
    assert len(lines(caplog)) == audit.AT_ONCE
    async with client_of(served, "reader") as reader:
        with pytest.raises(PermissionDeniedError):
            await reader.put(Message("orders", b"x"))
    assert lines(caplog)[-1]["user"] == "reader", "others are still heard of"
    now_s = 1.0
    await flood()
    assert [one.get("leftOut") for one in lines(caplog)[audit.AT_ONCE + 1 :]] == [200]
    calls.cancel()


async def test_a_producer_id_is_its_users_own(served: Served) -> None:
    async with client_of(served, "app") as app, client_of(served, "ops") as ops:

        async def put(client: AsyncClient, sequence: int, body: bytes) -> bool:
            message = Message("orders", body)
            return await client.put_numbered([message], producer_id="p", sequence=sequence)

        assert not await put(app, 0, b"app's")
        assert await ops.stored_batch("p", 0) is None
        assert not await put(ops, 0, b"ops'")
        assert await put(app, 0, b"app's"), "the other one's is in nobody's way"
        assert not await put(app, 1, b"app's")
        with pytest.raises(NotPossibleError, match="OUT_OF_SEQUENCE"):
            await put(ops, 2, b"as if it were app's")
        mine = await app.stored_batch("p", 0)
        assert mine is not None
        assert [message.body for message in mine.messages] == [b"app's"]
        found = served.store.batches.find("app/p", 1)
        assert found is not None


async def test_who_may_not_list_all_topics_is_told_what_may_be_listed(served: Served) -> None:
    async with client_of(served, "app") as app, client_of(served, "reader") as reader:
        with pytest.raises(PermissionDeniedError, match="kvcq topic list --prefix orders"):
            [topic async for topic in app.topics()]
        assert [topic async for topic in app.topics("orders")] == []
        with pytest.raises(PermissionDeniedError) as refused:
            [topic async for topic in reader.topics()]
        assert "--prefix" not in str(refused.value)


async def test_the_same_refusal_is_one_line_a_minute_with_a_count(
    served: Served, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subscription is refused once for each queue of the topic, and tried again."""
    now_s = 0.0
    monkeypatch.setattr(audit, "_same", LineLimit(1, lambda: now_s, audit.SAME_S))
    caplog.set_level(logging.INFO, AUDIT)
    queues = {Queue("not-theirs", number): 0 for number in range(8)}

    async def refused(*wanted: Queue) -> None:
        async with (
            client_of(served, "app") as app,
            await app.consumer(dict.fromkeys(wanted, 0)) as consumer,
        ):
            for _ in wanted:
                with pytest.raises(PermissionDeniedError):
                    await consumer.batch(10.0)

    await refused(*queues)
    await refused(*queues)
    [line] = lines(caplog)
    assert "leftOut" not in line
    await refused(Queue("nor-this", 0))
    assert len(lines(caplog)) == 2, "another refusal is not hidden"
    now_s = audit.SAME_S
    await refused(*queues)
    assert [one.get("leftOut") for one in lines(caplog)] == [None, None, 15]


async def test_a_long_act_is_one_short_line(
    served: Served, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, AUDIT)
    async with client_of(served, "ops") as ops:
        await ops.create_topics({f"t{number}-" + "x" * 80: 1 for number in range(500)})
    [line] = lines(caplog)
    assert line["target"][-1] == "and 480 more"
    assert len(json.dumps(line)) < 3000
