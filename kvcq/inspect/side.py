"""What a check knows of a store when it begins, and what it asks of each side."""

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
#: Gives all records of the log once more.
WalkAgain = Callable[[Take], None]


class OpenedStore(NamedTuple):
    """A stopped store, opened to be read."""

    directory: StoreDir
    segments: SegmentSet
    admission: Admission
    endings: Mapping[str, int]  # names -> physical offset of the last record that ends them
    was_closed: bool  # in order
    findings: Findings
    progress: Progress

    def ends_behind(self, point: int) -> frozenset[str]:
        """Names that end at or behind that place in the log: what is dispatched up to there still
        has rows of them, which the next opening removes."""
        return frozenset(name for name, at in self.endings.items() if at >= point)


class Side(Protocol):
    """A place where what is derived from the log is kept, as a check sees it.

    It is given the records of the log in the one pass over it. Then it says what differs.
    """

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """The next records of the log, rising."""
        ...

    def compare(self, log: LogCheck, walk_again: WalkAgain) -> None:
        """All records were taken: hold what is there against them, and tell what is found."""
        ...

    def is_left_out(self, number: int) -> bool:
        """Whether no row leads to the damage of that number in the log, as far as all were read."""
        ...

    @property
    def counts(self) -> tuple[int, int]:
        """Units and index rows that were looked at."""
        ...
