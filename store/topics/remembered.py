"""A cache of lookups in the state by name, invalidated on change."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Generic, TypeVar

from store.base import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable

_CACHE_LIMIT = 65_536

T = TypeVar("T")


class Remembered(ABC, Generic[T]):
    """The cache. Thread: any. Memory: bounded."""

    def __init__(self) -> None:
        self._changing = Lock()
        # Read freely; changed under _changing.
        self._answers: dict[str, T] = {}
        self._changes = 0

    @abstractmethod
    def _look_up(self, name: str) -> T:
        """Read it from the state."""

    def _remembered(self, name: str) -> T:
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
