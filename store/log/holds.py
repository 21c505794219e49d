"""Holds on the log: retention removes nothing that somebody still has to copy."""

from __future__ import annotations

from store.base import Lock


class LogHolds:
    """Who holds the log, and from where on. Thread: any. Locks: `_lock`, innermost."""

    def __init__(self) -> None:
        self._lock = Lock()
        # Guarded by _lock.
        self._held: dict[LogHold, int] = {}

    @property
    def lowest(self) -> int | None:
        """Physical offset at and above which the log is held; None: by nobody."""
        with self._lock:
            return min(self._held.values(), default=None)

    def add(self, start: int) -> LogHold:
        """The log stays from `start` on until the hold is let go of. The caller keeps retention
        out meanwhile: a run that has decided already knows nothing of it."""
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
    """One of them. A context: its end lets go."""

    def __init__(self, holds: LogHolds) -> None:
        self._holds = holds

    def move(self, start: int) -> None:
        """What lies below `start` is not needed any more."""
        self._holds.move(self, start)

    def __enter__(self) -> LogHold:
        return self

    def __exit__(self, *_: object) -> None:
        self._holds.remove(self)
