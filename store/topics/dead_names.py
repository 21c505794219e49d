"""Deleted names, and the physical offset below which the records of each are dead."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.topics.remembered import Remembered

if TYPE_CHECKING:
    from collections.abc import Iterable

    from store.metadata import Metadata

_LOWEST = -(1 << 63)


class DeadNames(Remembered[int]):
    """As the marks of deletions in the metadata say. Thread: any. Memory: bounded."""

    def __init__(self, metadata: Metadata) -> None:
        super().__init__()
        # Constant after construction.
        self._metadata = metadata
        #: Whether there are marks. Read freely; changed under _changing.
        self.has_any = True
        self.look()

    def get(self, name: str, _default: int = 0, /) -> int:
        """0: no record of the name is dead."""
        return self._remembered(name) if self.has_any else 0

    def _look_up(self, name: str) -> int:
        return self._metadata.dead_below([name])[0]

    def changed(self, names: Iterable[str]) -> None:
        super().changed(names)
        with self._changing:
            self._changes += 1  # also of a look between the two
            self.has_any = True

    def look(self) -> None:
        """Whether there are marks, now that some were dropped."""
        changes = self._changes
        found = bool(self._metadata.marks_above(_LOWEST, 1))
        with self._changing:
            if changes == self._changes:
                self.has_any = found
