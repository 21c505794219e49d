"""The rows that the records of a log should have in the database."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.inspect.rows import prefixes_of, without
from kvcq.inspect.sums import RowSums, hashes_of
from kvcq.tables import BOUNDS, DISPATCHED_KEY, INDEX, UNITS, build_batch

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq.engine import KvEngine, Pair
    from store.consume_queue import DispatchRequest
    from store.topics import Admission

_NOWHERE = 1 << 62


class ExpectedRows:
    """The expected rows of the log's records, as sums."""

    def __init__(
        self,
        engine: KvEngine,
        admission: Admission,
    ) -> None:
        """Raises EngineFailedError."""
        self._admission = admission
        self._left_out: tuple[bytes, ...] = ()
        self.sums = {UNITS: RowSums(), INDEX: RowSums()}
        self.counts = {UNITS: 0, INDEX: 0}
        row = engine.get(BOUNDS, DISPATCHED_KEY)
        checkpoint = int.from_bytes(row or b"", "big", signed=True)
        #: The row of the dispatch point if it is invalid.
        self.bad_checkpoint = row if row is not None and (len(row) != 8 or checkpoint < 0) else None
        self.checkpoint = checkpoint if self.bad_checkpoint is None else _NOWHERE

    def leave_out(self, names: frozenset[str]) -> None:
        """Ignore rows of these topics and light queues, since the next opening deletes them."""
        self._left_out = prefixes_of(names)

    def take(self, requests: Sequence[DispatchRequest]) -> None:
        """Add the next records of the log, ascending."""
        for family, rows in self.rows(requests).items():
            self.sums[family].add_expected(hashes_of(rows))
            self.counts[family] += len(rows)

    def rows(self, requests: Sequence[DispatchRequest]) -> dict[str, list[Pair]]:
        """Units and index rows of these records, as far as they are dispatched."""
        if requests[-1].physical_offset >= self.checkpoint:
            requests = [each for each in requests if each.physical_offset < self.checkpoint]
        admitted: Sequence[DispatchRequest] = self._admission.admit_all(requests)
        puts = build_batch(admitted, 0).puts
        return {family: without(self._left_out, puts[family]) for family in (UNITS, INDEX)}
