"""What a client says of a piece of work, and the loops that several clients share."""

from __future__ import annotations

import asyncio
from dataclasses import asdict, dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

BODY_BYTES = 1024
BATCH = 128
#: Batches of a client that are in flight at once, where its system has a use for more than one.
AT_ONCE = 8
CALLERS = 64


class NotOfferedError(Exception):
    """The system, or its client, cannot do this; the text says why."""


@dataclass(frozen=True, slots=True)
class Timed:
    """How much was done in how long; of single calls their median and p99."""

    count: int
    seconds: float
    p50_us: float | None = None
    p99_us: float | None = None
    #: Other figures: value and unit by name.
    more: dict[str, tuple[float, str]] = field(default_factory=dict)

    @classmethod
    def of_calls(cls, calls_s: list[float], seconds: float, count: int | None = None) -> Timed:
        """Of single calls; `count` where a call is not one piece of work."""
        ordered = sorted(calls_s)
        done = len(ordered) if count is None else count
        if not ordered:
            return cls(done, seconds)
        p99 = ordered[min(len(ordered) - 1, len(ordered) * 99 // 100)]
        return cls(done, seconds, ordered[len(ordered) // 2] * 1e6, p99 * 1e6)

    def document(self) -> dict[str, Any]:
        return asdict(self)


def one_at_a_time(call: Callable[[], object], limit_s: float) -> Timed:
    calls: list[float] = []
    began_s = now_s = perf_counter()
    while now_s - began_s < limit_s:
        call()
        before_s, now_s = now_s, perf_counter()
        calls.append(now_s - before_s)
    return Timed.of_calls(calls, now_s - began_s)


async def by_callers(
    call: Callable[[int], Awaitable[object]], callers: int, limit_s: float
) -> Timed:
    """Each of the callers makes one call after the other; `call` is told which caller it is."""
    calls: list[float] = []
    began_s = perf_counter()

    async def caller(number: int) -> None:
        now_s = perf_counter()
        while now_s - began_s < limit_s:
            await call(number)
            before_s, now_s = now_s, perf_counter()
            calls.append(now_s - before_s)

    await asyncio.gather(*(caller(number) for number in range(callers)))
    return Timed.of_calls(calls, perf_counter() - began_s)


def in_pulls(pull: Callable[[int], int], each: int, count: int) -> Timed:
    """Pull from offset 0 on, `each` a call, until `count`; `pull` says how many there were."""
    calls: list[float] = []
    done = 0
    began_s = now_s = perf_counter()
    while done + each <= count:
        got = pull(done)
        if not got:
            raise RuntimeError(f"nothing at {done} of {count} messages")
        done += got
        before_s, now_s = now_s, perf_counter()
        calls.append(now_s - before_s)
    return Timed.of_calls(calls, now_s - began_s, done)


def in_tenths(put: Callable[[range, float], Timed], count: int, limit_s: float) -> Timed:
    """`put` is given the numbers of one tenth after the other, and how many seconds it has."""
    end_s = perf_counter() + limit_s
    tenths = batches(range(count), -(-count // 10))
    found = [put(tenth, max(0.1, end_s - perf_counter())) for tenth in tenths]
    first, last = (one.count / one.seconds for one in (found[0], found[-1]))
    done, seconds = sum(one.count for one in found), sum(one.seconds for one in found)
    return Timed(done, seconds, more={"last tenth over the first": (last / first, "")})


def batches(numbers: range, size: int) -> list[range]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]


def new_loop() -> asyncio.AbstractEventLoop:
    """As our client and its peers run fastest."""
    loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
    return loop
