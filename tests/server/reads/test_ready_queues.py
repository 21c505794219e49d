"""server/reads/ready_queues.py: queues in turn, and one wait that misses nothing."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from random import Random

import pytest

from server.reads.queue_growth import QueueGrowth, QueueKey
from server.reads.ready_queues import ReadyQueues
from server.stage import Stage
from store.consume_queue import DispatchRequest

A, B, C = ("a", 0), ("b", 1), ("c", 2)


def growth_of(*keys: QueueKey) -> list[DispatchRequest]:
    """What the store tells when each of these queues got a message."""
    return [DispatchRequest(*key, 0, 0, 100, 0, 0, (), (), in_queue=True) for key in keys]


def turns(queues: ReadyQueues) -> list[QueueKey]:
    found = []
    while queues:
        found.append(queues.next())
    return found


@pytest.fixture
def stage() -> Stage:
    return Stage()


async def test_queues_take_turns_and_those_not_read_keep_theirs(stage: Stage) -> None:
    queues = ReadyQueues(QueueGrowth(asyncio.get_running_loop()), stage)
    for key in (A, B, C):
        queues.follow(key)
    queues.make_ready(A)
    first, second = queues.next(), queues.next()
    queues.make_ready(A)
    queues.put_back([second])
    assert (first, turns(queues)) == (A, [B, C, A])


@pytest.mark.parametrize("seed", range(8))
async def test_turns_are_those_of_one_queue_of_queues(stage: Stage, seed: int) -> None:
    random = Random(seed)
    queues = ReadyQueues(QueueGrowth(asyncio.get_running_loop()), stage)
    model: OrderedDict[QueueKey, None] = OrderedDict()
    keys = [("t", number) for number in range(12)]
    unread: list[QueueKey] = []
    for _ in range(3000):
        act, key = random.randrange(6), random.choice(keys)
        if act <= 1:
            (queues.follow if act else queues.make_ready)(key)
            model[key] = None
        elif act == 2:
            queues.leave(key)
            model.pop(key, None)
        elif act == 3:
            queues.put_back(unread)
            for each in reversed(unread):
                model[each] = None
                model.move_to_end(each, last=False)
            unread = []
        elif model:
            unread.append(queues.next())
            assert unread[-1] == model.popitem(last=False)[0]
        else:
            with pytest.raises(KeyError):
                queues.next()
        assert bool(queues) == bool(model)
    assert turns(queues) == list(model)


async def test_what_happens_between_a_look_and_the_wait_ends_it(stage: Stage) -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    queues = ReadyQueues(growth, stage)
    for key in (A, B):
        queues.follow(key)
    assert turns(queues) == [A, B]
    growth.on_growth(growth_of(B, C))
    assert await queues.until_any()
    assert turns(queues) == [B]
    for happens in (stage.ready, queues.wake):
        happens()
        assert await queues.until_any()
        assert turns(queues) == []


async def test_a_wait_in_vain_ends_at_its_time(stage: Stage) -> None:
    queues = ReadyQueues(QueueGrowth(asyncio.get_running_loop()), stage)
    queues.follow(A)
    assert not await queues.until_any(asyncio.get_running_loop().time())
    queues.wake()
    assert await queues.until_any(asyncio.get_running_loop().time() + 30)


async def test_draining_ends_every_wait(stage: Stage) -> None:
    queues = ReadyQueues(QueueGrowth(asyncio.get_running_loop()), stage)
    waiting = asyncio.create_task(queues.until_any())
    await asyncio.sleep(0)
    stage.drain()
    assert await waiting
    assert await ReadyQueues(QueueGrowth(asyncio.get_running_loop()), stage).until_any()


async def test_nothing_stays_of_what_is_followed_no_more(stage: Stage) -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    one, other = ReadyQueues(growth, stage), ReadyQueues(growth, stage)
    for queues in (one, other):
        queues.follow(A)
        queues.follow(A)
    one.leave(A)
    one.leave(A)
    one.close()
    turns(other)
    growth.on_growth(growth_of(A))
    assert await other.until_any()
    assert (turns(one), turns(other)) == ([], [A])
    other.leave(A)
    other.close()
    assert growth.watched_queues == 0
    assert stage._on_change == set()
