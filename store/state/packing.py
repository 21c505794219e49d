"""Entries as the body of a record of the state topic. Big-endian:

| size | type | field      | meaning                                                     |
|-----:|------|------------|-------------------------------------------------------------|
|    1 | u8   | form       | 1                                                           |
|    4 | u32  | names_size | bytes of names                                              |
|      |      | names      | of topics, light queues and groups, each once, UTF-8, with  |
|      |      |            | Ctrl1 (0x01) between them                                   |
|      |      | entries    | up to the end of the body: u8 kind, then its fields         |

| kind | entry           | fields                                                          |
|-----:|-----------------|-----------------------------------------------------------------|
|    1 | TopicsMade      | i32 queue count, i64 created ms, retention, u16 count; for each |
|      |                 | u16 topic                                                       |
|    2 | TopicKeeps      | u16 topic, retention                                            |
|    3 | TopicEnded      | u16 topic or light queue                                        |
|    4 | GroupMade       | u16 group, u16 length, settings as bytes                        |
|    5 | GroupEnded      | u16 group                                                       |
|    6 | Committed       | u16 group, u16 topic, i32 queue, i64 next offset                |
|    7 | LatestLooked    | u16 topic, i32 queue, i64 looked offset, i64 hidden, i64 first  |
|      |                 | number, u32 rows; for each i64 number, u16 length, bits         |
|    8 | TopicTakes      | u16 topic, u8 message type                                      |
|   16 | Leased          | u16 group, u16 topic, i32 queue, i64 first, u64 mask, u16       |
|      |                 | deliveries, i64 nonce, i64 until ms, i64 lease ms, i64 attempt, |
|      |                 | u8 how                                                          |
|   17 | Finished        | u16 group, u16 topic, i32 queue, i64 first, u64 mask, u8 how    |
|   18 | Passed          | u16 group, u16 topic, i32 queue, i64 next offset                |
|   19 | LetterEnded     | u16 topic, i64 letter, i64 place, i64 moved to or -1, i64 first |
|      |                 | offset of the queue, u8 how                                     |
|   20 | Reset           | u16 group, u16 topic, i32 queue, i64 next offset                |
|   21 | Begun           | u16 group, u16 topic                                            |
|   22 | Seen            | u16 group, u16 topic, i32 queue, i64 first, u64 mask; for each  |
|      |                 | bit i64 message group                                           |
|   23 | TimerSet        | u16 topic, i64 due ms, i64 place, i64 nonce                     |
|   24 | TimerEnded      | i64 due ms, i64 timer, i64 moved to or -1, u8 how               |
|   48 | HalfBegun       | u16 group, u16 topic, i64 half, i64 nonce, i64 begun ms, i64    |
|      |                 | check ms                                                        |
|   49 | HalfEnded       | i64 half, i64 ended ms, u8 how                                  |
|   50 | HalfChecked     | i64 half, i32 checks, i64 next check ms                         |
|   51 | HalfMoved       | i64 half, i64 place                                             |
|   52 | HalvesForgotten | i64 below                                                       |
|   80 | LiteTopicsOf    | u16 topic, i64 expiry ms                                        |

`how` of a lease: 1 delivered, 2 extended, 3 given back; of an end: 1 acknowledged, 2 dead letter, 3
gone from the log, 4 damaged and skipped; of a dead letter: 1 redriven, 2 deleted, 3 expired, 4 not
kept for lack of space, 5 moved; of a timer: 1 delivered, 2 recalled, 3 its topic is gone, 4 lost, 5
moved; of a half: 1 committed, 2 rolled back, 3 its topic is gone, 4 its record is gone, 5 handed
back. A retention is i64 time ms, i64 bytes, i64 messages, u8 latest. A u16 group or topic is the
index of its name in `names`.
"""

from __future__ import annotations

import struct
from functools import partial
from typing import TYPE_CHECKING, Any

from store.errors import InvalidArgumentError
from store.metadata import MessageType, Retention
from store.state.entries import (
    MOST_MADE,
    NOWHERE,
    Begun,
    Committed,
    CorruptStateError,
    Ended,
    Finished,
    GroupEnded,
    GroupMade,
    Held,
    LatestLooked,
    Leased,
    LetterEnd,
    LetterEnded,
    LiteTopicsOf,
    Passed,
    Reset,
    Seen,
    TimerEnd,
    TimerEnded,
    TimersEnded,
    TimerSet,
    TopicEnded,
    TopicKeeps,
    TopicsMade,
    TopicTakes,
)
from store.state.half_entries import (
    HalfBegun,
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfMoved,
    HalvesForgotten,
)
from store.state.windows import Lease

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from enum import IntEnum

    from store.state.entries import Entry

#: A record takes no more entries once its body has about this size.
MOST_BYTES = 256 << 10
#: Most deletions in a record: dispatch looks up the rows of each in one step.
MOST_ENDED = 64
_FORM = 1
_MOST_NAMES = 0xFFFF

_SEPARATOR = "\x01"

_HEAD = struct.Struct(">BI")
_TOPICS_MADE = struct.Struct(">Biqqqq?H")
_TOPIC_KEEPS = struct.Struct(">BHqqq?")
_GROUP_MADE = struct.Struct(">BHH")
_LATEST = struct.Struct(">BHiqqqI")
_LATEST_ROW = struct.Struct(">qH")
_LEASED = struct.Struct(">BHHiqQHqqqqB")
_SEEN = struct.Struct(">BHHiqQ")
_END = struct.Struct(">qB")  # its fields behind those that are also in the key of a timer's row


class _Plain:
    """How an entry is encoded whose fields are names, then numbers."""

    __slots__ = ("_how", "_make", "_name_count", "_struct", "kind")

    def __init__(
        self,
        kind: int,
        entry: type[Any],
        name_count: int,
        numbers: str,
        how: type[IntEnum] | None = None,
    ) -> None:
        """`numbers`: their `struct` codes. `how` decodes the last one."""
        self.kind = kind
        self._make: Callable[[list[Any]], Entry] = partial(tuple.__new__, entry)
        self._name_count = name_count
        self._struct = struct.Struct(">B" + "H" * name_count + numbers)
        self._how = how

    def pack(self, entry: tuple[Any, ...], place: Callable[[str], int]) -> bytes:
        count = self._name_count
        return self._struct.pack(self.kind, *map(place, entry[:count]), *entry[count:])

    def unpack(self, body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
        fields = self._struct.unpack_from(body, at)
        behind = 1 + self._name_count
        found = [names[place] for place in fields[1:behind]]
        found += fields[behind:]
        if self._how is not None:
            found[-1] = self._how(found[-1])
        return self._make(found), at + self._struct.size


_PLAIN = {
    TopicEnded: _Plain(3, TopicEnded, 1, ""),
    GroupEnded: _Plain(5, GroupEnded, 1, ""),
    Committed: _Plain(6, Committed, 2, "iq"),
    TopicTakes: _Plain(8, TopicTakes, 1, "B", MessageType),
    Finished: _Plain(17, Finished, 2, "iqQB", Ended),
    Passed: _Plain(18, Passed, 2, "iq"),
    LetterEnded: _Plain(19, LetterEnded, 1, "qqqqB", LetterEnd),
    Reset: _Plain(20, Reset, 2, "iq"),
    Begun: _Plain(21, Begun, 2, ""),
    TimerSet: _Plain(23, TimerSet, 1, "qqq"),
    TimerEnded: _Plain(24, TimerEnded, 0, "qqqB", TimerEnd),
    HalfBegun: _Plain(48, HalfBegun, 2, "qqqq"),
    HalfEnded: _Plain(49, HalfEnded, 0, "qqB", HalfEnd),
    HalfChecked: _Plain(50, HalfChecked, 0, "qiq"),
    HalfMoved: _Plain(51, HalfMoved, 0, "qq"),
    HalvesForgotten: _Plain(52, HalvesForgotten, 0, "q"),
    LiteTopicsOf: _Plain(80, LiteTopicsOf, 1, "q"),
}


def pack_entries(
    entries: Iterable[Entry], *, together: bool = False
) -> Iterator[tuple[list[Entry], bytes]]:
    """Encode entries into as many records as needed, in order. Yields the entries and the body of
    each record. With `together`: into a single record, whatever its size.

    An entry is never split. Raises InvalidArgumentError for an entry that does not fit a record.
    """
    body = _Body()
    for entry in entries:
        if body.is_full and not together:
            yield body.entries, body.finish()
            body = _Body()
        body.add(entry)
    if body.entries:
        yield body.entries, body.finish()


class _Body:
    """The body of one record while it is built."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self._names: dict[str, int] = {}
        self._names_bytes = 0
        self._data = bytearray()
        self._ended = 0

    @property
    def is_full(self) -> bool:
        size = len(self._data) + self._names_bytes
        return (
            size >= MOST_BYTES
            or len(self._names) > _MOST_NAMES - MOST_MADE
            or self._ended >= MOST_ENDED
        )

    def add(self, entry: Entry) -> None:
        self.entries.append(entry)
        data = self._data
        if plain := _PLAIN.get(type(entry)):
            self._ended += plain.kind == 3
            data += plain.pack(entry, self._place)
            return
        match entry:
            case Leased(group, topic, queue_id, lease, held):
                places = self._place(group), self._place(topic)
                data += _LEASED.pack(16, *places, queue_id, *lease, held)
            case Seen(group, topic, queue_id, first_offset, mask, keys):
                places = self._place(group), self._place(topic)
                data += _SEEN.pack(22, *places, queue_id, first_offset, mask)
                data += struct.pack(f">{mask.bit_count()}q", *keys)
            case TimersEnded(timers, how):
                end = _END.pack(NOWHERE, how)
                data += b"".join([b"\x18" + key[1:] + end for key in timers])
            case TopicsMade(topics, queue_count, created_ms, kept):
                assert len(topics) <= MOST_MADE, f"{len(topics)} topics in an entry"
                data += _TOPICS_MADE.pack(1, queue_count, created_ms, *kept, len(topics))
                data += struct.pack(f">{len(topics)}H", *self._places(topics))
            case TopicKeeps(topic, kept):
                data += _TOPIC_KEEPS.pack(2, self._place(topic), *kept)
            case GroupMade(group, settings):
                data += _GROUP_MADE.pack(4, self._place(group), len(settings)) + settings
            case LatestLooked(topic, queue_id, looked, hidden, first, bits):
                place = self._place(topic)
                data += _LATEST.pack(7, place, queue_id, looked, hidden, first, len(bits))
                for number, row in sorted(bits.items()):
                    data += _LATEST_ROW.pack(number, len(row)) + row

    def _place(self, name: str) -> int:
        place = self._names.setdefault(name, len(self._names))
        self._names_bytes += 1 + len(name)  # too much if the name is in it already
        return place

    def _places(self, names: Sequence[str]) -> Sequence[int]:
        begin = len(self._names)
        if self._names.keys().isdisjoint(names):  # the usual case, made fast
            self._names_bytes += len(names) + sum(map(len, names))
            self._names.update(zip(names, range(begin, begin + len(names)), strict=True))
            return range(begin, begin + len(names))
        return [self._place(name) for name in names]

    def finish(self) -> bytes:
        text = _SEPARATOR.join(self._names)
        if text.count(_SEPARATOR) >= max(1, len(self._names)):
            wrong = next(name for name in self._names if _SEPARATOR in name)
            raise InvalidArgumentError("name", f"{wrong!r} has the character Ctrl1")
        names = text.encode()
        return b"".join([_HEAD.pack(_FORM, len(names)), names, self._data])


def unpack_entries(body: bytes) -> list[Entry]:
    """Decode the entries of one record, in order. Raises CorruptStateError."""
    try:
        form, size = _HEAD.unpack_from(body)
        if form != _FORM:
            raise CorruptStateError(
                f"a state record has form {form}, and this program only knows form {_FORM}: "
                "use a newer version"
            )
        at = _HEAD.size + size
        names = _piece(body, _HEAD.size, size).decode().split(_SEPARATOR)
        entries: list[Entry] = []
        while at < len(body):
            read = _READERS.get(body[at])
            if read is None:
                raise CorruptStateError(
                    f"a state record with an entry of kind {body[at]}, which this program does "
                    "not know: use a newer one"
                )
            entry, at = read(body, at, names)
            entries.append(entry)
    except (struct.error, IndexError, ValueError) as error:
        raise CorruptStateError(f"a state record that cannot be read: {error}") from error
    return entries


def _piece(body: bytes, at: int, size: int) -> bytes:
    piece = body[at : at + size]
    if len(piece) < size:
        raise IndexError(f"{size} bytes at {at} of {len(body)}")
    return piece


def _topics_made(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, queue_count, created_ms, *kept, count = _TOPICS_MADE.unpack_from(body, at)
    at += _TOPICS_MADE.size
    topics = [names[place] for place in struct.unpack_from(f">{count}H", body, at)]
    return TopicsMade(topics, queue_count, created_ms, Retention(*kept)), at + 2 * count


def _topic_keeps(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, place, *kept = _TOPIC_KEEPS.unpack_from(body, at)
    return TopicKeeps(names[place], Retention(*kept)), at + _TOPIC_KEEPS.size


def _group_made(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, place, size = _GROUP_MADE.unpack_from(body, at)
    at += _GROUP_MADE.size
    return GroupMade(names[place], _piece(body, at, size)), at + size


def _latest_looked(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, place, queue_id, looked, hidden, first, row_count = _LATEST.unpack_from(body, at)
    at += _LATEST.size
    bits: dict[int, bytes] = {}
    for _ in range(row_count):
        number, size = _LATEST_ROW.unpack_from(body, at)
        at += _LATEST_ROW.size
        bits[number] = _piece(body, at, size)
        at += size
    return LatestLooked(names[place], queue_id, looked, hidden, first, bits), at


def _leased(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, group, topic, queue_id, *lease, how = _LEASED.unpack_from(body, at)
    entry = Leased(names[group], names[topic], queue_id, Lease(*lease), Held(how))
    return entry, at + _LEASED.size


def _seen(body: bytes, at: int, names: list[str]) -> tuple[Entry, int]:
    _, group, topic, queue_id, first, mask = _SEEN.unpack_from(body, at)
    at += _SEEN.size
    keys = struct.unpack_from(f">{mask.bit_count()}q", body, at)
    return Seen(names[group], names[topic], queue_id, first, mask, keys), at + 8 * len(keys)


#: By kind: a function that decodes the entry at an index, and returns the index behind it.
_READERS: dict[int, Callable[[bytes, int, list[str]], tuple[Entry, int]]] = {
    1: _topics_made,
    2: _topic_keeps,
    4: _group_made,
    7: _latest_looked,
    16: _leased,
    22: _seen,
    **{plain.kind: plain.unpack for plain in _PLAIN.values()},
}
