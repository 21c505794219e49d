"""kvcq_client/transport/waiting.py: a coroutine run at once, beside the same one in a task."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from hypothesis import given
from hypothesis import strategies as st

from kvcq_client.transport.waiting import run_at_once

if TYPE_CHECKING:
    from collections.abc import Sequence

#: What it awaits one after another: whether it is there already, and whether it is an error.
steps = st.lists(st.tuples(st.booleans(), st.sampled_from([None, ValueError])))


class Work:
    """A coroutine that awaits futures, and what it saw of them."""

    def __init__(self, steps: Sequence[tuple[bool, type[ValueError] | None]]) -> None:
        loop = asyncio.get_running_loop()
        self.seen: list[object] = []
        self._futures: list[asyncio.Future[int]] = [loop.create_future() for _ in steps]
        self._errors = [error for _, error in steps]
        for at, (is_there, _) in enumerate(steps):
            if is_there:
                self.settle(at)

    def settle(self, at: int) -> None:
        future, error = self._futures[at], self._errors[at]
        if future.done():
            return
        if error is None:
            future.set_result(at)
        else:
            future.set_exception(error())
            future.exception()  # nobody may come for it

    async def run(self) -> None:
        for at, future in enumerate(self._futures):
            try:
                self.seen.append(await future)
            except ValueError:
                self.seen.append("caught")
                if at % 2:
                    raise


@given(steps)
def test_it_does_what_a_task_does(
    steps: Sequence[tuple[bool, type[ValueError] | None]],
) -> None:
    async def both() -> None:
        at_once, in_task = Work(steps), Work(steps)
        ends: list[BaseException | None] = []
        run_at_once(at_once.run(), ends.append)
        task = asyncio.create_task(in_task.run())
        for at in range(len(steps)):
            for work in (at_once, in_task):
                work.settle(at)
            for _ in range(3):
                await asyncio.sleep(0)
        [end] = ends
        assert at_once.seen == in_task.seen
        found = (await asyncio.gather(task, return_exceptions=True))[0]
        assert type(end) is type(found)

    asyncio.run(both())


async def test_it_runs_before_the_next_turn_of_the_loop() -> None:
    work = Work([(True, None), (False, None)])
    ends: list[BaseException | None] = []
    run_at_once(work.run(), ends.append)
    assert work.seen == [0]
    assert not ends


async def test_a_cancelled_future_ends_it() -> None:
    future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def waits() -> None:
        await future

    ends: list[BaseException | None] = []
    run_at_once(waits(), ends.append)
    future.cancel()
    await asyncio.sleep(0)
    assert isinstance(ends[0], asyncio.CancelledError)
