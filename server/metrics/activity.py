"""How far groups are behind, for all who ask now and then."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from server.metrics.survey import Survey, Surveyed
from server.workers import Workers

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore

#: Whoever asks more often gets the same answer again.
CACHE_S = 1.0


class Activity:
    """Owned by the event loop's thread, but for `find`.

    Thread: "activity" looks at the store, for one question at a time: however many ask, they take
    one thread, and nothing from the calls' own pools. Locks: `_looking`, held during a look.
    """

    def __init__(self, store: MessageStore, groups: int, now_ms: Callable[[], int]) -> None:
        """`groups`: how many are told of, those that are farthest behind."""
        self._survey = Survey(store, groups, now_ms)
        self._thread = Workers(1, "activity")
        self._looking = threading.Lock()
        self._found: tuple[float, Surveyed] | None = None

    def close(self) -> None:
        """Wait for what runs. Blocks, `server.workers.CLOSE_S` at most."""
        self._thread.close()

    async def look(self) -> Surveyed:
        """What is known by now. Raises what the store raises."""
        return await self._thread.run(self.find)

    def find(self) -> Surveyed:
        """The same, for any other thread. Those who wait get what the one before them found."""
        with self._looking:
            if self._found is None or monotonic() - self._found[0] >= CACHE_S:
                self._found = (monotonic(), self._survey.go_on())
            return self._found[1]
