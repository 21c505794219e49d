"""The quick way through many records: those whose CRC item proves them whole.

Scans of the log, on opening and behind the appender, read millions of records. Nearly all are of
the kind that this store writes: closed by a CRC item, V1, IPv4 hosts, no transaction. For these
one CRC over the record replaces all other checks. At the first record of another kind the quick
way ends, and the caller asks `record.check_record` and `record.dispatch_request`.
"""

from __future__ import annotations

import struct

from isal.isal_zlib import crc32

from store.consume_queue import DispatchRequest
from store.record import (
    BORN_HOST_V6,
    CRC_ITEM_BYTES,
    CRC_ITEM_PREFIX,
    CRC_MASK,
    HEADER_V4_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    STORE_HOST_V6,
    TRANSACTION_MASK,
)

_LEAST = MIN_RECORD_BYTES + CRC_ITEM_BYTES
_UNCOMMON = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_MASK

_SIZE_MAGIC_OFFSET = struct.Struct(">ii20xq")
# record_size, magic, queue_id, queue_offset, physical_offset, sys_flag, store_time_ms, body_length
_FIELDS = struct.Struct(">ii4xi4xqqi16xq20xi")
assert _FIELDS.size == HEADER_V4_BYTES


def skip_sealed(data: memoryview, base: int, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """Pass whole records from physical offset `at` on; `data[0]` lies at `base`.

    Returns where it ended, how many it passed, and where the last of them begins (-1: none).
    It ends at `end`, after `limit` records, or at what is no sealed record.
    """
    unpack = _SIZE_MAGIC_OFFSET.unpack_from
    count = 0
    last = -1
    while count < limit and end - at >= _LEAST:
        position = at - base
        size, magic, offset = unpack(data, position)
        if (
            offset != at
            or (magic != MAGIC_V1 and magic != MAGIC_V2)
            or not _LEAST <= size <= end - at
        ):
            break
        item_at = position + size - CRC_ITEM_BYTES
        crc = crc32(data[position:item_at]) & CRC_MASK
        if data[item_at : position + size] != CRC_ITEM_PREFIX + (b"\x02%010d" % crc)[::-1]:
            break
        last = at
        at += size
        count += 1
    return at, count, last


def parse_sealed(
    data: memoryview | bytes, base: int, at: int, end: int, limit: int, topics: dict[bytes, str]
) -> tuple[list[DispatchRequest], int]:
    """What is derived from the records from physical offset `at` on, and where that ended.

    Like `skip_sealed`, and it ends as well at a record of an uncommon kind, or with properties.
    `topics` is kept by the caller, so that a topic seen before is the same object again.
    """
    unpack = _FIELDS.unpack_from
    new = tuple.__new__
    requests: list[DispatchRequest] = []
    add = requests.append
    least = _LEAST
    while len(requests) < limit and end - at >= HEADER_V4_BYTES + CRC_ITEM_BYTES:
        position = at - base
        size, magic, queue_id, queue_offset, offset, sys_flag, store_time_ms, body_length = unpack(
            data, position
        )
        if (
            offset != at
            or magic != MAGIC_V1
            or sys_flag & _UNCOMMON
            or not least <= size <= end - at
            or not 0 <= body_length <= size - least
            or queue_id < 0
            or queue_offset < 0
        ):
            break
        record_end = position + size
        item_at = record_end - CRC_ITEM_BYTES
        topic_at = position + HEADER_V4_BYTES + body_length
        topic_end = topic_at + 1 + data[topic_at]
        if topic_end + 2 != item_at:
            break
        crc = crc32(data[position:item_at]) & CRC_MASK
        if data[item_at:record_end] != CRC_ITEM_PREFIX + (b"\x02%010d" % crc)[::-1]:
            break
        name = bytes(data[topic_at + 1 : topic_end])
        topic = topics.get(name)
        if topic is None:
            try:
                topic = name.decode()
            except UnicodeDecodeError:
                break
            topics[name] = topic
        add(
            new(
                DispatchRequest,
                (topic, queue_id, queue_offset, at, size, 0, store_time_ms, (), (), True),
            )
        )
        at += size
    return requests, at
