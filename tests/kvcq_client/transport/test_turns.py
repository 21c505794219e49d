"""kvcq_client/transport/turns.py: never more than so many, none lost, first come, first served."""

from __future__ import annotations

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.transport.turns import Turns


async def take(turns: Turns, timeout_s: float = 60) -> None:
    if not turns.take():
        await turns.wait(timeout_s)


async def test_who_waits_longest_is_next_and_nobody_overtakes() -> None:
    turns = Turns(1)
    assert turns.take()
    order: list[int] = []

    async def one(number: int) -> None:
        await take(turns)
        order.append(number)

    waiting = [asyncio.create_task(one(number)) for number in range(3)]
    await asyncio.sleep(0)
    for number in range(3):
        turns.give()
        assert not turns.take()  # it is the other's, who does not run yet
        await waiting[number]
    assert order == [0, 1, 2]
    turns.give()
    assert turns.take()


async def test_one_whose_time_is_up_leaves_its_place() -> None:
    turns = Turns(1)
    assert turns.take()
    with pytest.raises(TimeoutError):
        await turns.wait(0)
    assert not turns._waiting
    turns.give()
    assert turns.take()


async def test_a_turn_that_comes_as_its_taker_is_cancelled_is_not_lost() -> None:
    turns = Turns(1)
    assert turns.take()
    waiting = asyncio.create_task(turns.wait(60))
    await asyncio.sleep(0)
    turns.give()
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert turns.take()


@given(st.integers(1, 4), st.integers(0, 2**32), st.integers(1, 40))
def test_never_more_than_so_many_and_none_is_lost(count: int, seed: int, callers: int) -> None:
    pick = random.Random(seed)
    under_way = 0

    async def caller(turns: Turns) -> None:
        nonlocal under_way
        await take(turns)
        try:
            under_way += 1
            assert under_way <= count
            for _ in range(pick.randrange(3)):
                await asyncio.sleep(0)
        finally:
            under_way -= 1
            turns.give()

    async def run() -> None:
        turns = Turns(count)
        tasks = [asyncio.create_task(caller(turns)) for _ in range(callers)]
        while not all(task.done() for task in tasks):
            await asyncio.sleep(0)
            if pick.randrange(4) == 0:
                pick.choice(tasks).cancel()
        for task in tasks:
            assert task.cancelled() or task.exception() is None
        assert [turns.take() for _ in range(count + 1)] == [True] * count + [False]

    asyncio.run(run())
