"""Joins concurrent calls that begin or decide transactions into one append.

While one append runs in its thread, others gather for the next; none waits for a timer. A call that
is alone is decided on the event loop, which saves two changes of threads.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from server.workers import Workers
from store.errors import AppendWouldWaitError, StoreError
from store.held import MOST_TOGETHER

if TYPE_CHECKING:
    from collections.abc import Sequence

    from server.puts import Durability
    from store.held import Begin, Decide, Halves

_Waiting = tuple["Begin | Decide", asyncio.Future[str]]


class TransactionWriter:
    """Joins concurrent calls into appends. Owned by the event loop's thread."""

    def __init__(self, halves: Halves, durability: Durability) -> None:
        self._halves = halves
        self._durability = durability
        self._thread = Workers(1, "transaction")
        self._waiting: deque[_Waiting] = deque()
        self._task: asyncio.Task[None] | None = None
        # Answers that wait for the disk.
        self._answering: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Wait for the running append. Blocks."""
        self._thread.close()

    async def decide(self, call: Begin | Decide) -> str:
        """The id of the transaction, once the change is as durable as a put.

        Raises what Halves.decide returns or raises, FlushTimeoutError. A call that is cancelled may
        have been decided.
        """
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        if self._task is None:
            self._task = asyncio.create_task(self._run())
        return await answer

    async def _run(self) -> None:
        waiting = self._waiting
        try:
            while waiting:
                some = [waiting.popleft() for _ in range(min(len(waiting), MOST_TOGETHER))]
                some = [each for each in some if not each[1].done()]
                if some:
                    await self._take(some)
        finally:
            self._task = None

    async def _take(self, some: Sequence[_Waiting]) -> None:
        calls = [call for call, _ in some]
        try:
            try:
                answers, end = self._halves.decide(calls, at_once=True)
            except AppendWouldWaitError:
                answers, end = await self._thread.run(self._halves.decide, calls)
        except BaseException as error:
            _refuse(some, error)
            if not isinstance(error, Exception):
                raise
            return
        if self._durability.is_durable(end):
            _answer(some, answers)
            return
        task = asyncio.create_task(self._answer_later(some, answers, end))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def _answer_later(
        self, some: Sequence[_Waiting], answers: Sequence[str | StoreError], end: int
    ) -> None:
        try:
            await self._durability.wait(end)
        except BaseException as error:
            _refuse(some, error)
            if not isinstance(error, Exception):
                raise
            return
        _answer(some, answers)


def _refuse(some: Sequence[_Waiting], error: BaseException) -> None:
    for _, future in some:
        if future.done():
            continue
        if isinstance(error, Exception):
            future.set_exception(error)
        else:
            future.cancel()


def _answer(some: Sequence[_Waiting], answers: Sequence[str | StoreError]) -> None:
    for (_, future), answer in zip(some, answers, strict=True):
        if future.done():  # its caller is gone
            continue
        if isinstance(answer, StoreError):
            future.set_exception(answer)
        else:
            future.set_result(answer)
