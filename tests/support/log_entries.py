"""Records made byte by byte, also such as no writer of ours would make."""

from __future__ import annotations

import struct
from typing import NamedTuple

from zlib_ng.zlib_ng import crc32

from store.format.layout import BORN_HOST_V6, STORE_HOST_V6
from store.format.record import CRC_ITEM_BYTES, CRC_MASK, MAGIC_V1, crc_item

BASE = 1 << 30
_FRONT = struct.Struct(">iiiiiqqiq")


class Entry(NamedTuple):
    """One record to be made, down to what no writer of ours would make."""

    topic: bytes = b"orders"
    properties: bytes = b""
    body: bytes = b"body"
    magic: int = MAGIC_V1
    sys_flag: int = 0
    queue_id: int = 0
    queue_offset: int = 0
    store_time_ms: int = 1_700_000_000_000
    sealed: bool = True
    wrong_length: int = 0  # added to the properties length


def record_of(entry: Entry, at: int) -> bytes:
    item_bytes = CRC_ITEM_BYTES if entry.sealed else 0
    length_bytes = 1 if entry.magic == MAGIC_V1 else 2
    properties_length = (len(entry.properties) + item_bytes + entry.wrong_length) & 0xFFFF
    born = bytes(20 if entry.sys_flag & BORN_HOST_V6 else 8)
    store = bytes(20 if entry.sys_flag & STORE_HOST_V6 else 8)
    rest = b"".join(
        (
            born,
            struct.pack(">q", entry.store_time_ms),
            store,
            struct.pack(">iqi", 0, 0, len(entry.body)),
            entry.body,
            len(entry.topic).to_bytes(length_bytes, "big"),
            entry.topic,
            properties_length.to_bytes(2, "big"),
            entry.properties,
        )
    )
    front = _FRONT.pack(
        _FRONT.size + len(rest) + item_bytes,
        entry.magic,
        crc32(entry.body) & CRC_MASK,
        entry.queue_id,
        0,
        entry.queue_offset,
        at,
        entry.sys_flag,
        0,
    )
    data = front + rest
    return data + crc_item(crc32(data) & CRC_MASK) if entry.sealed else data


def log_of(entries: list[Entry]) -> tuple[bytes, list[int]]:
    """Records that follow each other from `BASE` on, and where each begins."""
    data = b""
    starts = []
    for entry in entries:
        starts.append(BASE + len(data))
        data += record_of(entry, starts[-1])
    return data, starts
