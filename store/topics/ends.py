"""The deletions of topics and light queues that this process saw."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.base import Lock

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_MOST = 65_536


class End(NamedTuple):
    """The latest deletion of a name."""

    below: int  # physical: messages from before it lie below
    is_dispatched: bool  # its rows are removed; rows of a new queue of that name come later


class Ends:
    """Remembers deletions. Thread: any. Memory: bounded; for an evicted name, a later offset is
    returned."""

    def __init__(self, log_end: int) -> None:
        self._changing = Lock()
        # Read freely; changed under _changing, and rows are never changed.
        self._ends: dict[str, End] = {}
        # For names whose end is being appended: the end before it, None if unknown.
        self._before: dict[str, End | None] = {}
        self._others = End(log_end, is_dispatched=True)

    def get(self, name: str) -> End:
        """Its latest deletion; possibly a later offset, if none was seen."""
        return self._ends.get(name, self._others)

    def changed_since(self, before: Mapping[str, End]) -> bool:
        """Whether one of these names was deleted since `before`, its last deletion then."""
        return any(self.get(name) != end for name, end in before.items())

    def is_earlier(self, name: str, given_at: int) -> bool | None:
        """Whether the name was deleted after the log ended at `given_at`; None if unknown."""
        end = self._ends.get(name)
        if end is not None:
            return end.is_dispatched and end.below >= given_at
        return False if given_at > self._others.below else None

    def decided(self, names: Iterable[str], log_end: int) -> None:
        """Register deletions in the record that is appended next; `settled` must follow.
        Repeatable."""
        with self._changing:
            for name in names:
                self._before.setdefault(name, self._ends.get(name))
            self._ends.update(dict.fromkeys(names, End(log_end, is_dispatched=False)))

    def settled(self, *, is_appended: bool) -> None:
        """Confirm them if that record is in the log, otherwise discard them. Repeatable."""
        if not self._before:
            return
        with self._changing:
            if not is_appended:
                for name, end in self._before.items():
                    if end is not None:
                        self._ends[name] = end
                    else:
                        self._ends.pop(name, None)
            self._before = {}

    def dispatched(self, names: Iterable[str], physical_offset: int) -> None:
        """The record there, which deletes these names, is in the rows."""
        with self._changing:
            end = End(physical_offset, is_dispatched=True)
            for name in names:
                if self.get(name).below <= physical_offset:
                    self._ends[name] = end
                before = self._before.get(name)
                if before is not None and before.below <= physical_offset:
                    self._before[name] = end
            if len(self._ends) > _MOST:
                self._drop_dispatched()

    def _drop_dispatched(self) -> None:
        done = {name: end for name, end in self._ends.items() if end.is_dispatched}
        self._others = max([self._others, *done.values()])
        self._ends = {name: end for name, end in self._ends.items() if name not in done}
