"""From where in the log on each topic lives, as the state says; what was asked is remembered."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.state import STATE_TOPIC
from store.topics.remembered import Remembered

if TYPE_CHECKING:
    from store.state import Tables


class LiveTopics(Remembered[int | None]):
    """Thread: any. Memory: bounded."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        # Constant after construction.
        self._tables = tables

    def get(self, name: str, /) -> int | None:
        """Physical offset from which the topic's records live; None: there is no such topic."""
        return 0 if name == STATE_TOPIC else self._remembered(name)

    def _look_up(self, name: str) -> int | None:
        found = self._tables.topic(name)
        return None if found is None else found.created_offset
