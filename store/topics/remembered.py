"""Lookups in the state by name, cached until the name changes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

from store.base import Lock
from store.state import STATE_TOPIC

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from store.state import Tables

_CACHE_LIMIT = 65_536

T = TypeVar("T")


class Remembered(Generic[T]):
    """The cache. Thread: any. Memory: bounded."""

    def __init__(self, look_up: Callable[[str], T]) -> None:
        """`look_up` reads it from the state."""
        self._look_up = look_up
        self._changing = Lock()
        # Read freely; changed under _changing.
        self._answers: dict[str, T] = {}
        self._changes = 0

    def get(self, name: str, /) -> T:
        try:
            return self._answers[name]
        except KeyError:
            pass
        changes = self._changes
        answer = self._look_up(name)
        with self._changing:
            # Not when something changed meanwhile: what was read may be old.
            if changes == self._changes:
                if len(self._answers) >= _CACHE_LIMIT:
                    self._answers.clear()
                self._answers[name] = answer
        return answer

    def changed(self, names: Iterable[str]) -> None:
        """Invalidate these names."""
        with self._changing:
            self._changes += 1
            for name in self._answers.keys() & names:
                del self._answers[name]


class LiveTopics(Remembered[int | None]):
    """The physical offset at which each topic begins; None if there is no such topic."""

    def __init__(self, tables: Tables) -> None:
        def begin(name: str) -> int | None:
            if name == STATE_TOPIC:
                return 0
            found = tables.topic(name)
            return None if found is None else found.created_offset

        super().__init__(begin)


class DeadNames:
    """Names with dead records whose deletion is not in the log, and the physical offset that they
    are below: from deletions in an adopted log, or before the store's format 2."""

    def __init__(self, tables: Tables) -> None:
        self._tables = tables
        self._offsets = Remembered(tables.dead_offset)
        #: Whether there are any. Read freely; changed by dispatch.
        self.has_any = tables.has_dead()

    def get(self, name: str, _default: int = 0, /) -> int:
        """0 if no record of the name is dead."""
        return self._offsets.get(name) if self.has_any else 0

    def changed(self, names: Iterable[str]) -> None:
        """Invalidate these names."""
        self._offsets.changed(names)
        if self.has_any:
            self.has_any = self._tables.has_dead()
