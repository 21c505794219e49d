"""Puts of many messages: batches, and the batching of the client."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import Message
from tests.benchmarks.timing import AT_ONCE, BATCH, Timed, batches
from tests.benchmarks.work import AFTER_FSYNC, Work

if TYPE_CHECKING:
    from tests.benchmarks.systems.bare import BareStackClient, BareStoreClient
    from tests.benchmarks.systems.in_process import StoreClient
    from tests.benchmarks.systems.ours import KvcqClient
    from tests.peers.systems.nats import NatsClient
    from tests.peers.systems.redis import RedisClient
    from tests.peers.systems.rocketmq import ProxyClient

MESSAGES = 200_000
_BATCHES, _EACH = "put, batches of 128", "put, one send each, batched by the client"

PUT_BATCHES = Work(
    _BATCHES,
    "messages/s",
    "put_batches",
    {"queue": "batches", "count": MESSAGES, "limit_s": 4.0},
    [
        Goal(_BATCHES, 1.5, "Redis appends the same bytes to a log", of="redis"),
        Goal(_BATCHES, 4, "the client of NATS sends single messages", of="nats"),
        Goal(_BATCHES, 1.2, "the log format is the same", of="rocketmq-files"),
        Goal(_BATCHES, 1.2, "the log format is the same", of="rocketmq-rocksdb"),
        Goal(_BATCHES + AFTER_FSYNC, 100_000, "a batch shares its fsync with others"),
        Goal(_BATCHES + AFTER_FSYNC, 5, "Redis syncs once for each pipeline", of="redis"),
        Goal(_BATCHES + AFTER_FSYNC, 5, "NATS syncs once for each message", of="nats"),
        Goal(
            _BATCHES,
            0.6,
            "locks and look-ups may cost two thirds of the writing",
            of="bare-store",
            system="kvcq-store",
        ),
        Goal(
            _BATCHES,
            0.65,
            "a migration writes both kinds of queues",
            of="kvcq-store",
            system="kvcq-double",
        ),
    ],
    after_fsync=True,
)
PUT_EACH = Work(
    _EACH,
    "messages/s",
    "put_each",
    {"queue": "each", "count": MESSAGES},
    [Goal(_EACH, 100_000, "most programs hand the producer one message at a time")],
)


@PUT_BATCHES.of("kvcq")
def _(client: KvcqClient, queue: str, count: int, limit_s: float) -> Timed:
    message = Message(queue, client.body, 0)
    return client.send(([message] * len(part) for part in batches(range(count), BATCH)), limit_s)


@PUT_BATCHES.of("kvcq-store", "kvcq-double")
def _(client: StoreClient, queue: str, count: int, limit_s: float) -> Timed:
    return client.put(queue, lambda part: [client.message(queue)] * len(part), count, limit_s)


@PUT_BATCHES.of("redis")
def _(client: RedisClient, queue: str, count: int, limit_s: float) -> Timed:
    return client.pipelines([[queue] * len(one) for one in batches(range(count), BATCH)], limit_s)


@PUT_BATCHES.of("nats")
def _(client: NatsClient, queue: str, count: int, limit_s: float) -> Timed:
    """No batches: as many messages are in flight as of others in 8 batches of 128."""
    return client.publish([f"batches.{queue}"] * count, limit_s)


@PUT_BATCHES.of("rocketmq-proxy")
def _(client: ProxyClient, queue: str, count: int, limit_s: float) -> Timed:
    """No batches: as with NATS."""
    timed = client.in_flight(queue, AT_ONCE * BATCH, limit_s, count)
    return Timed(timed.count, timed.seconds)


@PUT_BATCHES.of("bare-store")
def _(client: BareStoreClient, queue: str, count: int, limit_s: float) -> Timed:
    def batch(part: range) -> tuple[bytes, list[int]]:
        return client.body, [0] * len(part)

    with client.store([queue]) as store:
        return client.put(store, batch, range(count), limit_s)


@PUT_BATCHES.of("bare-stack")
def _(client: BareStackClient, queue: str, count: int, limit_s: float) -> Timed:
    timed = client.in_flight(lambda _: client.batch, count, BATCH, limit_s=limit_s)
    return Timed(timed.count, timed.seconds)


@PUT_EACH.of("kvcq")
def _(client: KvcqClient, queue: str, count: int) -> Timed:
    body = client.body
    began_s = perf_counter()
    with client.blocking.producer() as producer:
        send = producer.send
        for _ in range(count):
            send(queue, body, queue_id=0)
    return Timed(count, perf_counter() - began_s)
