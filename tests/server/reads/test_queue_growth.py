"""server/reads/queue_growth.py: wake-ups reach who watches, once for many, and nobody else."""

from __future__ import annotations

import asyncio
import threading

from server.reads.queue_growth import QueueGrowth, QueueKey
from store.consume_queue import DispatchRequest

KEY: QueueKey = ("orders", 3)


def request(topic: str, queue_id: int, *light: str) -> DispatchRequest:
    places = tuple((name, 0) for name in light)
    return DispatchRequest(topic, queue_id, 0, 0, 100, 0, 0, (), places, in_queue=True)


async def test_a_watcher_is_called_in_the_loop() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    woken: asyncio.Queue[tuple[QueueKey, int]] = asyncio.Queue()
    growth.watch(KEY, lambda key: woken.put_nowait((key, threading.get_ident())))
    await asyncio.to_thread(growth.on_growth, [request(*KEY), request("other", 0)])
    assert await woken.get() == (KEY, threading.get_ident())
    assert woken.empty()


async def test_a_light_queue_grows_with_each_message_that_names_it() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    calls: list[QueueKey] = []
    growth.watch(("%LMQ%b", 0), calls.append)
    growth.on_growth([request("orders", 3, "%LMQ%a", "%LMQ%b")])
    await asyncio.sleep(0)
    assert calls == [("%LMQ%b", 0)]


async def test_many_batches_before_the_loop_turns_are_one_wake_up() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    calls: list[QueueKey] = []
    growth.watch(KEY, calls.append)
    for _ in range(100):
        growth.on_growth([request(*KEY)])
    await asyncio.sleep(0)
    assert calls == [KEY]


async def test_what_grows_after_a_wake_up_wakes_again() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    calls: list[QueueKey] = []
    growth.watch(KEY, calls.append)
    for _ in range(2):
        growth.on_growth([request(*KEY)])
        await asyncio.sleep(0)
    assert calls == [KEY, KEY]


async def test_nothing_is_kept_for_a_queue_that_nobody_watches() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    calls: list[QueueKey] = []
    growth.watch(KEY, calls.append)
    growth.unwatch(KEY, calls.append)
    growth.unwatch(KEY, calls.append)
    growth.on_growth([request(*KEY)])
    await asyncio.sleep(0)
    assert calls == []
    assert growth.watched_queues == 0


async def test_a_closed_one_leaves_the_loop_alone() -> None:
    growth = QueueGrowth(asyncio.get_running_loop())
    calls: list[QueueKey] = []
    growth.watch(KEY, calls.append)
    growth.close()
    growth.on_growth([request(*KEY)])
    await asyncio.sleep(0)
    assert calls == []
