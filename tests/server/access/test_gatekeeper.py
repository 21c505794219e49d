"""server/access/gatekeeper.py over real gRPC: who is let in."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client import (
    AsyncClient,
    Credentials,
    Message,
    NotPossibleError,
    PermissionDeniedError,
    Start,
)
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.secured import Signer
from server.access.gatekeeper import MAX_SKEW_S
from tests.support.users import client_of, refusal, secret_of, users_of

if TYPE_CHECKING:
    from tests.support.serving import Served


async def test_users_work_within_their_rights(served: Served) -> None:
    async with client_of(served, "app") as app, client_of(served, "reader") as reader:
        async with app.producer() as producer:
            await producer.send("orders", b"one")
        await app.put(Message("orders", b"two"))
        async with await app.consumer(
            "orders", reader_group="billing", start=Start.EARLIEST
        ) as consumer:
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


async def test_wrong_credentials_are_refused_and_the_rest_goes_on(served: Served) -> None:
    async with client_of(served, "app") as app:
        await app.statistics()
        async with AsyncClient(served.target, timeout_s=5) as nobody:
            assert "only accepts signed calls" in await refusal(nobody)
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
        assert "synchronize the clocks" in (refused.value.details() or "")
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
        keeper.authenticate(signer.headers(), "kvcq.v1.MessageService", needs_user=True)
    assert len(keeper._good) <= 4096
    assert users.find("app") is not None
