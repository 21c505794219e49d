"""What a unit or a row needs from the log: its record, and what that says of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.inspect.findings import Kind
from store.errors import CorruptRecordError, MessageNotFoundError
from store.format import Found, dispatch_request
from store.log import look_at, pread

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    from kvcq.inspect.log import LogCheck
    from kvcq.tables import Unit
    from store.consume_queue import DispatchRequest
    from store.log import CommitLog, SegmentSet

_FIELDS = ("physical_offset", "record_size", "tag_code", "store_time_ms")


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


class Fault(NamedTuple):
    """What is wrong with a unit. `field` is "unit" if its record is not of that place; otherwise
    both values are those of the field."""

    kind: Kind
    field: str
    expected: str
    found: str

    def in_words(self, unit: Unit) -> tuple[str, str]:
        """Expected and found, for findings whose place is not the field."""
        if self.field == "unit":
            return self.expected, self.found
        name = self.field.replace("_", " ")
        return f"the {name} of the record at {unit[0]}, {self.expected}", self.found


def faults_of(
    record: DispatchRequest | None,
    queue: tuple[str, int],
    offset: int,
    unit: Unit,
    is_live: Callable[[str, int], bool] | None,
) -> list[Fault]:
    """What is wrong with a unit that stands in that queue, by the record that it points at.

    `is_live`: see Admission; None: records of deleted topics may have units.
    """
    if record is None:
        wanted, found = f"a record at {unit[0]}", "nothing at that physical offset"
        return [Fault(Kind.NO_RECORD, "unit", wanted, found)]
    there = f"the record at {unit[0]}"
    if not is_at_place(record, *queue, offset):
        found = f"{there} of queue {record.queue_id} of {record.topic!r}"
        found += f", offset {record.queue_offset}"
        return [Fault(Kind.WRONG_UNIT, "unit", "a record of this place", found)]
    if is_live is not None and not is_live(queue[0], unit[0]):
        return [Fault(Kind.DEAD_ROW, "unit", "no unit", f"one of {there}")]
    return [
        Fault(Kind.WRONG_UNIT, field, str(wanted), str(found))
        for field, wanted, found in zip(_FIELDS, record[3:7], unit, strict=False)
        if wanted != found
    ]


def request_at(log: CommitLog, physical_offset: int) -> DispatchRequest | None:
    """The request derived from the record there, of a log that is open; None if there is none, or
    none that a queue can hold."""
    try:
        return dispatch_request(log.read_at(physical_offset), 0)
    except (MessageNotFoundError, CorruptRecordError):
        return None
