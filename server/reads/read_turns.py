"""Reads in the event loop take turns. One pull takes little time, but ten thousand that arrived in
one message, or were woken by one put, would delay all other calls."""

from __future__ import annotations

from collections import deque
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

#: Reads of one turn of the loop continue for this long; later ones wait for another turn.
TURN_S = 0.005
#: Number of waiting reads in one turn of the loop. One takes about a millisecond.
AT_A_TIME = 8


class ReadTurns:
    """First come, first served. Owned by the event loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._until_s: float | None = None  # None: nothing was read in this turn of the loop
        self._waiting: deque[asyncio.Future[None]] = deque()

    @property
    def is_free(self) -> bool:
        """Whether `next` returns immediately."""
        if self._until_s is None:
            self._until_s = perf_counter() + TURN_S
            self._loop.call_soon(self._next_turn)
        return not self._waiting and perf_counter() < self._until_s

    async def next(self) -> None:
        """Wait until the next read may use the loop."""
        if not self.is_free:
            turn = self._loop.create_future()
            self._waiting.append(turn)
            await turn

    def _next_turn(self) -> None:
        left = AT_A_TIME
        while self._waiting and left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                left -= 1
        if left == AT_A_TIME:
            self._until_s = None
        else:
            self._until_s = 0.0  # theirs is the next turn of the loop
            self._loop.call_soon(self._next_turn)
