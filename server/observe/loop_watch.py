"""Measures how late the event loop runs due work, which delays all calls."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.base import Histogram

if TYPE_CHECKING:
    import asyncio

    from store.base import Counted

#: Interval of its checks. A shorter stop may fall between two checks; of many such stops a part is
#: seen.
PERIOD_S = 0.05
#: Seconds. No call may hold the loop for more than 0.02.
BOUNDS_S = (0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 5.0)


class LoopWatch:
    """A timer that records how late it is called. Owned by the loop's thread."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._late_s = Histogram(BOUNDS_S)
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure from now until `stop`."""
        self._timer = self._loop.call_at(self._loop.time() + PERIOD_S, self._look)

    def stop(self) -> None:
        """Repeatable."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def read(self) -> Counted:
        """Seconds that each timer was late."""
        return self._late_s.read()

    def _look(self) -> None:
        assert self._timer is not None
        self._late_s.add(max(0.0, self._loop.time() - self._timer.when()))
        self.start()
