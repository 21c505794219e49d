"""One message as bytes in the commit log. All numbers big-endian, strings UTF-8.

| at      | size | type   | field                       | meaning                                 |
|--------:|-----:|--------|-----------------------------|-----------------------------------------|
| 0       |    4 | i32    | record_size                 | the whole record, bytes                 |
| 4       |    4 | i32    | magic                       | V1, or V2 (two-byte topic length)       |
| 8       |    4 | i32    | body_crc                    | CRC-32 of the body, top bit cleared     |
| 12      |    4 | i32    | queue_id                    |                                         |
| 16      |    4 | i32    | flag                        | the application's own                   |
| 20      |    8 | i64    | queue_offset                | 0 for PREPARED and ROLLBACK             |
| 28      |    8 | i64    | physical_offset             | must be where the record stands         |
| 36      |    4 | i32    | sys_flag                    | bits below                              |
| 40      |    8 | i64    | born_time_ms                | ms since 1970                           |
| 48      |    B | host   | born_host                   | B = 8 (IPv4) or 20 (IPv6): address, i32 |
| 48+B    |    8 | i64    | store_time_ms               | ms since 1970; may fall: store_times.py |
| 56+B    |    S | host   | store_host                  | S = 8 or 20                             |
| 56+B+S  |    4 | i32    | reconsume_times             |                                         |
| 60+B+S  |    8 | i64    | prepared_transaction_offset | below 0: batch_place.py                 |
| 68+B+S  |    4 | i32    | body_length                 | L                                       |
| 72+B+S  |    L | bytes  | body                        |                                         |
| 72+B+S+L|  1/2 | i8/i16 | topic_length                | T; one byte in V1                       |
| ...     |    T | text   | topic                       |                                         |
| ...     |    2 | i16    | properties_length           | P                                       |
| ...     |    P | text   | properties                  | properties.py; may end with the CRC item|

The CRC item is 20 bytes: `__CRC32#`, 01, ten digits, 02. The digits are the CRC-32 (top bit
cleared) of all bytes before the item, least significant digit first.

A blank record fills the end of a segment: i32 bytes to the segment's end, i32 BLANK. Only those
8 bytes are written. A message fits when 8 bytes stay free behind it.

Source: RocketMQ 5, CommitLog.checkMessageAndReturnSize and MessageExtEncoder.
"""

from __future__ import annotations

import enum
import socket
import struct
from functools import lru_cache
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from store.consume_queue import DispatchRequest
from store.errors import CorruptRecordError, InvalidArgumentError
from store.format.layout import (
    AT,
    BACK,
    BACK_AT,
    BODY_AT,
    FRONT,
    HOSTS_AT,
    PHYSICAL_OFFSET_AT,
    STORE_TIME_BYTES,
    SYS_FLAG_BYTE_AT,
    born_host_bytes,
    hosts_bytes,
    packing,
    picking,
)
from store.format.properties import (
    BATCH,
    CRC_ITEM,
    DELAY,
    TAGS,
    decode_properties,
    index_keys,
    last_value,
    light_queues,
)
from store.message import Host, StoredMessage

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
MAGIC_BLANK = -875286124

#: sys_flag bits.
TRANSACTION_MASK = 0xC
TRANSACTION_PREPARED = 0x4
TRANSACTION_COMMIT = 0x8
TRANSACTION_ROLLBACK = 0xC

#: A topic longer than this needs a V2 record (RocketMQ: autoMessageVersionOnTopicLen).
_V1_TOPIC_BYTES = 127
#: Magic code and length field, by the bytes of a record's topic. No topic is longer, see limits.py.
TOPIC_HEADS = [
    (MAGIC_V1, size.to_bytes(1, "big"))
    if size <= _V1_TOPIC_BYTES
    else (MAGIC_V2, size.to_bytes(2, "big"))
    for size in range(256)
]

CRC_MASK = 0x7FFFFFFF
CRC_ITEM_PREFIX = CRC_ITEM.encode() + b"\x01"
CRC_ITEM_BYTES = 20
#: The CRC item reversed: its digits have the lowest first, so it is formatted and then reversed.
CRC_ITEM_REVERSED = b"\x02%010d" + CRC_ITEM_PREFIX[::-1]
assert len(CRC_ITEM_REVERSED % 0) == CRC_ITEM_BYTES
BLANK_BYTES = 8
MIN_RECORD_BYTES = 91

#: Messages to this topic carry their due time in place of a tag code.
SCHEDULE_TOPIC = "SCHEDULE_TOPIC_XXXX"
# RocketMQ's 18 delay levels, ms: 1s 5s 10s 30s 1m..10m 20m 30m 1h 2h.
DELAY_LEVELS_MS: tuple[int, ...] = tuple(
    1000 * s for s in (1, 5, 10, 30, *range(60, 601, 60), 1200, 1800, 3600, 7200)
)

#: Everything before the body, both hosts IPv4: 88 bytes.
HEADER_V4 = picking(*AT)
HEADER_V4_BYTES = HEADER_V4.size
assert HEADER_V4_BYTES == 88

SIZE_AND_MAGIC = picking("record_size", "magic")
_FIXED = packing(FRONT)
_I64 = struct.Struct(">q")
_BACK = packing(BACK)
_I16 = struct.Struct(">h")
_BODY_CRC_AT = AT["body_crc"]


def java_hash(text: str) -> int:
    """Java's String.hashCode: signed 32 bits over UTF-16 units."""
    value = 0
    if text.isascii():
        for unit in text.encode():
            value = (31 * value + unit) & 0xFFFFFFFF
    else:
        units = text.encode("utf-16-be", "surrogatepass")
        for at in range(0, len(units), 2):
            value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def tag_code_of(topic: str, tag: str, delay_level: str | None, store_time_ms: int) -> int:
    """The unit's 64-bit filter field: the tag's hash, 0 without a tag; or the due time of a delayed
    message of RocketMQ, ms since 1970."""
    if delay_level is not None and topic == SCHEDULE_TOPIC:
        try:
            level = min(int(delay_level), len(DELAY_LEVELS_MS))
        except ValueError:
            level = 0
        if level > 0:
            return store_time_ms + DELAY_LEVELS_MS[level - 1]
    return java_hash(tag) if tag else 0


def pack_host(host: Host) -> bytes:
    """Address and port: 8 bytes for IPv4, 20 for IPv6. Raises InvalidArgumentError."""
    address, port = host
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        return socket.inet_pton(family, address) + port.to_bytes(4, "big", signed=True)
    except (OSError, OverflowError) as error:
        raise InvalidArgumentError("host", f"{address!r} port {port} is not an address") from error


@lru_cache(maxsize=4096)  # messages of one producer follow each other
def unpack_host(data: bytes) -> Host:
    """Inverse of pack_host."""
    family = socket.AF_INET if len(data) == 8 else socket.AF_INET6
    return socket.inet_ntop(family, data[:-4]), int.from_bytes(data[-4:], "big", signed=True)


def message_id(store_host: bytes, physical_offset: int) -> str:
    """RocketMQ's offset message id: packed store host and offset in upper-case hex."""
    return (store_host + _I64.pack(physical_offset)).hex().upper()


def parse_message_id(text: str) -> tuple[Host, int]:
    """Store host and physical offset. Raises InvalidArgumentError."""
    if len(text) == 34:
        raise InvalidArgumentError(
            "message_id",
            "is the id that a RocketMQ client shows (34 characters): kvcq query TOPIC ID --json "
            "finds the message and its id here",
        )
    if len(text) not in (32, 56):
        raise InvalidArgumentError("message_id", f"{len(text)} characters, not 32 or 56")
    try:
        data = bytes.fromhex(text)
    except ValueError:
        raise InvalidArgumentError("message_id", "not hexadecimal") from None
    if len(data) not in (16, 28):
        raise InvalidArgumentError("message_id", "not hexadecimal")
    offset = int.from_bytes(data[-8:], "big", signed=True)
    if offset < 0:
        raise InvalidArgumentError("message_id", "holds a negative offset")
    return unpack_host(data[:-8]), offset


def crc_item(crc: int) -> bytes:
    """The 20 bytes that close a record, for the masked CRC of all bytes before them."""
    return CRC_ITEM_PREFIX + (b"%010d" % crc)[::-1] + b"\x02"


def pack_blank(remaining: int) -> bytes:
    """The 8 bytes that mark the rest of a segment, `remaining` bytes including these, as blank."""
    return SIZE_AND_MAGIC.pack(remaining, MAGIC_BLANK)


class Found(enum.Enum):
    """What is at a position of the log."""

    RECORD = "record"
    BLANK = "blank"  # the rest of the segment is unused
    NOTHING = "nothing"  # not a record: the end of the log, a torn tail, or damage


class Checked(NamedTuple):
    """Result of `check_record`; `reason` says why it is NOTHING."""

    found: Found
    size: int
    reason: str = ""


class Parts(NamedTuple):
    """Where the variable fields of a record lie, relative to its start."""

    size: int
    hosts_bytes: int
    body_at: int
    body_end: int
    topic_at: int
    topic_end: int
    properties_at: int


def check_record(
    data: bytes | memoryview, at: int, end: int, physical_offset: int, *, verify_crc: bool = True
) -> Checked:
    """Check for a whole record at `data[at:end]`, whose physical offset in the log is given.

    A record must be where it says it is: an old record left behind by a truncation does not count.
    With `verify_crc` the body's CRC must match, and the CRC item if there is one.
    """
    if end - at < BLANK_BYTES:
        return Checked(Found.NOTHING, 0, "fewer than 8 bytes left")
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    if magic == MAGIC_BLANK:
        return Checked(Found.BLANK, 0)
    if magic not in (MAGIC_V1, MAGIC_V2):
        return Checked(Found.NOTHING, 0, f"no magic code ({magic & 0xFFFFFFFF:08x})")
    if not MIN_RECORD_BYTES <= size <= end - at:
        return Checked(Found.NOTHING, 0, f"impossible record size {size}")
    try:
        parts = locate(data, at)
    except CorruptRecordError as error:
        return Checked(Found.NOTHING, 0, error.reason)
    if _I64.unpack_from(data, at + PHYSICAL_OFFSET_AT)[0] != physical_offset:
        return Checked(Found.NOTHING, 0, "the record says it lies elsewhere")
    if verify_crc:
        reason = _crc_mismatch(data, at, parts)
        if reason:
            return Checked(Found.NOTHING, 0, reason)
    return Checked(Found.RECORD, size)


def locate(data: bytes | memoryview, at: int) -> Parts:
    """The positions of the fields of the record at `at`. Raises CorruptRecordError if they are
    inconsistent.

    The record's size must have been checked to lie inside `data`.
    """
    size, magic = SIZE_AND_MAGIC.unpack_from(data, at)
    try:
        sys_flag = data[at + SYS_FLAG_BYTE_AT]
        hosts = hosts_bytes(sys_flag)
        body_at = BODY_AT + hosts
        if body_at + 3 > size:
            raise CorruptRecordError(at, "record too short for its header")
        body_end = body_at + int.from_bytes(
            data[at + body_at - 4 : at + body_at], "big", signed=True
        )
        topic_at = body_end + (1 if magic == MAGIC_V1 else 2)
        if body_end < body_at or topic_at + 2 > size:
            raise CorruptRecordError(at, "impossible body length")
        topic_end = topic_at + int.from_bytes(
            data[at + body_end : at + topic_at], "big", signed=True
        )
        properties_at = topic_end + 2
        if topic_end < topic_at or properties_at > size:
            raise CorruptRecordError(at, "impossible topic length")
        properties_length = _I16.unpack_from(data, at + topic_end)[0]
    except (struct.error, IndexError):
        raise CorruptRecordError(at, "record cut short") from None
    if properties_length < 0 or properties_at + properties_length != size:
        raise CorruptRecordError(at, "field lengths do not add up to the record size")
    return Parts(size, hosts, body_at, body_end, topic_at, topic_end, properties_at)


def _crc_mismatch(data: bytes | memoryview, at: int, parts: Parts) -> str:
    """Why the CRCs do not match, or an empty text."""
    return crc_mismatch(
        memoryview(data),
        at,
        at + parts.body_at,
        at + parts.body_end,
        at + parts.properties_at,
        at + parts.size,
    )


def crc_mismatch(
    view: memoryview, at: int, body_at: int, body_end: int, properties_at: int, end: int
) -> str:
    """Why the CRCs of the record at `at` do not match, or an empty text. Positions in the view."""
    body_crc = int.from_bytes(view[at + _BODY_CRC_AT : at + _BODY_CRC_AT + 4], "big")
    # RocketMQ stores 0 for a null body; the CRC of no bytes is 0 as well.
    if crc32(view[body_at:body_end]) & CRC_MASK != body_crc:
        return "body CRC mismatch"
    item_at = end - CRC_ITEM_BYTES
    if item_at >= properties_at:
        item = bytes(view[item_at:end])
        if item.startswith(CRC_ITEM_PREFIX):
            if item != crc_item(crc32(view[at:item_at]) & CRC_MASK):
                return "record CRC mismatch"
        elif _was_crc_item(item):
            return "record CRC item damaged"
    return ""


def _was_crc_item(item: bytes) -> bool:
    """Whether the end of a record without a valid CRC item must have been one.

    Otherwise damage to the item itself would pass for a record that never had one. A torn write
    leaves zeros at the end, or before the rest of the item; a flipped bit leaves most of its name.
    """
    rest = item.lstrip(b"\0")
    zeros = len(item) - len(rest)
    torn = item[-1] == 0 or (zeros > 0 and rest.startswith(CRC_ITEM_PREFIX[zeros:]))
    same = sum(map(int.__eq__, item, CRC_ITEM_PREFIX))
    return torn or same >= len(CRC_ITEM_PREFIX) - 2


def unpack_record(data: bytes | memoryview, *, verify: bool = True) -> StoredMessage:
    """Decode one record that begins at `data[0]`; bytes behind it are ignored.

    Raises CorruptRecordError when it does not verify (with `verify`: its CRCs; always: lengths).
    """
    if len(data) < MIN_RECORD_BYTES:
        raise CorruptRecordError(0, f"{len(data)} bytes are too few for a record")
    (size, magic, body_crc, queue_id, flag, queue_offset, physical_offset, sys_flag, born_ms) = (
        _FIXED.unpack_from(data, 0)
    )
    if magic not in (MAGIC_V1, MAGIC_V2) or not MIN_RECORD_BYTES <= size <= len(data):
        raise CorruptRecordError(max(physical_offset, 0), "no record")
    parts = locate(data, 0)
    if verify:
        reason = _crc_mismatch(data, 0, parts)
        if reason:
            raise CorruptRecordError(physical_offset, reason)
    store_time_at = HOSTS_AT + born_host_bytes(sys_flag)
    store_host_at = store_time_at + STORE_TIME_BYTES
    after = BACK_AT + parts.hosts_bytes
    reconsume_times, prepared, _ = _BACK.unpack_from(data, after)
    try:
        topic = str(data[parts.topic_at : parts.topic_end], "utf-8")
        text = str(data[parts.properties_at : size], "utf-8")
    except UnicodeDecodeError:
        raise CorruptRecordError(physical_offset, "topic or properties are not UTF-8") from None
    properties = decode_properties(text)
    properties.pop(CRC_ITEM, None)
    properties.pop(BATCH, None)
    return StoredMessage(
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        size,
        flag,
        sys_flag,
        born_ms,
        unpack_host(bytes(data[HOSTS_AT:store_time_at])),
        _I64.unpack_from(data, store_time_at)[0],
        unpack_host(bytes(data[store_host_at:after])),
        reconsume_times,
        max(prepared, 0),  # below 0 it is the place in a batch
        body_crc,
        bytes(data[parts.body_at : parts.body_end]),
        properties,
    )


def properties_of(record: bytes) -> bytes:
    """The property string of a whole, verified record, as it lies there."""
    return record[locate(record, 0).properties_at :]


def properties_size(record: bytes) -> int:
    """Size in bytes of the property string of a whole, verified record, and of its topic."""
    body_at = BODY_AT + hosts_bytes(record[SYS_FLAG_BYTE_AT])
    return len(record) - int.from_bytes(record[body_at - 4 : body_at], "big") - body_at


def tag_of(record: bytes) -> str:
    """Same as `unpack_record(record).tag`, without parsing the other properties."""
    return last_value(properties_of(record), TAGS)


def store_time_of(data: bytes | memoryview, at: int) -> int:
    """Store time of the record at `at`, ms since 1970."""
    born = born_host_bytes(data[at + SYS_FLAG_BYTE_AT])
    time_ms: int = _I64.unpack_from(data, at + HOSTS_AT + born)[0]
    return time_ms


def dispatch_request(data: bytes | memoryview, at: int) -> DispatchRequest:
    """Parse the record at `at`, which `check_record` has found whole, into a dispatch request.

    Raises CorruptRecordError if no queue can hold it: topic or properties are not UTF-8, or queue
    id or offset are negative.
    """
    (size, _magic, _crc, queue_id, _flag, queue_offset, physical_offset, sys_flag, _born) = (
        _FIXED.unpack_from(data, at)
    )
    if queue_id < 0 or queue_offset < 0:
        raise CorruptRecordError(physical_offset, "a negative queue id or offset")
    parts = locate(data, at)
    try:
        topic = str(data[at + parts.topic_at : at + parts.topic_end], "utf-8")
        text = str(data[at + parts.properties_at : at + size], "utf-8")
    except UnicodeDecodeError:
        raise CorruptRecordError(physical_offset, "topic or properties are not UTF-8") from None
    properties = decode_properties(text)
    store_time_ms = store_time_of(data, at)
    transaction = sys_flag & TRANSACTION_MASK
    in_queue = transaction in (0, TRANSACTION_COMMIT)
    return DispatchRequest(
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        size,
        tag_code_of(topic, properties.get(TAGS, ""), properties.get(DELAY), store_time_ms),
        store_time_ms,
        () if transaction == TRANSACTION_ROLLBACK else index_keys(properties),
        light_queues(properties) if in_queue else (),
        in_queue,
    )
