"""Computes the lag of groups on request."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from server.metrics.survey import Survey, Surveyed
from server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore

#: More frequent calls get the same response again.
CACHE_S = 1.0


class Activity:
    """Computes the lag of groups.

    Owned by the event loop's thread, except `find`. Thread: "activity" reads the store, for one
    request at a time: any number of requests takes one thread, and none from the pools for calls.
    Locks: `_looking`, held during a read.
    """

    def __init__(self, store: MessageStore, groups: int, now_ms: Callable[[], int]) -> None:
        """`groups`: how many groups to report, those with the largest lag."""
        self._survey = Survey(store, groups, now_ms)
        self._thread = Workers(1, "activity")
        self._looking = threading.Lock()
        self._found: tuple[float, Surveyed] | None = None

    def close(self) -> None:
        """Wait for running work. Blocks for at most `server.workers.CLOSE_S`."""
        self._thread.close()

    async def look(self) -> Surveyed:
        """The current result. Raises what the store raises."""
        return await self._thread.run(self.find)

    def find(self) -> Surveyed:
        """Like `look`, for other threads. Waiters get the result of the one before them."""
        with self._looking:
            if self._found is None or monotonic() - self._found[0] >= CACHE_S:
                self._found = (monotonic(), self._survey.go_on())
            return self._found[1]
