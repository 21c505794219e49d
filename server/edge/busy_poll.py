"""Busy polling: the event loop stays awake for a moment after a response.

A caller that makes call after call sends the next one as soon as it has the response. Waking a loop
that has gone to sleep takes a good part of a call's time; docs/performance.md has figures. So after
a response to such a caller the loop polls for events without blocking, for at most `limit_s`; other
threads and calls run between two polls. If a caller was slow the last time, the loop does not poll
for it, so the cost is at most one `limit_s` each time a caller slows down. `net.core.busy_poll`
does the same for a socket.
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
    """Polls for the next call of fast callers. Owned by the thread of its event loop."""

    def __init__(self, limit_s: float = LOOK_S, clock: Callable[[], float] = perf_counter) -> None:
        """`limit_s`: how long to poll for the next call; 0 to not poll."""
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
        """Stop at the next poll."""
        self._end_s = 0.0

    def _look(self, loop: asyncio.AbstractEventLoop) -> None:
        if self.now_s() < self._end_s:
            loop.call_soon(self._look, loop)  # with something to do, the loop does not sleep
        else:
            self.is_looking = False


class Pace:
    """For one stream of calls: whether polling for its caller pays."""

    def __init__(self, poll: BusyPoll) -> None:
        self._poll = poll
        self._answered_s = 0.0
        self._is_quick = False

    def answered(self) -> None:
        """A response was sent, and no other call is running."""
        now_s = self._answered_s = self._poll.now_s()
        if self._is_quick:
            self._poll.look_until(now_s + self._poll.limit_s)

    def asked(self) -> None:
        """A message with calls has arrived."""
        self._is_quick = self._poll.now_s() - self._answered_s < self._poll.limit_s
        self._poll.stop()
