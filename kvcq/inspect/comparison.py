"""One comparison of units: what the records of the log give, and what a side has.

Sums of hashes prove that both are equal. Where they differ, the log is walked again to find units
that the side lacks; if that does not explain it, the side's units are judged by their records.
Every check of units does this: of RocksDB and of queue files, stopped or serving. A side only reads
its units and reports. Memory: 1 MiB, and a page of units.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Protocol

from kvcq.inspect.sums import RowSums

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence

    from kvcq.tables import Unit, UnitColumns

#: Topic and queue id.
Queue = tuple[str, int]


class UnitSide(Protocol):
    """What holds units, as a comparison sees it."""

    def units(self) -> Iterator[UnitColumns]:
        """Yield all units that need a record in the walked log. Called again for a closer look."""
        ...

    def places_in(self, queue: Queue, offsets: Sequence[int]) -> Collection[int]:
        """Offsets at which the queue has a unit, right or wrong, including those of `offsets`."""
        ...

    def is_missing(self, queue: Queue, offset: int, unit: Unit) -> None:
        """The log has this unit, and the side none at its place. Report it if it is a fault."""
        ...

    def judge(self, queue: Queue, offset: int, unit: Unit) -> None:
        """The side's unit may differ from the log. Compare it with its record, and report."""
        ...


class Comparison:
    """Pass the units of all live records to `expect`, then call `read`; if they `differ`, pass all
    to `find_missing`; if they still do, call `find_wrong`."""

    def __init__(self, side: UnitSide, *, with_times: bool) -> None:
        """`with_times`: the side keeps store times."""
        self._side = side
        self._with_times = with_times
        self._sums = RowSums()

    @property
    def expected(self) -> int:
        """Number of units that should be there."""
        return self._sums.expected

    @property
    def differ(self) -> bool:
        return self._sums.differ

    def expect(self, units: UnitColumns) -> None:
        self._sums.add_expected(self._kept(units).hashes())

    def read(self) -> None:
        for units in self._side.units():
            self._sums.add_found(units.hashes())

    def find_missing(self, units: UnitColumns) -> None:
        """Report missing units, and count them as found: the rest of their buckets may be equal."""
        candidates = self._candidates(self._kept(units))
        queues: dict[Queue, list[tuple[int, Unit, int]]] = {}
        for index, (queue, offset, unit) in enumerate(candidates.rows()):
            queues.setdefault(queue, []).append((offset, unit, index))
        missing: list[int] = []
        for queue, expected in queues.items():
            there = self._side.places_in(queue, [offset for offset, _, _ in expected])
            for offset, unit, index in expected:
                if offset not in there:
                    missing.append(index)
                    self._side.is_missing(queue, offset, unit)
        if missing:
            self._sums.add_found(candidates.hashes()[missing])

    def find_wrong(self) -> None:
        for units in self._side.units():
            for queue, offset, unit in self._candidates(units).rows():
                self._side.judge(queue, offset, unit)

    def _kept(self, units: UnitColumns) -> UnitColumns:
        return units if self._with_times else replace(units, store_time_ms=None)

    def _candidates(self, units: UnitColumns) -> UnitColumns:
        return units.where(self._sums.candidates(units.hashes()))
