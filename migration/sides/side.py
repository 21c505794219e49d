"""One of the two stores of queues behind a double write."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Protocol

from store.consume_queue import ConsumeQueueStore, LastUnit

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq.tables import UnitColumns
    from migration.state import SideName


class SideStore(ConsumeQueueStore, Protocol):
    """A ConsumeQueueStore that can list its content."""

    def names(self) -> list[str]:
        """Every topic and light queue that has rows or files, even without messages."""
        ...

    def last_units(self) -> Iterator[LastUnit]:
        """Yield the last unit of every queue."""
        ...

    def units_between(self, start: int, end: int) -> Iterator[UnitColumns]:
        """Yield all units, as stored, of records in `start..end`, in chunks, in one pass over the
        store. Units added or removed meanwhile may be included or not."""
        ...


def ends_below(store: SideStore, log_start: int) -> Iterator[LastUnit]:
    """The ends of queues whose messages have all left the log, which begins at `log_start`.

    The log has nothing of them any more, so a side that is derived from it takes them from the
    other side.
    """
    return (unit for unit in store.last_units() if unit.physical_offset < log_start)


class IngestingStore(SideStore, Protocol):
    """A side that can ingest sorted files."""

    def ingest(
        self, files: Mapping[str, Sequence[Path]], end_offset: int, *, move: bool
    ) -> None: ...


class Side:
    """A side in use. Fields are guarded by the double store's lock, and may be read without it."""

    def __init__(self, name: SideName, store: SideStore) -> None:
        # Constant after construction.
        self.name = name
        self.store = store
        #: Held while a filler reads a piece of the log and writes it here.
        self.filling = threading.RLock()
        #: Whether live dispatch includes it.
        self.joined = False
        #: Why it was stopped; None once an operator resumes it.
        self.failure: BaseException | None = None
        #: It is being reopened, or could not be: reads are impossible.
        self.is_closed = False

    def close(self) -> None:
        """Close the store, but keep the side. Repeatable. Raises what closing raises; the store is
        closed nevertheless."""
        self.is_closed = True
        with self.filling:  # a running filler ends first
            self.store.close()
