"""Holds on the log: retention does not drop segments that are still being copied."""

from __future__ import annotations

from store.base import Lock


class LogHolds:
    """The current holds on the log. Thread: any. Locks: `_lock`, innermost."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Guarded by _lock.
        self._held: dict[LogHold, int] = {}

    @property
    def lowest(self) -> int | None:
        """Physical offset at and above which the log is held; None without holds."""
        with self._lock:
            return min(self._held.values(), default=None)

    def add(self, start: int) -> LogHold:
        """Hold the log from physical offset `start` on until the hold is released. The caller must
        keep retention out meanwhile, because a run that has already decided ignores new holds."""
        hold = LogHold(self)
        self.move(hold, start)
        return hold

    def move(self, hold: LogHold, start: int) -> None:
        with self._lock:
            self._held[hold] = start

    def remove(self, hold: LogHold) -> None:
        with self._lock:
            self._held.pop(hold, None)


class LogHold:
    """One hold. A context manager that releases it at the end."""

    def __init__(self, holds: LogHolds) -> None:
        self._holds = holds

    def move(self, start: int) -> None:
        """Release the part of the log below `start`."""
        self._holds.move(self, start)

    def __enter__(self) -> LogHold:
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.remove(self)
