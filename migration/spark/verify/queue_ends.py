"""The last unit of every queue, as a table of 24 bytes for each queue.

A `max` row in RocksDB has the place of the last unit of its queue: the one that was dispatched
last, with the highest physical offset. Queues are identified by hashes of their names.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa

    from kvcq.tables import Hashes
    from migration.columnar import Ints

#: Rows that are collected before they are reduced to one for each queue.
_REDUCE_AT = 262_144


class EndsByHash:
    """For each queue seen, physical offset and queue offset of its highest unit."""

    def __init__(self) -> None:
        self._parts: list[_Table] = []
        self._pending = 0

    def add(self, queues: Hashes, units: pa.RecordBatch) -> None:
        """Add units whose queues have these hashes."""
        places = np.asarray(units.column("physical_offset"))
        offsets = np.asarray(units.column("queue_offset"))
        self._append(_reduced(_Table(queues, places, offsets)))

    def merge(self, other: EndsByHash) -> None:
        """Add the other's units."""
        for part in other._parts:
            self._append(part)

    def table(self) -> _Table:
        """One row for each queue, hashes ascending."""
        if not self._parts:
            none = np.empty(0, dtype=np.int64)
            return _Table(none.view(np.uint64), none, none)
        columns = zip(*self._parts, strict=True)
        whole = _reduced(_Table(*(np.concatenate(column) for column in columns)))
        self._parts, self._pending = [whole], 0
        return whole

    def _append(self, part: _Table) -> None:
        self._parts.append(part)
        self._pending += len(part.queues)
        if self._pending > _REDUCE_AT and len(self._parts) > 1:
            self.table()

    def __getstate__(self) -> tuple[_Table]:
        return (self.table(),)

    def __setstate__(self, state: tuple[_Table]) -> None:
        self._parts, self._pending = list(state), 0


class _Table(NamedTuple):
    queues: Hashes
    places: Ints
    offsets: Ints


def _reduced(table: _Table) -> _Table:
    order = np.lexsort((table.places, table.queues))
    queues = table.queues[order]
    last = np.flatnonzero(np.append(queues[1:] != queues[:-1], np.ones(min(1, len(queues)), bool)))
    rows = order[last]
    return _Table(queues[last], table.places[rows], table.offsets[rows])


def differing(one: EndsByHash, other: EndsByHash) -> Hashes:
    """Queues whose ends differ, ascending."""
    left, right = one.table(), other.table()
    queues = np.union1d(left.queues, right.queues)
    same = np.ones(len(queues), dtype=np.bool_)
    places = [np.full(len(queues), -1, dtype=np.int64) for _ in range(4)]
    for table, (place, offset) in zip((left, right), (places[:2], places[2:]), strict=True):
        rows = np.searchsorted(queues, table.queues)
        place[rows], offset[rows] = table.places, table.offsets
    same = (places[0] == places[2]) & (places[1] == places[3])
    found: Hashes = queues[~same]
    return found
