"""Puts of one message a call: one caller, or 64 of them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_bench.report import Goal
from kvcq_client import Message
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from tests.benchmarks.systems.bare import UNARY, JoinedCalls
from tests.benchmarks.timing import CALLERS, Timed, by_callers, one_at_a_time
from tests.benchmarks.work import AFTER_FSYNC, Work

if TYPE_CHECKING:
    from tests.benchmarks.systems.bare import BareStackClient
    from tests.benchmarks.systems.ours import KvcqClient
    from tests.peers.systems.nats import NatsClient
    from tests.peers.systems.redis import RedisClient
    from tests.peers.systems.rocketmq import ProxyClient

_LIMIT = {"limit_s": 1.5}
_BLOCKING, _ASYNCIO = "put, one at a time, blocking", "put, one at a time, asyncio"
_CALLERS, _UNARY = "put, 64 callers, one a call", "put, 64 unary calls in flight"
_ROCKETMQ = "moving here from RocketMQ must pay"

ONE = Work(
    _BLOCKING,
    "calls/s",
    "put_one",
    _LIMIT,
    [
        Goal(_BLOCKING, 5_000, "a web handler that puts one message should hardly wait"),
        Goal(
            _BLOCKING,
            2,
            "one handler in a hundred may wait this long, in ms",
            figure="p99",
            at_most=True,
        ),
        Goal(_BLOCKING, 2, _ROCKETMQ, of="rocketmq-files"),
        Goal(_BLOCKING, 2, _ROCKETMQ, of="rocketmq-rocksdb"),
    ],
    after_fsync=True,
)
ONE_ASYNCIO = Work(
    _ASYNCIO,
    "calls/s",
    "put_one_asyncio",
    _LIMIT,
    [
        Goal(_ASYNCIO, 7_000, "a web handler that puts one message should hardly wait"),
        Goal(
            _ASYNCIO,
            2,
            "one handler in a hundred may wait this long, in ms",
            figure="p99",
            at_most=True,
        ),
    ],
    after_fsync=True,
)
BY_CALLERS = Work(
    _CALLERS,
    "calls/s",
    "put_by_callers",
    _LIMIT,
    [
        Goal(
            _CALLERS,
            0.8,
            "the service may cost a quarter of what stack and store cost",
            of="bare-stack",
        ),
        Goal(
            _CALLERS + AFTER_FSYNC,
            0.9,
            "callers that wait together share an fsync",
            of_work=_CALLERS,
        ),
    ],
    after_fsync=True,
)
BY_UNARY_CALLS = Work(
    _UNARY,
    "calls/s",
    "put_unary",
    _LIMIT,
    [Goal(_UNARY, 0.8, "clients in other languages make such calls", of="bare-stack")],
)


@ONE.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    message = Message("one", client.body, 0)
    return one_at_a_time(lambda: client.blocking.put(message), limit_s)


@ONE.of("redis")
def _(client: RedisClient, limit_s: float) -> Timed:
    fields = {"b": client.body}
    return one_at_a_time(lambda: client.redis.xadd("one", fields), limit_s)


@ONE.of("rocketmq-proxy")
def _(client: ProxyClient, limit_s: float) -> Timed:
    return one_at_a_time(lambda: client.producer.send(client.message("one")), limit_s)


def _ours(client: KvcqClient, callers: int, limit_s: float) -> Timed:
    message = Message("callers", client.body, 0)

    async def run() -> Timed:
        async with client.asyncio() as calls:
            return await by_callers(lambda _: calls.put(message), callers, limit_s)

    return client.run(run())


@ONE_ASYNCIO.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _ours(client, 1, limit_s)


@BY_CALLERS.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    return _ours(client, CALLERS, limit_s)


@ONE_ASYNCIO.of("redis")
def _(client: RedisClient, limit_s: float) -> Timed:
    return client.by_callers(1, limit_s)


@BY_CALLERS.of("redis")
def _(client: RedisClient, limit_s: float) -> Timed:
    return client.by_callers(CALLERS, limit_s)


@ONE_ASYNCIO.of("nats")
def _(client: NatsClient, limit_s: float) -> Timed:
    return client.by_callers(1, limit_s)


@BY_CALLERS.of("nats")
def _(client: NatsClient, limit_s: float) -> Timed:
    return client.by_callers(CALLERS, limit_s)


@BY_CALLERS.of("rocketmq-proxy")
def _(client: ProxyClient, limit_s: float) -> Timed:
    return client.in_flight("callers", CALLERS, limit_s)


@ONE_ASYNCIO.of("bare-stack")
def _(client: BareStackClient, limit_s: float) -> Timed:
    return client.in_flight(lambda _: client.put, 1 << 40, 1, 1, limit_s)


@BY_CALLERS.of("bare-stack")
def _(client: BareStackClient, limit_s: float) -> Timed:
    async def work(channel: Any) -> Timed:  # noqa: ANN401 - the stubs ask for serializers
        calls = JoinedCalls(channel.stream_stream(client.path)(), client.put)
        timed = await by_callers(lambda _: calls.call(), CALLERS, limit_s)
        await calls.close()
        return timed

    return client.run(work)


@BY_UNARY_CALLS.of("kvcq")
def _(client: KvcqClient, limit_s: float) -> Timed:
    """With nothing but what gRPC makes of the proto."""
    import grpc

    message = pb.Message(topic="callers", queue_id=0, body=client.body)
    request = pb.PutRequest(message=message)

    async def run() -> Timed:
        async with grpc.aio.insecure_channel(client.address) as channel:
            stub = kvcq_pb2_grpc.MessageServiceStub(channel)

            async def one(_: int) -> None:
                await stub.Put(request)

            return await by_callers(one, CALLERS, limit_s)

    return client.run(run())


@BY_UNARY_CALLS.of("bare-stack")
def _(client: BareStackClient, limit_s: float) -> Timed:
    async def work(channel: Any) -> Timed:  # noqa: ANN401 - as above
        call = channel.unary_unary(UNARY)

        async def one(_: int) -> None:
            await call(client.put)

        return await by_callers(one, CALLERS, limit_s)

    return client.run(work)
