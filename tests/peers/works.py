"""The pieces of work, in the order in which a system does them in its turn, with their amounts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.peers.values import Durability, Memory

#: Single calls are made for so long, in seconds.
_CALLS_S = 1.5
_MESSAGES = 100_000
NEW_QUEUES = 200_000
_MANY_QUEUES = 1_000_000
_UNITS = 400_000
_LIMIT_S = 15.0

RESTART = "restart to ready"
STOP = "stop with new queues"
MANY_QUEUES = "first message to a million new queues"


@dataclass(frozen=True, slots=True)
class Work:
    """One piece: a method of the client, what it is called with, and what comes of it."""

    name: str
    unit: str
    method: str  # "" for what the server alone does
    arguments: dict[str, Any] = field(default_factory=dict)
    memory: Memory = Memory.AS_IT_COMES
    #: Done at a tenth before it is measured, so that compilers of the running kind have compiled.
    warm_up: bool = True
    #: Else it is one of ours and of what bounds it alone.
    of_peers: bool = True

    def scaled(self, scale: float, share: float = 1.0) -> dict[str, Any]:
        """The arguments for that share of it; sizes of calls stay."""
        found = dict(self.arguments)
        for name, value in found.items():
            if name in ("count", "queues"):
                least = _LEAST_LIGHT if name == "count" and "queues" in found else _LEAST[name]
                found[name] = max(least, round(value * scale * share))
            elif name == "limit_s":
                # Not below a few calls of a slow disk, on a machine that is busy.
                found[name] = max(1.0, value * min(1.0, scale) * share)
        return found


#: What is under way at once must fit, and 100 light queues of a message.
_LEAST = {"count": 1024, "queues": 1000}
_LEAST_LIGHT = 128

_ONE = Work("put, one at a time, blocking", "calls/s", "put_one", {"limit_s": _CALLS_S})
_ONE_ASYNCIO = Work(
    "put, one at a time, asyncio", "calls/s", "put_one_asyncio", {"limit_s": _CALLS_S}
)
_CALLERS = Work("put, 64 callers, one a call", "calls/s", "put_by_callers", {"limit_s": _CALLS_S})
_UNARY = Work(
    "put, 64 unary calls under way", "calls/s", "put_unary", {"limit_s": _CALLS_S}, of_peers=False
)


def _batches(queue: str, memory: Memory, count: int = _MESSAGES) -> Work:
    return Work(
        "put, batches of 128",
        "messages/s",
        "put_batches",
        {"queue": queue, "count": count, "limit_s": _LIMIT_S / 3},
        memory,
    )


def _read(queue: str, memory: Memory) -> Work:
    return Work(
        "read back, consumer", "messages/s", "read_back", {"queue": queue, "count": 0}, memory
    )


def _pull(each: int, count: int) -> Work:
    return Work(
        f"pull, {each} a call",
        "messages/s",
        "pull",
        {"queue": "cold", "each": each, "count": count},
    )


def _light(each: int) -> Work:
    return Work(
        f"light queues, {each} a message",
        "units/s",
        "light_queues",
        {
            "queues": NEW_QUEUES,
            "each": each,
            "count": _UNITS // each,
            "limit_s": _LIMIT_S / 2,
        },
        warm_up=False,
    )


WORKS: dict[Durability, list[Work]] = {
    Durability.BEFORE_FSYNC: [
        _ONE,
        _ONE_ASYNCIO,
        _CALLERS,
        _UNARY,
        Work(
            "put, one send each, batched by the client",
            "messages/s",
            "put_each",
            {"queue": "each", "count": _MESSAGES},
            Memory.COLD,
        ),
        _batches("cold", Memory.COLD),
        _read("cold", Memory.COLD),
        _pull(512, _MESSAGES),
        _pull(32, _MESSAGES // 3),
        Work(RESTART, "s", ""),
        _batches("touched", Memory.TOUCHED),
        _read("touched", Memory.TOUCHED),
        Work(
            "first message to new queues",
            "queues/s",
            "new_queues",
            {"count": NEW_QUEUES, "limit_s": _LIMIT_S},
            Memory.COLD,
            warm_up=False,
        ),
        _light(10),
        _light(100),
        Work(STOP, "s", ""),
        Work(
            MANY_QUEUES,
            "queues/s",
            "many_new_queues",
            {"count": _MANY_QUEUES, "limit_s": 4 * _LIMIT_S},
            Memory.COLD,
            warm_up=False,
            of_peers=False,
        ),
    ],
    Durability.AFTER_FSYNC: [
        _ONE,
        _ONE_ASYNCIO,
        _CALLERS,
        _batches("after", Memory.AS_IT_COMES, _MESSAGES // 2),
    ],
}


def work_of(durability: Durability, name: str) -> Work:
    """The work of that name; not the one on touched memory, where there are two."""
    return next(
        work
        for work in WORKS[durability]
        if work.name == name and work.memory is not Memory.TOUCHED
    )
