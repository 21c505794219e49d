"""Names that are ready: of which there may be something to receive, now or at a known time.

Level-triggered. A name that is not here has nothing to receive until an event puts it here. It is
taken out to be looked at, and comes back unless the look found all that there was.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Entries of the heap that are out of date are removed when so many more than the others.
_MOST_STALE = 64


class ReadyNames:
    """A queue of ready names, and alarms for others. Not thread-safe. Memory: of the names that are
    ready, or have an alarm."""

    __slots__ = ("_alarms", "_due", "_names")

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()  # in the order of their turns
        # When a name is ready again: the earliest time of each, and a heap of them.
        self._due: dict[str, int] = {}
        self._alarms: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        return name in self._names

    @property
    def waiting(self) -> int:
        """Names with an alarm."""
        return len(self._due)

    @property
    def next_alarm_ms(self) -> int | None:
        """The earliest, or a time before it; None: there is no alarm."""
        alarms, due = self._alarms, self._due
        while alarms and due.get(alarms[0][1]) != alarms[0][0]:
            heappop(alarms)
        return alarms[0][0] if alarms else None

    def add(self, name: str) -> bool:
        """It is ready; one that was keeps its turn. Returns whether it is the only one."""
        if not self._names:
            self._names[name] = None
            return True
        self._names.setdefault(name)
        return False

    def add_all(self, names: Iterable[str]) -> bool:
        """The same of several; whether there was none before."""
        was_empty = not self._names
        for name in names:
            self._names.setdefault(name)
        return was_empty and bool(self._names)

    def discard(self, name: str) -> None:
        """It is of no interest any more."""
        self._names.pop(name, None)
        self._due.pop(name, None)

    def wake_at(self, name: str, time_ms: int) -> bool:
        """It is ready then, at the latest. Returns whether that is before all other alarms."""
        before = self._due.get(name)
        if before is not None and before <= time_ms:
            return False
        earliest = self.next_alarm_ms
        self._due[name] = time_ms
        heappush(self._alarms, (time_ms, name))
        if len(self._alarms) > 2 * len(self._due) + _MOST_STALE:
            self._alarms = [(at, each) for each, at in self._due.items()]
            heapify(self._alarms)
        return earliest is None or time_ms < earliest

    def ring(self, now_ms: int) -> None:
        """Names whose time has come are ready."""
        while (earliest := self.next_alarm_ms) is not None and earliest <= now_ms:
            _, name = heappop(self._alarms)
            del self._due[name]
            self._names.setdefault(name)

    def take(self, count: int, into: list[str]) -> None:
        """The first names are in `into`, and no longer ready. Whatever interrupts it, none is in
        neither."""
        names = self._names
        for _ in range(min(count, len(names))):
            into.append(next(iter(names)))
            del names[into[-1]]

    def put_back(self, names: list[str]) -> None:
        """These were taken and not looked at: they are the first again, in that order."""
        for name in reversed(names):
            self._names[name] = None
            self._names.move_to_end(name, last=False)
