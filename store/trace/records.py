"""Reads state records from a position of the log on, through the queue of their topic, and the
records appended together with them."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from store.errors import UnknownTopicError
from store.format import message_id, pack_host, place_of, unpack_record
from store.reads import first_where
from store.state import (
    STATE_TOPIC,
    Ended,
    Finished,
    HalfBegun,
    HalfEnd,
    HalfEnded,
    HalfMoved,
    LetterEnd,
    LetterEnded,
    TimerEnd,
    TimerEnded,
    TimerSet,
    unpack_entries,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import ConsumeQueueStore
    from store.log import CommitLog
    from store.message import StoredMessage
    from store.reads import ReadPath
    from store.state import Entry

#: Records, and bytes of them, that are read together.
_TOGETHER = 256
_READ_BYTES = 1 << 20
#: Most records of one append that are examined.
_MOST_APPENDED = 4096


class StateRecord(NamedTuple):
    """A record of the state."""

    queue_offset: int
    physical_offset: int
    store_time_ms: int
    body: bytes


def state_bounds(reads: ReadPath) -> tuple[int, int]:
    """Queue offsets of the state records in the log: the first, and the end (exclusive)."""
    try:
        ((low, high),) = reads.bounds([(STATE_TOPIC, 0)])
    except UnknownTopicError:
        return 0, 0
    return low, high


def first_record_from(
    queues: ConsumeQueueStore, bounds: tuple[int, int], physical_offset: int
) -> int:
    """Queue offset of the first state record at or after the physical offset."""
    return first_where(
        *(queues, STATE_TOPIC, 0, *bounds), lambda unit: unit.physical_offset >= physical_offset
    )[0]


def records_from(reads: ReadPath, at: int, high: int) -> Iterator[list[StateRecord]]:
    """Yield records in chunks. Raises CorruptRecordError, DamagedQueueError."""
    for pulled in reads.pulls(STATE_TOPIC, at, high, _TOGETHER, _READ_BYTES):
        read = [unpack_record(record, verify=False) for record in pulled.records]
        yield [
            StateRecord(each.queue_offset, each.physical_offset, each.store_time_ms, each.body)
            for each in read
        ]


class Append(NamedTuple):
    """Records that were appended together."""

    begin: int  # physical
    #: Entries about a message of the same append, each with that message's physical offset and id.
    pairs: list[tuple[Entry, int, str]]
    store_time_ms: int


def append_of(log: CommitLog, physical_offset: int) -> Append | None:
    """The append that the record there belongs to; None if it was appended on its own. Raises
    MessageNotFoundError, CorruptRecordError."""
    record = log.read_at(physical_offset)
    place = place_of(record, 0)
    if place is None:
        return None
    at = begin = physical_offset - place.distance
    entries: list[Entry] = []
    messages: list[StoredMessage] = []
    found = unpack_record(record, verify=False)
    for _ in range(_MOST_APPENDED):
        record = log.read_at(at)
        found = unpack_record(record, verify=False)
        if found.topic == STATE_TOPIC:
            entries += unpack_entries(found.body)
        else:
            messages.append(found)
        place = place_of(record, 0)
        if place is None or place.is_last:
            break
        at += len(record)
    said = [entry for entry in entries for _ in range(_messages_of(entry))]
    pairs = [
        (entry, one.physical_offset, id_of(one)) for entry, one in zip(said, messages, strict=False)
    ]
    return Append(begin, pairs, found.store_time_ms)


def id_of(message: StoredMessage) -> str:
    return message_id(pack_host(message.store_host), message.physical_offset)


def _messages_of(entry: Entry) -> int:
    """Number of messages that the entry's append has for it."""
    match entry:
        case TimerSet() | HalfBegun() | HalfMoved():
            return 1
        case TimerEnded(how=TimerEnd.FIRED | TimerEnd.MOVED):
            return 1
        case HalfEnded(how=HalfEnd.COMMITTED | HalfEnd.HANDED_BACK):
            return 1
        case LetterEnded(how=LetterEnd.REDRIVEN | LetterEnd.MOVED):
            return 1
        case Finished(how=Ended.DEAD):
            return entry.mask.bit_count()
    return 0
