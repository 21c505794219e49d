"""From where in the log on each topic lives, as the state says; what was asked is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.base import Lock
from store.state import STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.state import Tables

_CACHE_LIMIT = 65_536


class LiveTopics:
    """Thread: any. Memory: bounded."""

    def __init__(self, tables: Tables) -> None:
        # Constant after construction.
        self._tables = tables
        self._changing = Lock()
        # Read freely; changed under _changing.
        self._starts: dict[str, int | None] = {}
        self._changes = 0

    def get(self, name: str, /) -> int | None:
        """Physical offset from which the topic's records live; None: there is no such topic."""
        if name == STATE_TOPIC:
            return 0
        try:
            return self._starts[name]
        except KeyError:
            pass
        changes = self._changes
        found = self._tables.topic(name)
        start = None if found is None else found.created_offset
        with self._changing:
            # Not when a topic was made or deleted meanwhile: what was read may be old.
            if changes == self._changes:
                if len(self._starts) >= _CACHE_LIMIT:
                    self._starts.clear()
                self._starts[name] = start
        return start

    def changed(self, names: Iterable[str]) -> None:
        """These topics were made or deleted."""
        with self._changing:
            self._changes += 1
            for name in self._starts.keys() & names:
                del self._starts[name]
