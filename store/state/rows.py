"""Keys and values of rows. Rows are the sum of all entries up to a point of the log.

| key                                       | value                                             |
|-------------------------------------------|---------------------------------------------------|
| `t` name                                  | u8 form 1, i32 queues, i64 created, i64 offset;   |
|                                           | form 2: the same, i64 time ms, i64 bytes,         |
|                                           | i64 messages, u8 latest;                          |
|                                           | form 3: the same, u8 message type                 |
| `g` group                                 | empty: of a reader group; or of a shared group    |
|                                           | i64 offset, then its settings: u8 form 1,         |
|                                           | u32 deliveries or 0, i64 invisible ms,            |
|                                           | u32 in flight, u8 flags, i64 ms for which dead    |
|                                           | letters are kept, i64 for each time of the backoff|
|                                           | form 2, of lite topics: behind the milliseconds   |
|                                           | u8 flags, u32 quota, i16, parent, then the backoff|
| `s` topic                                 | it has lite topics: i64 ms after which one that   |
|                                           | is idle expires, 0: never                         |
| `o` i16, group, i16, topic, i32 queue id  | i64 next offset                                   |
| `w` i16, group, i16, topic, i32 queue id  | what a shared group has in flight: windows.py     |
| `q` i16, topic, group                     | the group has an offset, or a window; empty, or,  |
|                                           | of a group that begins with the latest, i64       |
|                                           | offset of the record of its first receive         |
| `l` i16, topic, i32 queue id              | i64 looked offset, i64 hidden                     |
| `h` i16, topic, i32 queue id, i64 number  | a bit for each of 8192 queue offsets              |
| `x` i16, topic, i64 number                | a bit for each of 8192 places of dead letters     |
| `y` i16, topic, i64 letter                | i64 place: where a dead letter is that was moved  |
| `i` i64 due ms, i64 timer                 | i64 place, i64 offset of its topic, i64 nonce     |
| `j`                                       | i64 how many `i` rows there are                   |
| `m` `v` `e` `u`                           | messages of open transactions: halves.py          |
| `d` i16, topic                            | i64 offset: its records below are dead            |
| `k` i16, topic, i32 queue id              | i64 topic's offset, limit, first, end, bytes      |

Numbers are big-endian, text is UTF-8; an i16 before a name is its length in bytes. Bit n of an `x`
row is bit n % 8 of byte n / 8, and its last byte is not zero. The offset of a topic, or of a shared
group, is the physical offset of the record that made it. A topic that keeps less than the log has a
row of form 2, a topic for one message type a row of form 3. An `i` row is a delayed message. `d`
rows are deletions without a record: in a log that was adopted, or written by a program before
format 2. `k` rows exist for topics with a retention in bytes. They are counted, not derived from
entries, so they may be lost, and snapshots do not contain them.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.errors import StoreError
from store.metadata import (
    KEEP_ALL,
    KeptQueue,
    LatestHead,
    LiteGroup,
    MessageType,
    Retention,
    SharedGroup,
    TopicConfig,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

Pair = tuple[bytes, bytes]

_TOPIC = struct.Struct(">Biqq")
_TOPIC_FORM = 1
_LIMITS = struct.Struct(">qqq?")
_LIMITED_FORM = 2
_TYPED_FORM = 3
_MESSAGE_TYPES = frozenset(MessageType)
_KEPT = struct.Struct(">qqqqq")
_SHARED = struct.Struct(">BIqIBq")
_SHARED_FORM = 1
_LITE = struct.Struct(">BIh")
_LITE_FORM = 2
_EXCLUSIVE, _WILDCARD = 1, 2
_IN_ORDER, _FROM_LATEST, _PAUSED = 1, 2, 4
_I64 = struct.Struct(">q")
_PLACE = struct.Struct(">qq")
_I32 = struct.Struct(">i")
_I16 = struct.Struct(">h")
_PAGE = 1000
#: Sorts after every UTF-8 text.
END = b"\xff"


class CorruptRowError(StoreError):
    """A row of state is invalid."""


class Rows(Protocol):
    """Rows of state by key: of a database, or of a view on top of one."""

    def get(self, key: bytes) -> bytes | None: ...

    def multi_get(self, keys: Sequence[bytes]) -> list[bytes | None]: ...

    def scan(self, start: bytes, end: bytes, limit: int | None = None) -> Sequence[Pair]:
        """Up to `limit` rows with start <= key < end, ascending."""
        ...


def every_row(rows: Rows, start: bytes, end: bytes) -> Iterator[Pair]:
    """Yield all rows with start <= key < end, ascending. They may change meanwhile: it reads page
    by page."""
    while page := rows.scan(start, end, _PAGE):
        yield from page
        start = page[-1][0] + b"\x00"


def sized(text: str) -> bytes:
    data = text.encode()
    return _I16.pack(len(data)) + data


# --- topics --------------------------------------------------------------------------------


def topic_key(name: str) -> bytes:
    return b"t" + name.encode()


def pack_topic(topic: TopicConfig) -> bytes:
    _, *counted, retention, message_type = topic
    if message_type != MessageType.ANY:
        limits = _LIMITS.pack(*retention)
        return _TOPIC.pack(_TYPED_FORM, *counted) + limits + bytes([message_type])
    if retention != KEEP_ALL:
        return _TOPIC.pack(_LIMITED_FORM, *counted) + _LIMITS.pack(*retention)
    return _TOPIC.pack(_TOPIC_FORM, *counted)


def unpack_topic(name: str, value: bytes) -> TopicConfig:
    """Decode a topic's row. Raises CorruptRowError."""
    fields = _topic_fields(value)
    if fields is None:
        raise CorruptRowError(f"topic {name!r} has a row of form {value[:1].hex()}")
    return TopicConfig(name, *fields)


@lru_cache(maxsize=64)
def _topic_fields(value: bytes) -> tuple[int, int, int, Retention, MessageType] | None:
    """All fields but the name; None for an unknown form. Separate from the name, so that the result
    is cached once for all topics with equal rows."""
    form, size = value[:1], len(value)
    retention, message_type = KEEP_ALL, MessageType.ANY
    limited = _TOPIC.size + _LIMITS.size
    if (form == b"\x02" and size == limited) or (form == b"\x03" and size == limited + 1):
        retention = Retention(*_LIMITS.unpack_from(value, _TOPIC.size))
        if size > limited:
            if value[limited] not in _MESSAGE_TYPES:
                return None
            message_type = MessageType(value[limited])
    elif form != b"\x01" or size != _TOPIC.size:
        return None
    _, queue_count, created_ms, created_offset = _TOPIC.unpack_from(value)
    return queue_count, created_ms, created_offset, retention, message_type


def lite_key(topic: str) -> bytes:
    return b"s" + topic.encode()


def dead_key(name: str) -> bytes:
    return b"d" + sized(name)


# --- groups --------------------------------------------------------------------------------


def group_key(group: str) -> bytes:
    return b"g" + group.encode()


def offset_key(group: str, topic: str, queue_id: int) -> bytes:
    return b"o" + sized(group) + sized(topic) + _I32.pack(queue_id)


def offsets_range(group: str, topic: str | None = None) -> tuple[bytes, bytes]:
    """The key range of all offsets that the group committed; with `topic`, on its queues."""
    prefix = b"o" + sized(group)
    if topic is None:
        return prefix, prefix + END * 2
    prefix += sized(topic)
    return prefix, prefix + END * 5


def split_offset_key(key: bytes) -> tuple[str, str, int]:
    """Group, topic and queue id of an offset's key."""
    (size,) = _I16.unpack_from(key, 1)
    return key[3 : 3 + size].decode(), key[5 + size : -4].decode(), *_I32.unpack(key[-4:])


def window_key(group: str, topic: str, queue_id: int) -> bytes:
    return b"w" + sized(group) + sized(topic) + _I32.pack(queue_id)


def windows_range(group: str, topic: str | None = None) -> tuple[bytes, bytes]:
    """The key range of all windows of the group; with `topic`, on its queues."""
    start, end = offsets_range(group, topic)
    return b"w" + start[1:], b"w" + end[1:]


def pack_group(settings: SharedGroup | None) -> bytes:
    """Encode the settings for GroupMade; None for a reader group."""
    if settings is None:
        return b""
    settings = settings.settled
    flags = (
        _IN_ORDER * settings.in_order
        | _FROM_LATEST * settings.from_latest
        | _PAUSED * settings.is_paused
    )
    lite = settings.lite
    head = _SHARED.pack(
        _SHARED_FORM if lite is None else _LITE_FORM,
        settings.max_deliveries or 0,
        settings.invisible_ms,
        settings.most_in_flight,
        flags,
        settings.dead_letters_keep_ms,
    )
    if lite is not None:
        flags = _EXCLUSIVE * lite.is_exclusive | _WILDCARD * lite.is_wildcard
        parent = lite.parent.encode()
        head += _LITE.pack(flags, lite.client_quota, len(parent)) + parent
    return head + b"".join(map(pack_offset, settings.backoff_ms))


def made_group(settings: bytes, physical_offset: int, row: bytes | None) -> bytes:
    """The row of a group after GroupMade in the record at that offset. `row`: the row before."""
    if not settings:
        return b""
    return (row[: _I64.size] if row else _I64.pack(physical_offset)) + settings


def group_made_at(row: bytes) -> int:
    """Physical offset of the record that created the shared group."""
    return unpack_offset(row[: _I64.size])


@lru_cache(256)
def unpack_group(row: bytes) -> SharedGroup | None:
    """The settings; None for a reader group. Raises CorruptRowError."""
    if not row:
        return None
    value = row[_I64.size :]
    lite, backoff_at = _unpack_lite(value)
    size = len(value) - backoff_at
    if value[:1] not in (b"\x01", b"\x02") or size < 0 or size % _I64.size:
        raise CorruptRowError(
            f"settings of a group of form {value[:1].hex()}: a newer program wrote them, or they "
            "are damaged"
        )
    _, most, invisible_ms, in_flight, flags, keep_ms = _SHARED.unpack_from(value)
    return SharedGroup(
        most or None,
        invisible_ms,
        in_flight,
        bool(flags & _IN_ORDER),
        bool(flags & _FROM_LATEST),
        bool(flags & _PAUSED),
        keep_ms,
        tuple(each for (each,) in _I64.iter_unpack(value[backoff_at:])),
        lite,
    )


def _unpack_lite(value: bytes) -> tuple[LiteGroup | None, int]:
    """The group's lite settings, and where its backoff begins in the value."""
    at = _SHARED.size + _LITE.size
    if value[:1] != b"\x02" or len(value) < at:
        return None, _SHARED.size
    flags, quota, size = _LITE.unpack_from(value, _SHARED.size)
    parent = value[at : at + size].decode(errors="replace")
    lite = LiteGroup(parent, quota, bool(flags & _EXCLUSIVE), bool(flags & _WILDCARD))
    return lite, at + size


def reader_key(topic: str, group: str) -> bytes:
    return b"q" + sized(topic) + group.encode()


def reader_keys_of(rows: Iterable[Pair], group: str) -> list[bytes]:
    """The reader's key for each of these offsets or windows of the group, which have the sized name
    of the topic behind that of the group."""
    name = group.encode()
    at = 1 + _I16.size + len(name)
    return [b"q" + key[at : -_I32.size] + name for key, _ in rows]


def readers_range(topic: str) -> tuple[bytes, bytes]:
    prefix = b"q" + sized(topic)
    return prefix, prefix + END


def pack_offset(offset: int) -> bytes:
    return _I64.pack(offset)


def unpack_offset(value: bytes) -> int:
    return int(_I64.unpack(value)[0])


# --- dead letters --------------------------------------------------------------------------

#: Prefix of the topic of a group's dead letters, as in RocketMQ.
DEAD_LETTERS = "%DLQ%"
#: Number of places that one `x` row has bits for.
PLACES = 8192


def ended_key(topic: str, number: int) -> bytes:
    return b"x" + sized(topic) + _I64.pack(number)


def moved_key(topic: str, letter: int) -> bytes:
    return b"y" + sized(topic) + _I64.pack(letter)


def letters_ranges(topic: str) -> list[tuple[bytes, bytes]]:
    """The key ranges of the dead letters in a topic."""
    return [(table + sized(topic), table + sized(topic) + END) for table in (b"x", b"y")]


def unpack_bits(value: bytes | None) -> int:
    return int.from_bytes(value or b"", "little")


def pack_bits(bits: int) -> bytes:
    return bits.to_bytes((bits.bit_length() + 7) // 8, "little")


# --- what waits for its time ---------------------------------------------------------------

#: Key of the number of delayed messages that wait.
TIMERS_KEY = b"j"
_TIMER = struct.Struct(">qqq")


class TimerRow(NamedTuple):
    """A delayed message."""

    place: int  # current queue offset in queue 0 of TIMER_TOPIC
    begins: int  # physical offset of the record that created its topic
    nonce: int  # of its handle


def timer_key(due_ms: int, timer: int) -> bytes:
    return b"i" + _PLACE.pack(due_ms, timer)


def split_timer_key(key: bytes) -> tuple[int, int]:
    """Due time, ms since 1970, and the timer's name."""
    due_ms, timer = _PLACE.unpack_from(key, 1)
    return due_ms, timer


def pack_timer(row: TimerRow) -> bytes:
    return _TIMER.pack(*row)


def unpack_timer(value: bytes) -> TimerRow:
    return TimerRow(*_TIMER.unpack(value))


# --- what is hidden ------------------------------------------------------------------------


def latest_key(topic: str, queue_id: int) -> bytes:
    return b"l" + sized(topic) + _I32.pack(queue_id)


def pack_latest(looked_offset: int, hidden: int) -> bytes:
    return _PLACE.pack(looked_offset, hidden)


def unpack_latest(key: bytes, value: bytes) -> LatestHead:
    return LatestHead(key[3:-4].decode(), *_I32.unpack(key[-4:]), *_PLACE.unpack(value))


def bits_key(topic: str, queue_id: int, number: int) -> bytes:
    return b"h" + sized(topic) + _I32.pack(queue_id) + _I64.pack(number)


def hidden_ranges(topic: str) -> list[tuple[bytes, bytes]]:
    """The key ranges of hidden messages in all queues of the topic, or in the light queue."""
    return [(table + sized(topic), table + sized(topic) + END) for table in (b"h", b"l")]


# --- what is counted -----------------------------------------------------------------------


def kept_key(topic: str, queue_id: int) -> bytes:
    return b"k" + sized(topic) + _I32.pack(queue_id)


def split_kept_key(key: bytes) -> tuple[str, int]:
    return key[3:-4].decode(), int(_I32.unpack(key[-4:])[0])


def pack_kept(kept: KeptQueue) -> Pair:
    topic, queue_id, *counted = kept
    return kept_key(topic, queue_id), _KEPT.pack(*counted)


def unpack_kept(topic: str, queue_id: int, value: bytes | None) -> KeptQueue | None:
    return None if value is None else KeptQueue(topic, queue_id, *_KEPT.unpack(value))
