"""Ten thousand clients of RocketMQ that connect, stay without work, and leave together."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kvcq_bench.report import Goal
from tests.benchmarks.system import IDLE
from tests.benchmarks.work import Work

if TYPE_CHECKING:
    from tests.benchmarks.systems.idle import IdleClients
    from tests.benchmarks.timing import Timed

_CLIENTS, _SECONDS = 10_000, 30.0
_HELD, _MEMORY = "loop held at once, most", "private memory"


def _work(name: str, unit: str, method: str, arguments: dict[str, Any]) -> Work:
    goals = [
        Goal(name, bound, reason, figure, at_most=True, system=IDLE)
        for figure, bound, reason in (
            (_HELD, 20, "others that are connected wait as long"),
            (_MEMORY, 1074, "a gibibyte is enough for ten thousand clients"),
        )
    ]
    return Work(name, unit, method, arguments, goals, warm_up=False)


def _works(who: str, group: str) -> tuple[Work, Work, Work]:
    """In this order: each finds the clients of the one before."""
    connect = {"count": _CLIENTS, "group": group}
    return (
        _work(f"idle {who} connect", "clients/s", "idle_connect", connect),
        _work(f"idle {who} stay", "heartbeats/s", "idle_stay", {"limit_s": _SECONDS}),
        _work(f"idle {who} leave together", "clients/s", "idle_leave", {}),
    )


PRODUCERS = _works("producers", "")
CONSUMERS = _works("push consumers", "idle")


@PRODUCERS[0].of(IDLE)
@CONSUMERS[0].of(IDLE)
def _(client: IdleClients, count: int, group: str) -> Timed:
    return client.run(client.connect(count, group))


@PRODUCERS[1].of(IDLE)
@CONSUMERS[1].of(IDLE)
def _(client: IdleClients, limit_s: float) -> Timed:
    return client.run(client.stay(limit_s))


@PRODUCERS[2].of(IDLE)
@CONSUMERS[2].of(IDLE)
def _(client: IdleClients) -> Timed:
    return client.run(client.leave())
