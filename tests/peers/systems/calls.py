"""Loops that several clients share: single calls until the time is over, blocking or in a loop."""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

from tests.peers.values import Timed

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable


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
    timed = Timed.of_calls(calls, now_s - began_s)
    return Timed(done, timed.seconds, timed.p50_us, timed.p99_us)


def in_tenths(put: Callable[[range, float], Timed], count: int, limit_s: float) -> Timed:
    """`put` is given the numbers of one tenth after the other, and how many seconds it has."""
    done = 0
    rates: list[float] = []
    end_s = perf_counter() + limit_s
    seconds = 0.0
    for tenth in batches(range(count), -(-count // 10)):
        timed = put(tenth, end_s - perf_counter())
        done += timed.count
        seconds += timed.seconds
        rates.append(timed.count / timed.seconds)
    return Timed(done, seconds, last_tenth=rates[-1] / rates[0])


def batches(numbers: range, size: int) -> list[range]:
    return [numbers[first : first + size] for first in range(0, len(numbers), size)]
