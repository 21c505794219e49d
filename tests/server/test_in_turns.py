"""server/in_turns.py, and what is woken or ended by the thousand."""

from __future__ import annotations

import asyncio
from functools import partial

from server.in_turns import AT_A_TIME, in_turns
from server.reads.queue_growth import QueueGrowth, QueueKey
from server.stage import Stage


async def test_a_few_calls_are_made_at_once_and_many_leave_turns_to_others() -> None:
    made: list[int] = []
    in_turns(partial(made.append, number) for number in range(AT_A_TIME - 1))
    assert len(made) == AT_A_TIME - 1
    made.clear()
    in_turns(partial(made.append, number) for number in range(3 * AT_A_TIME))
    seen = []
    for _ in range(3):
        seen.append(len(made))
        await asyncio.sleep(0)
    assert seen == [AT_A_TIME, 2 * AT_A_TIME, 3 * AT_A_TIME]
    assert made == [*range(3 * AT_A_TIME)]


async def test_of_many_watchers_of_a_queue_those_that_left_meanwhile_are_not_called() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    called: list[int] = []
    watchers = [
        lambda _key, number=number: called.append(number) for number in range(2 * AT_A_TIME)
    ]
    key: QueueKey = ("t", 0)
    for watcher in watchers:
        growth.watch(key, watcher)
    growth.changed([key])
    while not called:
        await asyncio.sleep(0)
    assert len(called) == AT_A_TIME
    left = next(number for number in range(2 * AT_A_TIME) if number not in called)
    growth.unwatch(key, watchers[left])
    for _ in range(3):
        await asyncio.sleep(0)
    assert sorted(called) == [n for n in range(2 * AT_A_TIME) if n != left]


async def test_all_that_listen_hear_of_draining_within_a_few_turns() -> None:
    stage = Stage()
    told: list[int] = []
    for number in range(2 * AT_A_TIME):
        stage.on_change(partial(told.append, number))
    stage.drain()
    assert len(told) == AT_A_TIME
    for _ in range(2):
        await asyncio.sleep(0)
    assert sorted(told) == [*range(2 * AT_A_TIME)]
