"""server/observe/loop_watch.py: how late the loop is."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

from server.observe.loop_watch import PERIOD_S, LoopWatch

if TYPE_CHECKING:
    from store.base import Counted


def _longer_than(counted: Counted, seconds: float) -> int:
    return sum(
        count
        for bound, count in zip((*counted.bounds, float("inf")), counted.counts, strict=True)
        if bound > seconds
    )


async def test_a_stop_of_the_loop_is_seen() -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    time.sleep(PERIOD_S + 0.11)  # the loop stands still, over the time of a look
    looked = asyncio.Event()

    def stop() -> None:
        watch.stop()  # in the turn of its look: on a busy machine the next one may be late as well
        looked.set()

    asyncio.get_running_loop().call_later(0, stop)
    await looked.wait()
    counted = watch.read()
    assert counted.times == 1
    assert _longer_than(counted, 0.1) == 1


async def test_once_stopped_it_looks_no_more() -> None:
    watch = LoopWatch(asyncio.get_running_loop())
    watch.start()
    watch.stop()
    watch.stop()
    await asyncio.sleep(PERIOD_S * 2)
    assert watch.read().times == 0
