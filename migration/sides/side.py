"""One of the two stores of queues behind a double write, and what it can do besides."""

from __future__ import annotations

import threading
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from store.consume_queue import ConsumeQueueStore
from store.errors import StoreError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq.tables import UnitColumns
    from migration.state import SideName

#: A name no topic can have: deletion number N "of it" sets a new side's count of deletions.
NO_TOPIC = "?"


class SideStore(ConsumeQueueStore, Protocol):
    """A ConsumeQueueStore that tells what it holds."""

    def names(self) -> list[str]:
        """Every topic and light queue that it keeps anything of, also without a message."""
        ...

    def last_units(self) -> Iterator[tuple[str, int, int, int]]:
        """Topic, queue id, queue offset, physical offset of the last unit of every queue."""
        ...

    def stored_units(
        self, topic: str, queue_id: int, start: int, count: int
    ) -> list[tuple[int, tuple[int, ...]]]:
        """Up to `count` units as they are stored: physical offset, size, tag code and, where it
        is kept, store time. Without a look at the log."""
        ...

    def units_between(self, start: int, end: int) -> Iterator[UnitColumns]:
        """All units, as they are stored, of records in `start..end`: some at a time, in one pass
        over what is stored. Units that come or go meanwhile may be among them."""
        ...


class IngestingStore(SideStore, Protocol):
    """One that takes files which somebody else has sorted."""

    def ingest(
        self, files: Mapping[str, Sequence[Path]], end_offset: int, *, move: bool
    ) -> None: ...


class Side:
    """A side that is in use. Its fields are guarded by the double store's lock, read freely."""

    def __init__(self, name: SideName, store: SideStore) -> None:
        # Constant after construction.
        self.name = name
        self.store = store
        #: Held while a filler reads a piece of the log and writes it here, and while a topic is
        #: deleted: so nothing of a deleted topic is written after its deletion.
        self.filling = threading.RLock()
        #: Live dispatch feeds it.
        self.joined = False
        #: Why it was left behind, until somebody resumes.
        self.failure: BaseException | None = None
        #: As of its last flush: those that no crash takes back any more.
        self.durable_deletions = 0
        # Once it is closed to be opened again: what it had applied.
        self._applied_deletions: int | None = None

    @property
    def applied_deletions(self) -> int:
        """See SideStore; also of one that is closed."""
        if self._applied_deletions is not None:
            return self._applied_deletions
        return self.store.applied_deletions

    @property
    def is_closed(self) -> bool:
        """It is being opened again, or could not be: nothing can be read of it."""
        return self._applied_deletions is not None

    def close(self) -> None:
        """Close its store; the side stays. Repeatable. Raises what closing raises, when done."""
        if self._applied_deletions is None:
            self._applied_deletions = 0  # where it cannot be read, none counts
            with suppress(StoreError):
                self._applied_deletions = self.store.applied_deletions
        with self.filling:  # whoever fills it ends first
            self.store.close()
