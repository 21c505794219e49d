"""Reads of a whole queue: through the consumer, and by pulls of one call at a time."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import Queue
from tests.benchmarks.systems.bare import pulling, read
from tests.benchmarks.timing import Timed, in_pulls
from tests.benchmarks.work import Work
from tests.benchmarks.works.b_batches import MESSAGES, PUT_BATCHES

if TYPE_CHECKING:
    from tests.benchmarks.systems.bare import BareStackClient
    from tests.benchmarks.systems.ours import KvcqClient
    from tests.peers.systems.nats import NatsClient
    from tests.peers.systems.redis import RedisClient
    from tests.peers.systems.rocketmq import ProxyClient

_CONSUMER, _MANY, _FEW = "read back, consumer", "pull, 512 a call", "pull, 32 a call"
#: Of a consumer: what it reads at once, and the answers that its 32 MiB ahead of it hold.
_CONSUMED, _AHEAD = 512, 56
_ROCKETMQ = "the log format is the same"

READ_BACK = Work(
    _CONSUMER,
    "messages/s",
    "read_back",
    {"queue": "read", "count": MESSAGES},
    [
        Goal(_CONSUMER, 250_000, "a reader must keep pace with two producers"),
        Goal(_CONSUMER, 2.5, "Redis sends only on request, a consumer reads ahead", of="redis"),
        Goal(_CONSUMER, 1.3, _ROCKETMQ, of="rocketmq-files"),
        Goal(_CONSUMER, 1.3, _ROCKETMQ, of="rocketmq-rocksdb"),
    ],
    reads=PUT_BATCHES,
)


def _pull(name: str, each: int, count: int, *goals: Goal) -> Work:
    arguments = {"queue": "read", "each": each, "count": count}
    return Work(name, "messages/s", "pull", arguments, list(goals), reads=PUT_BATCHES)


PULL_MANY = _pull(
    _MANY,
    512,
    MESSAGES,
    Goal(_MANY, 1, _ROCKETMQ, of="rocketmq-files"),
    Goal(_MANY, 3, "it looks up each unit of its RocksDB queues", of="rocketmq-rocksdb"),
)
PULL_FEW = _pull(
    _FEW,
    32,
    MESSAGES // 3,
    Goal(_FEW, 1, _ROCKETMQ, of="rocketmq-files"),
    Goal(_FEW, 1, _ROCKETMQ, of="rocketmq-rocksdb"),
)


@READ_BACK.of("kvcq")
def _(client: KvcqClient, queue: str, count: int) -> Timed:
    seen = 0
    began_s = perf_counter()
    with client.blocking.consumer({Queue(queue, 0): 0}) as consumer:
        for message in consumer.to_end():
            _ = message.body
            seen += 1
    if seen != count:
        raise RuntimeError(f"{seen} messages, not {count}")
    return Timed(seen, perf_counter() - began_s)


@READ_BACK.of("redis")
def _(client: RedisClient, queue: str, count: int) -> Timed:
    timed = client.pull(queue, _CONSUMED, count)
    return Timed(timed.count, timed.seconds)


@READ_BACK.of("nats")
def _(client: NatsClient, queue: str, count: int) -> Timed:
    return client.run(client.read_back(f"batches.{queue}", count))


@READ_BACK.of("rocketmq-proxy")
def _(client: ProxyClient, queue: str, count: int) -> Timed:
    return client.receive(queue, count)


@READ_BACK.of("bare-stack")
def _(client: BareStackClient, queue: str, count: int) -> Timed:
    whole = count - count % _CONSUMED
    timed = client.in_flight(pulling(_CONSUMED), whole, _CONSUMED, _AHEAD, taken=read)
    return Timed(timed.count, timed.seconds)


@PULL_MANY.of("kvcq")
@PULL_FEW.of("kvcq")
def _(client: KvcqClient, queue: str, each: int, count: int) -> Timed:
    def pull(offset: int) -> int:
        messages = client.blocking.pull(queue, 0, offset, max_messages=each).messages
        for message in messages:
            _ = message.body
        return len(messages)

    return in_pulls(pull, each, count)


@PULL_MANY.of("redis")
@PULL_FEW.of("redis")
def _(client: RedisClient, queue: str, each: int, count: int) -> Timed:
    return client.pull(queue, each, count)


@PULL_MANY.of("nats")
@PULL_FEW.of("nats")
def _(client: NatsClient, queue: str, each: int, count: int) -> Timed:
    return client.run(client.pull(f"batches.{queue}", each, count))


@PULL_MANY.of("bare-stack")
@PULL_FEW.of("bare-stack")
def _(client: BareStackClient, queue: str, each: int, count: int) -> Timed:
    return client.in_flight(pulling(each), count - count % each, each, 1, taken=read)
