"""Ready names: they may have something to deliver, now or at a known time.

Level-triggered. A name that is not in the set has nothing to deliver until an event adds it. A
receive removes a name to look for messages, and adds it again unless the look delivered all.
"""

from __future__ import annotations

from collections import OrderedDict
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

#: The heap is rebuilt when it has this many more outdated entries than others.
_MOST_STALE = 64


class ReadyNames:
    """A queue of ready names, and alarms for other names. Not thread-safe. Memory: one entry for
    each ready name and each alarm."""

    __slots__ = ("_alarms", "_due", "_names")

    def __init__(self) -> None:
        self._names: OrderedDict[str, None] = OrderedDict()  # in the order of their turns
        # When a name becomes ready: the earliest time of each, and a heap of all times.
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
        """The time of the earliest alarm, ms; None if there is none."""
        alarms, due = self._alarms, self._due
        while alarms and due.get(alarms[0][1]) != alarms[0][0]:
            heappop(alarms)
        return alarms[0][0] if alarms else None

    def add(self, name: str) -> bool:
        """Make the name ready. If it already was, its place in the order stays. Returns whether the
        set was empty."""
        if not self._names:
            self._names[name] = None
            return True
        self._names.setdefault(name)
        return False

    def add_all(self, names: Iterable[str]) -> bool:
        """Like `add`, for several names."""
        was_empty = not self._names
        for name in names:
            self._names.setdefault(name)
        return was_empty and bool(self._names)

    def discard(self, name: str) -> None:
        """Remove the name and its alarm."""
        self._names.pop(name, None)
        self._due.pop(name, None)

    def wake_at(self, name: str, time_ms: int) -> bool:
        """Make the name ready at `time_ms` at the latest. Returns whether this is now the earliest
        alarm."""
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
        """Make the names ready whose alarms are due."""
        while (earliest := self.next_alarm_ms) is not None and earliest <= now_ms:
            _, name = heappop(self._alarms)
            del self._due[name]
            self._names.setdefault(name)

    def take(self, count: int, into: list[str]) -> None:
        """Move the first `count` names to `into`. After an interrupt no name is lost, but some may
        be in both."""
        names = self._names
        for _ in range(min(count, len(names))):
            into.append(next(iter(names)))
            del names[into[-1]]

    def put_back(self, names: list[str]) -> None:
        """Put names back that were taken and not looked at, at the front, in this order."""
        for name in reversed(names):
            self._names[name] = None
            self._names.move_to_end(name, last=False)
