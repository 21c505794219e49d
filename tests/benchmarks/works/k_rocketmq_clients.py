"""RocketMQ's own Python client, unmodified, against its proxy, against us, and against an echo."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from tests.benchmarks.timing import Timed, one_at_a_time
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from tests.peers.systems.rocketmq import ProxyClient

_OURS, _THEIRS, _ECHO = "kvcq-for-rocketmq", "rocketmq-proxy", "bare-v2"
_SYSTEMS = (_OURS, _THEIRS, _ECHO)
_PREFIX = "RocketMQ's Python client: "
_LIMIT = {"limit_s": 3.0}
#: Twice as many, with those of the warm-up, are fewer than a group may have of a queue in flight.
_UNACKNOWLEDGED = {"messages": 900}
_COUNT = {"count": 2000}
_MANY_IN_FLIGHT = 256
_WHY = "an application that moves here must not slow down"


def _work(name: str, arguments: dict[str, float]) -> Work:
    full = _PREFIX + name
    goals = [
        Goal(full, 3, _WHY, system=_OURS, of=_THEIRS),
        Goal(full, 0.5, "half of what its messages take to be answered", system=_OURS, of=_ECHO),
    ]
    return Work(full, "messages/s", name.replace(" ", "_"), arguments, goals)


SEND = _work("sends, one at a time", _LIMIT)
SEND_MANY = _work("sends, 256 in flight", _LIMIT)
RECEIVE = _work("receives, 32 a call", {**_UNACKNOWLEDGED})
RECEIVE_AND_ACKNOWLEDGE = _work("receives and acknowledges", {**_COUNT})


@SEND.of(*_SYSTEMS)
def _(client: ProxyClient, limit_s: float) -> Timed:
    return one_at_a_time(lambda: client.producer.send(client.message("one")), limit_s)


@SEND_MANY.of(*_SYSTEMS)
def _(client: ProxyClient, limit_s: float) -> Timed:
    return client.in_flight("callers", _MANY_IN_FLIGHT, limit_s)


@RECEIVE.of(*_SYSTEMS)
def _(client: ProxyClient, messages: int) -> Timed:
    client.in_flight("each", _MANY_IN_FLIGHT, inf, messages)
    return client.receive("each", messages, acknowledge=False)


@RECEIVE_AND_ACKNOWLEDGE.of(*_SYSTEMS)
def _(client: ProxyClient, count: int) -> Timed:
    client.in_flight("batches", _MANY_IN_FLIGHT, inf, count)
    return client.receive("batches", count)
