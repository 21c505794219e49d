"""Groups that share their work: messages are received and acknowledged, in batches and singly.

One client, one call at a time. Our own acknowledges what it received with the call that receives
next, and has an answer for each message; Redis has two calls for that, and NATS is told without an
answer. Each measurement has a group of its own, which begins with the oldest message.
"""

from __future__ import annotations

import secrets
from inspect import signature
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from tests.benchmarks.timing import NotOfferedError, Timed, in_pulls
from tests.benchmarks.work import Work
from tests.benchmarks.works.b_batches import MESSAGES, PUT_BATCHES

if TYPE_CHECKING:
    from tests.benchmarks.systems.ours import KvcqClient
    from tests.peers.systems.nats import NatsClient
    from tests.peers.systems.redis import RedisClient

_MANY, _ONE = "receive and acknowledge, 32 a call", "receive and acknowledge, one at a time"

WORK_MANY = Work(
    _MANY,
    "messages/s",
    "work",
    {"queue": "read", "each": 32, "count": MESSAGES // 3},
    [
        Goal(_MANY, 50_000, "one worker must keep pace with a busy producer"),
        Goal(_MANY, 1, "it does the same work, in two calls", of="redis"),
        Goal(_MANY, 1, "it acknowledges each message by a message", of="nats"),
    ],
    reads=PUT_BATCHES,
)
WORK_ONE = Work(
    _ONE,
    "messages/s",
    "work",
    {"queue": "read", "each": 1, "count": MESSAGES // 40},
    [Goal(_ONE, 1, "it does the same work, in two calls", of="redis")],
    reads=PUT_BATCHES,
)


@WORK_MANY.of("kvcq")
@WORK_ONE.of("kvcq")
def _(client: KvcqClient, queue: str, each: int, count: int) -> Timed:
    group = f"work-{secrets.token_hex(4)}"
    receive = client.blocking.receive
    if "acknowledge" not in signature(receive).parameters:
        raise NotOfferedError("its receives acknowledge nothing")
    before = receive(queue, group=group, max_messages=each)

    def work(_done: int) -> int:
        nonlocal before
        received = receive(queue, group=group, max_messages=each, acknowledge=before)
        for one in received:
            _ = one.message.body
        # By its name: a checkout beside this one has classes of its own.
        if [one.name for one in received.outcomes] != ["DONE"] * len(before):
            raise RuntimeError(f"outcomes {received.outcomes}")
        done, before = len(before), received
        return done

    return in_pulls(work, each, count)


@WORK_MANY.of("redis")
@WORK_ONE.of("redis")
def _(client: RedisClient, queue: str, each: int, count: int) -> Timed:
    group = f"work-{secrets.token_hex(4)}"
    redis = client.redis
    redis.xgroup_create(queue, group, id="0")

    def work(_done: int) -> int:
        [[_name, entries]] = redis.xreadgroup(group, "one", {queue: ">"}, count=each)
        for _id, fields in entries:
            _ = fields[b"b"]
        done = redis.xack(queue, group, *[entry[0] for entry in entries])
        if done != len(entries):
            raise RuntimeError(f"{done} acknowledged, not {len(entries)}")
        return len(entries)

    return in_pulls(work, each, count)


@WORK_MANY.of("nats")
@WORK_ONE.of("nats")
def _(client: NatsClient, queue: str, each: int, count: int) -> Timed:
    return client.run(client.work(f"batches.{queue}", each, count))
