"""The store of the rows of state, at one point of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from store.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.state.changes import Changes
    from store.state.rows import Pair


class StateStore(Rows, Protocol):
    """The rows of state as of one physical offset of the log, in a database.

    Thread: any; `apply` one at a time.
    """

    @property
    def point(self) -> int:
        """Physical offset: the rows reflect exactly the records below it."""
        ...

    def apply(self, changes: Changes, end_offset: int) -> None:
        """Apply the changes of the record that ends at `end_offset`, and move the point there,
        atomically. Durable after `flush`.

        Raises StoreBusyError if they cannot be applied now; nothing is changed then.
        """
        ...

    def advance(self, end_offset: int) -> None:
        """Move the point to `end_offset`; the caller guarantees that no record up to there changes
        rows."""
        ...

    def put_counted(self, rows: Sequence[Pair]) -> None:
        """Write `k` rows, which no record contains. They may be lost, and are then counted
        again."""
        ...

    def flush(self) -> None:
        """Make the rows and the point durable."""
        ...

    def close(self) -> None:
        """Flush, then close the files. Repeatable."""
        ...


#: Estimate of the bytes of log that opening a store replays in a second, for messages of 1 KiB.
REPLAY_BYTES_S = 48 << 20


class Snapshots(Protocol):
    """Sealed copies of the state, with which the store can open without its database."""

    def look(self) -> None:
        """Take or remove snapshots that are due; called every second. May take long."""
        ...

    def cover(self, end: int) -> None:
        """Make sure that a snapshot covers the log below `end`, which is dispatched, before it is
        dropped. Raises DiskFullError, StoreError; nothing may be dropped then."""
        ...

    def take(self) -> object:
        """Take and seal a snapshot now. May take long."""
        ...

    def take_anew(self) -> None:
        """Take a snapshot that replaces all existing ones; the database is then the source of the
        queues' ends. May take long."""
        ...

    def stop(self) -> None:
        """Prepare for a clean stop. Called while the database is still open."""
        ...

    def statistics(self) -> dict[str, float]:
        """Metrics for operators, by name."""
        ...
