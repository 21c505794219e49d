"""Limits how many groups receives may create, since each is a permanent record and row."""

from __future__ import annotations

import threading
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING

from server.errors import TooManyGroupsError

if TYPE_CHECKING:
    from collections.abc import Callable

#: Groups that receives may create in a second: of one user (without users: of one connection), and
#: of all. A service that starts creates dozens; a loop that invents a name for each call would
#: create thousands.
OF_ONE = 100
OF_ALL = 1000


class NewGroups:
    """Limits how many groups callers create a second. Thread: any."""

    def __init__(self, now_s: Callable[[], float] = monotonic) -> None:
        self._now_s = now_s
        self._lock = threading.Lock()
        # Guarded by _lock.
        self._second = 0
        self._made: Counter[str] = Counter()
        # A group stays missing until its record is dispatched, and more calls may create it.
        self._names: set[str] = set()

    def check(self, asker: str, group: str) -> None:
        """Raises TooManyGroupsError if the group may not be created in this second."""
        with self._lock:
            self._forget()
            is_full = self._made[asker] >= OF_ONE or len(self._names) >= OF_ALL
            if is_full and group not in self._names:
                raise TooManyGroupsError(OF_ONE)

    def made(self, asker: str, group: str) -> None:
        """Count a created group, once."""
        with self._lock:
            self._forget()
            if group not in self._names:
                self._names.add(group)
                self._made[asker] += 1

    def _forget(self) -> None:
        second = int(self._now_s())
        if second != self._second:
            self._second = second
            self._made.clear()
            self._names.clear()
