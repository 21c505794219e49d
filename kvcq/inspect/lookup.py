"""What the rows of one side need from the log that was walked."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from store.errors import CorruptRecordError
from store.format import Found, dispatch_request
from store.log import look_at, pread

if TYPE_CHECKING:
    import numpy.typing as npt

    from kvcq.inspect.log import LogCheck
    from store.consume_queue import DispatchRequest
    from store.log import SegmentSet


class Lookup:
    """One side and one log; notes which damage its rows refer to."""

    def __init__(self, segments: SegmentSet, log: LogCheck, checkpoint: int) -> None:
        """`checkpoint`: physical offset up to which the side is dispatched."""
        self.log = log
        self.checkpoint = checkpoint
        self._segments = segments
        self._starts = np.array(log.damaged_starts, np.int64)
        self._ends = np.array(log.damaged_ends, np.int64)
        self._led_to: set[int] = set()  # damage, by its number

    def in_question(self, offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Which physical offsets need a record: neither expired nor known to have none.

        Damaged places have none, and neither has the part between the log's end and the checkpoint,
        whose rows an opening cuts.
        """
        wanted = offsets >= self.log.start_offset
        wanted &= ~((offsets >= self.log.end_offset) & (offsets < self.checkpoint))
        if len(self._starts):
            index = np.searchsorted(self._starts, offsets, "right") - 1
            damaged = (index >= 0) & (offsets < self._ends[index])
            self._led_to.update(np.unique(index[damaged]).tolist())
            wanted &= ~damaged
        return wanted

    def is_left_out(self, number: int) -> bool:
        """Whether no row refers to the damage with that number, after all rows were checked."""
        return number not in self._led_to and self.log.damaged_starts[number] < self.checkpoint

    def damaged_rows(self, offsets: npt.NDArray[np.int64]) -> list[int]:
        """Indexes of the offsets at which a damaged place begins."""
        if not len(self._starts):
            return []
        return np.flatnonzero(np.isin(offsets, self._starts)).tolist()

    def record_at(self, physical_offset: int) -> DispatchRequest | None:
        """The request derived from the record that begins there, if one does."""
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


def is_at_place(record: DispatchRequest, topic: str, queue_id: int, queue_offset: int) -> bool:
    """Whether the record gives a unit of that queue at that offset."""
    if not record.in_queue:
        return False
    return record[:3] == (topic, queue_id, queue_offset) or (
        queue_id == 0 and (topic, queue_offset) in record.light_queues
    )
