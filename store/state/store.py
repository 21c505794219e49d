"""What holds the rows of state, at one point of the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from store.state.rows import Rows

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.state.changes import Changes
    from store.state.rows import Pair


class StateStore(Rows, Protocol):
    """Thread: any for reads; changes one at a time."""

    @property
    def point(self) -> int:
        """Physical offset: what records below it say is in the rows, and nothing else."""
        ...

    def apply(self, changes: Changes, end_offset: int) -> None:
        """The changes of the record that ends there, and the point, in one step.

        Raises StoreBusyError when they cannot be taken now: nothing changed then. Durable after
        `flush`.
        """
        ...

    def advance(self, end_offset: int) -> None:
        """No record below `end_offset` says anything that is not in the rows."""
        ...

    def put_counted(self, rows: Sequence[Pair]) -> None:
        """Rows that no record tells of: what they hold can be counted again."""
        ...

    def flush(self) -> None:
        """The rows are durable, with the point."""
        ...

    def close(self) -> None:
        """Flush, then let go of the files. Repeatable."""
        ...


class Snapshots(Protocol):
    """Sealed copies of the state: an opening is independent of the database with them."""

    def look(self) -> None:
        """What is due; called every second. May take long."""
        ...

    def cover(self, end: int) -> None:
        """Before the log below `end` is dropped, all of which is dispatched: what it added up to
        is kept. Raises DiskFullError, StoreError: nothing is to be dropped then."""
        ...

    def take(self) -> object:
        """A sealed one of now. May take long."""
        ...

    def take_anew(self) -> None:
        """The same; it takes the place of all that are there: from now on it is the database that
        knows where queues end. May take long."""
        ...

    def stop(self) -> None:
        """At a clean stop, while the database is still open."""
        ...

    def statistics(self) -> dict[str, float]:
        """Numbers for operators, by name."""
        ...
