"""A callback that the event loop runs once for many that asked for it."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable


class Nudge:
    """Has the loop run `callback` soon after each `ask`; while a run is due, further ones are free.

    Thread: one at a time asks. Ctrl-C may end an `ask` anywhere; a later one asks again.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, callback: Callable[[], None]) -> None:
        self._loop = loop
        self._callback = callback
        # Numbers of runs. Of what was asked for the number is noted afterwards: if that is missed,
        # there is a run too many, and none too few.
        self._asked: float = 0
        self._ran = 0

    def ask(self) -> None:
        """Nothing that was done before is missed by the run. Dropped once the loop is closed."""
        if self._ran < self._asked or self._loop.is_closed():
            return
        number = int(self._asked) + 1
        self._loop.call_soon_threadsafe(self._run, number)
        self._asked = number

    def stop(self) -> None:
        """Ask no more: in this process, a fork of the other, there is no loop."""
        self._asked = inf

    def _run(self, number: int) -> None:
        self._ran = number  # first: who asks from here on gets another run
        self._callback()
