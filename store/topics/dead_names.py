"""Names with dead records whose deletion is not in the log, and the physical offset they are below.

From deletions in an adopted log, or before the store's format 2.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.topics.remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.state import Tables


class DeadNames(Remembered[int]):
    """Reads these from the rows of state. Thread: any. Memory: bounded."""

    def __init__(self, tables: Tables) -> None:
        super().__init__()
        # Constant after construction.
        self._tables = tables
        #: Whether there are any. Read freely; changed under _changing.
        self.has_any = tables.has_dead()

    def get(self, name: str, _default: int = 0, /) -> int:
        """0 if no record of the name is dead."""
        return self._remembered(name) if self.has_any else 0

    def _look_up(self, name: str) -> int:
        return self._tables.dead_offset(name)

    def changed(self, names: Iterable[str]) -> None:
        super().changed(names)
        if self.has_any:
            self.has_any = self._tables.has_dead()
