"""The state at the end of the log: the database's rows, and changes that are not dispatched yet.

Decisions use it, under the append lock: whether a topic exists, whether an offset may be committed.
Readers of messages use the database, which is at the dispatch point.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, NamedTuple

from store.state.changes import Changes, changes_of
from store.state.tables import Tables

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from store.state.entries import Entry
    from store.state.rows import Pair, Rows


class _Appended(NamedTuple):
    """The changes of one record."""

    end_offset: int  # of the record
    changes: Changes


class StateView:
    """Rows as of the log's end.

    Must hold the append lock. Memory: changes that are not dispatched yet.
    """

    def __init__(self, rows: Rows, dispatched: Callable[[], int]) -> None:
        """`dispatched` returns a physical offset; `rows` include all changes below it."""
        # Constant after construction.
        self._dispatched = dispatched
        self.tables = Tables(self)
        # Guarded by the append lock. All pending changes, and for each key and deleted name the end
        # of the last record that changed it.
        self._pending = Changes(rows)
        self._written_at: dict[bytes, int] = {}
        self._ended_at: dict[str, int] = {}
        self._appended: deque[_Appended] = deque()
        # The record that `_take` has begun with, so that it can be repeated after an interrupt.
        self._begun: _Appended | None = None

    def append(
        self,
        entries: Sequence[Entry],
        physical_offset: int,
        end_offset: int,
        changes: Changes | None = None,
    ) -> Changes:
        """Add the entries of the record that was appended at `physical_offset`. Returns their
        changes.

        `changes`: the changes, if already known. After an interrupt, the same call may be repeated
        before a call for another record.
        """
        self._forget_dispatched()
        if not self._appended or self._appended[-1].end_offset < end_offset:
            if changes is None:
                changes = changes_of(entries, physical_offset, self._pending)
            self._begun = _Appended(end_offset, changes)
            self._take(self._begun)
        return self._appended[-1].changes

    def _take(self, appended: _Appended) -> None:
        """Add the changes. Repeatable; once begun it must be completed before anything else."""
        end_offset, changes = appended
        pending = self._pending
        for start, end in changes.ranges:
            for key in pending.written:
                if start <= key < end:
                    pending.written[key] = None
        pending.written.update(changes.written)
        self._written_at.update(dict.fromkeys(changes.written, end_offset))
        self._ended_at.update(dict.fromkeys(changes.ended, end_offset))
        if not self._appended or self._appended[-1].end_offset < end_offset:
            self._appended.append(appended)
        if changes.ranges:
            pending.ranges = self._ranges()
        self._begun = None

    def has_ended(self, name: str) -> bool:
        """Whether a deletion of the topic or light queue is not dispatched yet, so the queues still
        have its rows."""
        self._forget_dispatched()
        return name in self._ended_at

    def _forget_dispatched(self) -> None:
        """Drop changes that are dispatched. Repeatable, since an interrupt may end it."""
        if self._begun is not None:
            self._take(self._begun)
        dispatched, pending = self._dispatched(), self._pending
        while self._appended and self._appended[0].end_offset <= dispatched:
            done = self._appended[0]
            for key in done.changes.written:
                if self._written_at.get(key) == done.end_offset:
                    pending.written.pop(key, None)
                    del self._written_at[key]
            for name in done.changes.ended:
                if self._ended_at.get(name) == done.end_offset:
                    del self._ended_at[name]
            self._appended.popleft()
        if pending.ranges:
            pending.ranges = self._ranges()
        assert self._appended or not (pending.written or pending.ranges or self._ended_at)

    def _ranges(self) -> list[tuple[bytes, bytes]]:
        return [each for one in self._appended for each in one.changes.ranges]

    # --- as rows ---------------------------------------------------------------------------

    def get(self, key: bytes) -> bytes | None:
        self._forget_dispatched()
        return self._pending.get(key)

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        self._forget_dispatched()
        return self._pending.multi_get(keys)

    def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
        self._forget_dispatched()
        return self._pending.scan(start, end, limit)


class LookedRows:
    """Rows as they were when first read."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows
        self._found: dict[bytes, bytes | None] = {}
        self._scanned: dict[tuple[bytes, bytes, int | None], Sequence[tuple[bytes, bytes]]] = {}

    def get(self, key: bytes) -> bytes | None:
        if key not in self._found:
            self._found[key] = self._rows.get(key)
        return self._found[key]

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]:
        found = self._found
        missing = [key for key in keys if key not in found]
        if missing:
            found.update(zip(missing, self._rows.multi_get(missing), strict=True))
        return [found[key] for key in keys]

    def scan(
        self, start: bytes, end: bytes, limit: int | None = None
    ) -> Sequence[tuple[bytes, bytes]]:
        asked = start, end, limit
        if asked not in self._scanned:
            self._scanned[asked] = self._rows.scan(*asked)
        return self._scanned[asked]
