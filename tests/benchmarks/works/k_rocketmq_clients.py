"""RocketMQ's own clients, unmodified, against its proxy, against us, and against an echo."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from kvcq_bench.report import Goal
from tests.benchmarks.timing import Timed, one_at_a_time
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.peers.systems.rocketmq import ProxyClient

_OURS, _THEIRS, _ECHO = "kvcq-for-rocketmq", "rocketmq-proxy", "bare-v2"
_SYSTEMS = (_OURS, _THEIRS, _ECHO)
_LIMIT = {"limit_s": 3.0}
#: Twice as many, with those of the warm-up, are fewer than a group may have of a queue in flight.
_UNACKNOWLEDGED = {"messages": 900}
_MANY_IN_FLIGHT = 256
_WHY = "an application that moves here must not slow down"


def _work(
    name: str,
    method: str,
    arguments: Mapping[str, float],
    times: int = 3,
    *,
    client: str = "Python",
) -> Work:
    """`times`: as fast as the original."""
    full = f"RocketMQ's {client} client: {name}"
    of = "" if client == "Python" else f"-{client.lower()}"
    goals = [
        Goal(full, times, _WHY, system=_OURS + of, of=_THEIRS + of),
        Goal(
            full,
            0.5,
            "half of what its messages take to be answered",
            system=_OURS + of,
            of=_ECHO + of,
        ),
    ]
    return Work(full, "messages/s", f"{client.lower()}_{method}", {**arguments}, goals)


SEND = _work("sends, one at a time", "send", _LIMIT)
SEND_MANY = _work("sends, 256 in flight", "send_many", _LIMIT)
RECEIVE = _work("receives, 32 a call", "receive", _UNACKNOWLEDGED)
RECEIVE_AND_ACKNOWLEDGE = _work("receives and acknowledges", "acknowledge", {"count": 2_000})

# The client for Java has its loops in a program: tests/clients/java/src/main/java/Speed.java.
_work("sends, one at a time", "send", _LIMIT, 2, client="Java")
_work("sends, 256 in flight", "send_many", _LIMIT, 2, client="Java")
_work("receives, 32 a call", "receive", _UNACKNOWLEDGED, 2, client="Java")
_work("receives and acknowledges", "acknowledge", {"count": 10_000}, 2, client="Java")


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
