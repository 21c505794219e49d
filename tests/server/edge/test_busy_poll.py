"""server/edge/busy_poll.py: the loop stays awake for callers that are quick, and for no others."""

from __future__ import annotations

import asyncio

import pytest

from server.edge.busy_poll import BusyPoll, Pace

LIMIT_S = 250e-6


class Steps:
    """A clock that goes on by a step at each look at it."""

    def __init__(self, step_s: float = 0.0) -> None:
        self.now_s = 1000.0
        self.step_s = step_s

    def __call__(self) -> float:
        self.now_s += self.step_s
        return self.now_s


def paced(clock: Steps, limit_s: float = LIMIT_S) -> tuple[BusyPoll, Pace]:
    poll = BusyPoll(limit_s, clock)
    return poll, Pace(poll)


def is_looking(poll: BusyPoll) -> bool:
    return poll.is_looking


def call(pace: Pace, clock: Steps, after_s: float) -> None:
    """A message of the caller's, so long after the answer, and its answer."""
    clock.now_s += after_s
    pace.asked()
    pace.answered()


def looking() -> tuple[Steps, BusyPoll, Pace]:
    """A caller that was quick has its answer."""
    clock = Steps()
    poll, pace = paced(clock)
    call(pace, clock, 0)
    call(pace, clock, LIMIT_S / 2)
    assert is_looking(poll)
    return clock, poll, pace


async def test_a_caller_that_was_quick_is_looked_out_for() -> None:
    clock = Steps()
    poll, pace = paced(clock)
    call(pace, clock, 0)
    assert not is_looking(poll)  # it has not shown yet that it is quick
    call(pace, clock, LIMIT_S / 2)
    for _ in range(10):
        assert is_looking(poll)
        await asyncio.sleep(0)
    clock.now_s += LIMIT_S
    await asyncio.sleep(0)
    assert not is_looking(poll)


@pytest.mark.parametrize("limit_s", [LIMIT_S, 0.0])
async def test_a_caller_that_was_slow_is_not(limit_s: float) -> None:
    clock = Steps()
    poll, pace = paced(clock, limit_s)
    for _ in range(3):
        call(pace, clock, limit_s)
        assert not is_looking(poll)


async def test_the_next_call_ends_the_looking_until_it_is_answered() -> None:
    _, poll, pace = looking()
    pace.asked()
    await asyncio.sleep(0)
    assert not is_looking(poll)
    pace.answered()
    assert is_looking(poll)
    poll.stop()
    await asyncio.sleep(0)


async def test_who_becomes_slow_is_waited_for_once() -> None:
    clock, poll, pace = looking()
    clock.step_s = LIMIT_S
    await asyncio.sleep(0)
    assert not is_looking(poll)
    clock.step_s = 0
    call(pace, clock, 0)
    assert not is_looking(poll)


async def test_other_work_has_its_turns_between_two_looks() -> None:
    _, poll, _ = looking()
    turns = 0
    for _ in range(100):
        await asyncio.sleep(0)
        turns += is_looking(poll)
    assert turns == 100
    poll.stop()
    await asyncio.sleep(0)
    assert not is_looking(poll)
