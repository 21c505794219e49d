"""Reads records of held messages, and tells unreadable ones from those that are not dispatched."""

from __future__ import annotations

import logging
import struct
from contextlib import suppress
from typing import TYPE_CHECKING, NamedTuple

from store.errors import (
    CorruptRecordError,
    DamagedQueueError,
    MessageNotFoundError,
    UnknownTopicError,
)
from store.format import AT
from store.held.records import read_places

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog
    from store.reads import ReadPath

logger = logging.getLogger(__name__)

_QUEUE_OFFSET = struct.Struct(">q")
_QUEUE_OFFSET_AT = AT["queue_offset"]


class Readable(NamedTuple):
    """The records found at some places of a topic."""

    records: dict[int, bytes]  # by place
    #: Place to reason: the record is damaged or gone from the log, and will stay unreadable.
    lost: dict[int, str]


def read_each(reads: ReadPath, topic: str, places: Sequence[int]) -> Readable:
    """Read dispatched records at these places of queue 0. A place in neither result is not
    dispatched yet, or its queue is being rebuilt: retry later."""
    try:
        ((low, high),) = reads.bounds([(topic, 0)])
    except UnknownTopicError:
        return Readable({}, {})
    lost = dict.fromkeys((at for at in places if at < low), "it is gone from the log")
    wanted = [at for at in places if low <= at < high]
    with suppress(CorruptRecordError, DamagedQueueError):
        return Readable(read_places(reads, topic, wanted), lost)
    records: dict[int, bytes] = {}
    for place in wanted:
        try:
            records.update(read_places(reads, topic, [place]))
        except (CorruptRecordError, DamagedQueueError) as error:
            if is_final(error):
                lost[place] = str(error)
    return Readable(records, lost)


def read_certain(reads: ReadPath, topic: str, places: Sequence[int]) -> Readable:
    """Like `read_each`, for records whose segments are about to be dropped. Each place is in one of
    the two results.

    Raises DamagedQueueError if a rebuild of the queue may still make a record readable.
    """
    found = read_each(reads, topic, places)
    for place in places:
        if place not in found.records and place not in found.lost:
            raise DamagedQueueError(topic, 0, place, "its unit is missing")
    return found


def is_final(error: CorruptRecordError | DamagedQueueError) -> bool:
    """Whether the record will stay unreadable: it is damaged, or a rebuild of its queue has not
    helped."""
    return not (isinstance(error, DamagedQueueError) and error.next_offset is None)


class Scattered:
    """Reads scattered records of a queue, such as timers that are due together.

    One fast pass returns all valid records; the rest are read with `read_each`. Thread: any.
    """

    def __init__(self, queues: ConsumeQueueStore, log: CommitLog, reads: ReadPath) -> None:
        # Constant after construction.
        self._queues = queues
        self._log = log
        self._reads = reads

    def read(self, topic: str, places: Sequence[int]) -> Readable:
        """Like `read_each`."""
        records = self._read_whole(topic, places)
        rest = [place for place in places if place not in records]
        if not rest:
            return Readable(records, {})
        found = read_each(self._reads, topic, rest)
        return Readable({**records, **found.records}, found.lost)

    def _read_whole(self, topic: str, places: Sequence[int]) -> dict[int, bytes]:
        units = self._queues.places_of(topic, 0, places)
        wanted = sorted(
            (unit, place) for unit, place in zip(units, places, strict=True) if unit is not None
        )
        try:
            records = self._log.read_run([unit for unit, _ in wanted])
        except (CorruptRecordError, MessageNotFoundError):
            return {}
        return {
            place: record
            for (_, place), record in zip(wanted, records, strict=False)
            if _QUEUE_OFFSET.unpack_from(record, _QUEUE_OFFSET_AT)[0] == place
        }
