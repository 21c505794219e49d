"""Busy polling: the event loop stays awake for a moment after an answer.

A caller that makes call after call asks again as soon as it has the answer. To wake a loop that has
gone to sleep meanwhile takes time: measured, a call of such a caller takes 1.1 to 1.3 times as
long. So behind the answer to one the loop looks for events without waiting for them, for `limit_s`
at most; other threads and other calls have their turns between two looks. Who was slower the last
time is not waited for: the price is at most one look of `limit_s` each time a caller slows down.
It is what `net.core.busy_poll` is to a socket.
"""

from __future__ import annotations

import asyncio
from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


#: A caller on the same machine asks again within 100 to 300 us. Longer looks cost a core more and
#: gain nothing.
LOOK_S = 500e-6


class BusyPoll:
    """Of one event loop, and owned by its thread."""

    def __init__(self, limit_s: float = LOOK_S, clock: Callable[[], float] = perf_counter) -> None:
        """`limit_s`: how long to look for the next call, 0: not at all."""
        self.limit_s = limit_s
        self.now_s = clock
        #: Whether the loop is kept awake.
        self.is_looking = False
        self._end_s = 0.0  # of the looking; 0: the call is there

    def look_until(self, end_s: float) -> None:
        self._end_s = end_s
        if not self.is_looking:
            self.is_looking = True
            self._look(asyncio.get_running_loop())

    def stop(self) -> None:
        """At the next look."""
        self._end_s = 0.0

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.now_s() < self._end_s:
            loop.call_soon(self._look, loop)  # with something to do, the loop does not sleep
        else:
            self.is_looking = False


class Pace:
    """Of one stream of calls: whether its caller is worth looking out for."""

    def __init__(self, poll: BusyPoll) -> None:
        self._poll = poll
        self._answered_s = 0.0
        self._is_quick = False

    def answered(self) -> None:
        """An answer goes out, and nothing else is under way."""
        now_s = self._answered_s = self._poll.now_s()
        if self._is_quick:
            self._poll.look_until(now_s + self._poll.limit_s)

    def asked(self) -> None:
        """A message with calls is there."""
        self._is_quick = self._poll.now_s() - self._answered_s < self._poll.limit_s
        self._poll.stop()
