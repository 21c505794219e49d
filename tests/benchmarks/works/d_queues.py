"""First messages to new queues, messages in many light queues, deletions of topics."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from kvcq_client import LIGHT_PREFIX, Message
from tests.benchmarks.timing import BATCH, Timed, batches, in_tenths
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.benchmarks.systems.bare import BareStackClient, BareStoreClient
    from tests.benchmarks.systems.in_process import StoreClient
    from tests.benchmarks.systems.ours import KvcqClient
    from tests.peers.systems.nats import NatsClient
    from tests.peers.systems.redis import RedisClient

_NEW, _MANY = "first message to new queues", "first message to a million new queues"
_TEN, _HUNDRED = "light queues, 10 a message", "light queues, 100 a message"
_DELETED = "topics deleted, beside a producer"
_QUEUES, _UNITS = 200_000, 400_000

NEW_QUEUES = Work(
    _NEW,
    "queues/s",
    "new_queues",
    {"count": _QUEUES, "limit_s": 15.0},
    [
        Goal(_NEW, 1.5, "a queue is rows here, and memory in Redis", of="redis"),
        Goal(
            _NEW,
            0.2,
            "a queue is rows here, and memory in Redis",
            "memory growth",
            at_most=True,
            of="redis",
        ),
    ],
    warm_up=False,
)
MANY_NEW_QUEUES = Work(
    _MANY,
    "queues/s",
    "many_new_queues",
    {"count": 1_000_000, "limit_s": 60.0},
    [
        Goal(_MANY, 100_000, "a million devices should be able to start within ten seconds"),
        Goal(
            _MANY,
            0.9,
            "the cost of a queue must not depend on their number",
            "last tenth over the first",
        ),
    ],
    warm_up=False,
)


DELETIONS = Work(
    _DELETED,
    "topics/s",
    "delete_topics",
    {"count": 2_000, "limit_s": 5.0},
    [
        Goal(_DELETED, 200, "a deletion must not cost what the topic holds"),
        Goal(_DELETED, 50, "nor hold up its caller", "p99", at_most=True),
    ],
    warm_up=False,
)


def _light(name: str, each: int, *goals: Goal) -> Work:
    arguments = {"queues": _QUEUES, "each": each, "count": _UNITS // each, "limit_s": 7.5}
    return Work(name, "units/s", "light_queues", arguments, list(goals), warm_up=False)


LIGHT_TEN = _light(_TEN, 10)
LIGHT_HUNDRED = _light(
    _HUNDRED,
    100,
    Goal(_HUNDRED, 0.5, "names and checks may cost as much as writing the rows", of="bare-store"),
    Goal(_HUNDRED, 0.5, "the same without gRPC", of="bare-store", system="kvcq-store"),
)


def _to_new(prefix: str, numbers: range, body: bytes) -> Iterator[list[Message]]:
    return (
        [Message(f"{prefix}-{number:07d}", body, 0) for number in part]
        for part in batches(numbers, BATCH)
    )


@NEW_QUEUES.of("kvcq")
def _(client: KvcqClient, count: int, limit_s: float) -> Timed:
    return client.send(_to_new("queue", range(count), client.body), limit_s)


@MANY_NEW_QUEUES.of("kvcq")
def _(client: KvcqClient, count: int, limit_s: float) -> Timed:
    def put(numbers: range, left_s: float) -> Timed:
        return client.send(_to_new("one-of-many", numbers, client.body), left_s)

    return in_tenths(put, count, limit_s)


@NEW_QUEUES.of("redis")
def _(client: RedisClient, count: int, limit_s: float) -> Timed:
    parts = batches(range(count), BATCH)
    return client.pipelines([[f"queue-{number:07d}" for number in part] for part in parts], limit_s)


@NEW_QUEUES.of("nats")
def _(client: NatsClient, count: int, limit_s: float) -> Timed:
    return client.publish([f"queues.{number:07d}" for number in range(count)], limit_s)


@NEW_QUEUES.of("bare-store")
def _(client: BareStoreClient, count: int, limit_s: float) -> Timed:
    with client.store([f"queue-{number:07d}" for number in range(count)]) as store:
        return client.put(store, lambda part: (client.body, part), range(count), limit_s)


@MANY_NEW_QUEUES.of("bare-store")
def _(client: BareStoreClient, count: int, limit_s: float) -> Timed:
    with client.store([f"queue-{number:07d}" for number in range(count)]) as store:
        return in_tenths(
            lambda tenth, left_s: client.put(
                store, lambda part: (client.body, part), tenth, left_s
            ),
            count,
            limit_s,
        )


def _stack(client: BareStackClient, count: int, limit_s: float) -> Timed:
    timed = client.in_flight(lambda _: client.to_new, count, BATCH, limit_s=limit_s)
    return Timed(timed.count, timed.seconds)


@NEW_QUEUES.of("bare-stack")
def _(client: BareStackClient, count: int, limit_s: float) -> Timed:
    return _stack(client, count, limit_s)


@MANY_NEW_QUEUES.of("bare-stack")
def _(client: BareStackClient, count: int, limit_s: float) -> Timed:
    return in_tenths(lambda tenth, left_s: _stack(client, len(tenth), left_s), count, limit_s)


def _names(queues: int) -> list[str]:
    return [f"{LIGHT_PREFIX}light-{number:07d}" for number in range(queues)]


@LIGHT_TEN.of("kvcq")
@LIGHT_HUNDRED.of("kvcq")
def _(client: KvcqClient, queues: int, each: int, count: int, limit_s: float) -> Timed:
    names = _names(queues)

    def message(number: int) -> Message:
        first = number * each % queues
        return Message("light", client.body, 0, light_queues=tuple(names[first : first + each]))

    lists = ([message(number) for number in part] for part in batches(range(count), BATCH))
    timed = client.send(lists, limit_s)
    return Timed(timed.count * each, timed.seconds)


@LIGHT_HUNDRED.of("kvcq-store")
def _(client: StoreClient, queues: int, each: int, count: int, limit_s: float) -> Timed:
    names = _names(queues)

    def light(number: int) -> tuple[str, ...]:
        first = number * each % queues
        return tuple(names[first : first + each])

    timed = client.put(
        "light",
        lambda part: [client.message("light", light(number)) for number in part],
        count,
        limit_s,
    )
    return Timed(timed.count * each, timed.seconds)


@LIGHT_TEN.of("bare-store")
@LIGHT_HUNDRED.of("bare-store")
def _(client: BareStoreClient, queues: int, each: int, count: int, limit_s: float) -> Timed:
    def batch(part: range) -> tuple[bytes, list[int], list[slice]]:
        firsts = (number * each % queues for number in part)
        return client.body, [0] * len(part), [slice(first, first + each) for first in firsts]

    with client.store(["light"], _names(queues)) as store:
        timed = client.put(store, batch, range(count), limit_s)
    return Timed(timed.count * each, timed.seconds)


@DELETIONS.of("kvcq")
def _(client: KvcqClient, count: int, limit_s: float) -> Timed:
    """One after the other, while a producer goes on putting to another topic."""
    body = client.body
    client.send(([Message(f"doomed-{number}", body, 0)] * 50 for number in range(count)), limit_s)
    stop = threading.Event()

    def put_beside() -> None:
        with client.blocking.producer() as producer:
            while not stop.wait(0.01):
                producer.send_many([Message("kept", body, 0)] * BATCH).result()

    with ThreadPoolExecutor(1) as pool:
        beside = pool.submit(put_beside)
        try:
            calls: list[float] = []
            began_s = now_s = perf_counter()
            for number in range(count):
                client.blocking.delete_topic(f"doomed-{number}")
                before_s, now_s = now_s, perf_counter()
                calls.append(now_s - before_s)
                if now_s - began_s > limit_s:
                    break
        finally:
            stop.set()
        beside.result()
    return Timed.of_calls(calls, now_s - began_s)
