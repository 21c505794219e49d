"""What all looks at rows share: pages of a family, and what is known of an offset of the log."""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from kvcq.errors import CorruptValueError
from kvcq.tables import topic_prefix
from migration.check_findings import Kind
from store.errors import CorruptRecordError
from store.format import Found, dispatch_request
from store.log import look_at, pread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import numpy.typing as npt

    from kvcq.engine import KvEngine, Pair
    from migration.check_findings import Findings
    from migration.check_log import LogCheck
    from store.consume_queue import DispatchRequest
    from store.log import SegmentSet
    from store.topics import Admission

#: What unpacking raises on a row of another layout.
BAD_ROW = (CorruptValueError, ValueError, struct.error)

_PAGE_ROWS = 16_384
_KEYS_END = b"\xff" * 8
_NOWHERE = 1 << 62


class Lookup:
    """One database beside one log."""

    def __init__(
        self,
        engine: KvEngine,
        segments: SegmentSet,
        log: LogCheck,
        admission: Admission,
        pending: frozenset[str],
        findings: Findings,
        progress: Callable[[str, float], None],
    ) -> None:
        """`pending`: topics whose deletion the next opening finishes. `log` was walked."""
        self.engine = engine
        self.log = log
        self.admission = admission
        self.findings = findings
        self._segments = segments
        self._progress = progress
        self._pending = tuple(topic_prefix(topic) for topic in sorted(pending))
        self.checkpoint = _NOWHERE  # end of what is dispatched
        self._starts = np.array(log.damaged_starts, np.int64)
        self._ends = np.array(log.damaged_ends, np.int64)
        self._led_to: set[int] = set()  # damage, by its number

    def pages(self, family: str, what: str, expected: int) -> Iterator[list[Pair]]:
        """All rows, rising, but those of topics that are being deleted."""
        start = b""
        seen = 0
        while page := self.engine.scan(
            family, start, _KEYS_END, limit=_PAGE_ROWS, fill_cache=False
        ):
            start = page[-1][0] + b"\x00"
            yield self.settled(page)
            seen += len(page)
            self._progress(what, min(1.0, seen / max(1, seen, expected)))
        self._progress(what, 1.0)

    def settled(self, rows: list[Pair]) -> list[Pair]:
        """Without those of topics that are being deleted."""
        pending = self._pending
        return [row for row in rows if not row[0].startswith(pending)] if pending else rows

    def is_told(self, physical_offset: int) -> bool:
        """Whether it is known already that no record is there: damage, or a log that ends before.

        With a checkpoint ahead of the log, all rows in between are; opening cuts them.
        """
        end = self.log.end_offset
        return end <= physical_offset < self.checkpoint or self.log.is_damaged(physical_offset)

    def in_question(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which physical offsets need a record: neither expired nor told."""
        wanted = offsets >= self.log.start_offset
        wanted &= ~((offsets >= self.log.end_offset) & (offsets < self.checkpoint))
        if len(self._starts):
            index = np.searchsorted(self._starts, offsets, "right") - 1
            damaged = (index >= 0) & (offsets < self._ends[index])
            self._led_to.update(np.unique(index[damaged]).tolist())
            wanted &= ~damaged
        return wanted

    def is_left_out(self, number: int) -> bool:
        """Whether no row leads to the damage of that number, once all rows were looked at."""
        return number not in self._led_to and self.log.damaged_starts[number] < self.checkpoint

    def damaged_rows(self, offsets: npt.NDArray[np.int64]) -> list[int]:
        """Indexes of those that name the begin of a damaged place."""
        if not len(self._starts):
            return []
        return np.flatnonzero(np.isin(offsets, self._starts)).tolist()

    def record_at(self, physical_offset: int) -> DispatchRequest | None:
        """What is derived from the record that begins there, if one does."""
        segment = self._segments.find(physical_offset)
        if segment is None or physical_offset >= self.log.end_offset:
            return None
        end = segment.start_offset + segment.size
        checked, data = look_at(segment, physical_offset, end, pread, verify_crc=False)
        if checked.found is not Found.RECORD:
            return None
        try:
            return dispatch_request(data, 0)
        except CorruptRecordError:
            return None

    def bad_row(self, family: str, key: bytes, value: bytes) -> None:
        self.findings.add(
            Kind.BAD_ROW, family, "a row of this layout", f"{key.hex()} = {value.hex()}"
        )
