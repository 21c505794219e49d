"""The physical offset at which each topic begins, from the state; cached."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.state import STATE_TOPIC
from store.topics.remembered import Remembered

if TYPE_CHECKING:
    from store.state import Tables


class LiveTopics(Remembered[int | None]):
    """Looks up where topics begin. Thread: any. Memory: bounded."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        # Constant after construction.
        self._tables = tables

    def get(self, name: str, /) -> int | None:
        """Physical offset at which the topic begins; None if there is no such topic."""
        return 0 if name == STATE_TOPIC else self._remembered(name)

    def _look_up(self, name: str) -> int | None:
        found = self._tables.topic(name)
        return None if found is None else found.created_offset
