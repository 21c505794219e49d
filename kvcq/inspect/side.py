"""What a check knows about a store when it begins, and what it needs of each side."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.consume_queue import DispatchRequest

if TYPE_CHECKING:
    from kvcq.inspect.findings import Findings
    from kvcq.inspect.log import LogCheck
    from store.base import Progress
    from store.log import SegmentSet
    from store.store_dir import StoreDir
    from store.topics import Admission

Take = Callable[[Sequence[DispatchRequest]], None]
#: Walks the log again and passes all its records on.
WalkAgain = Callable[[Take], None]


class OpenedStore(NamedTuple):
    """A stopped store, opened for reading."""

    directory: StoreDir
    segments: SegmentSet
    admission: Admission
    endings: Mapping[str, int]  # names -> physical offset of the last record that ends them
    was_closed: bool  # stopped cleanly
    findings: Findings
    progress: Progress

    def ends_behind(self, point: int) -> frozenset[str]:
        """Names deleted at or after that position of the log. A database dispatched up to there
        still has their rows, which the next opening removes."""
        return frozenset(name for name, at in self.endings.items() if at >= point)


class Side(Protocol):
    """A place with data derived from the log, as a check sees it.

    It gets the log's records in the one pass over it, and then reports what differs.
    """

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Take the next records of the log, ascending."""
        ...

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        """After all records: compare the side's content with them, and report findings."""
        ...

    def is_left_out(self, number: int) -> bool:
        """Whether no row refers to the damage with that number in the log, as far as all rows were
        read."""
        ...

    @property
    def counts(self) -> tuple[int, int]:
        """Number of units and index rows checked."""
        ...
