"""A second, plain writer of commit logs: what our readers are held to, sharing no code with them.

Everything is packed field by field, one record at a time; nothing is fast or clever. `rows` keeps
what a right reader must find. Source of the layout: RocketMQ 5, class MessageExtEncoder.
"""

from __future__ import annotations

import ipaddress
import struct
import zlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

MAGIC_V1 = 0xDAA320A7
MAGIC_V2 = 0xDAA320AB
MAGIC_BLANK = 0xCBD43194

PREPARED = 0x4
COMMIT = 0x8
ROLLBACK = 0xC

#: RocketMQ's messageDelayLevel, in seconds, from level 1.
DELAY_SECONDS = [
    *(1, 5, 10, 30, 60, 120, 180, 240, 300, 360, 420, 480, 540, 600, 1200, 1800, 3600, 7200)
]

Host = tuple[str, int]


def java_hash(text: str) -> int:
    """String.hashCode of Java: over UTF-16 units, 32 bits, signed."""
    units = text.encode("utf-16-be")
    value = 0
    for at in range(0, len(units), 2):
        value = (31 * value + (units[at] << 8 | units[at + 1])) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def crc31(data: bytes) -> int:
    return zlib.crc32(data) & 0x7FFFFFFF


@dataclass(frozen=True)
class Entry:
    """One message to write. `properties` may be raw bytes, to write odd ones."""

    topic: str = "TopicTest"
    body: bytes = b"hello"
    queue_id: int = 0
    properties: Mapping[str, str] | bytes = field(default_factory=dict)
    light_queues: tuple[str, ...] = ()
    flag: int = 0
    sys_flag: int = 0
    born_time_ms: int = 1_700_000_000_123
    store_time_ms: int = 1_700_000_000_456
    born_host: Host = ("127.0.0.1", 54321)
    store_host: Host = ("10.0.0.1", 10911)
    reconsume_times: int = 0
    prepared_offset: int = 0
    version: int | None = None  # 1, 2, or by the length of the topic
    queue_offset: int | None = None  # None: the next one of its queue


@dataclass(frozen=True)
class Row:
    """What a right reader finds."""

    entry: Entry
    queue_offset: int
    physical_offset: int
    record: bytes
    sys_flag: int
    properties: bytes  # as stored
    tag: str | None
    tag_code: int
    keys: tuple[str, ...]
    light: tuple[tuple[str, int], ...]

    @property
    def in_queue(self) -> bool:
        return self.sys_flag & 0xC in (0, COMMIT)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.entry.topic, self.entry.queue_id, self.queue_offset


class LogWriter:
    """Writes segments of `segment_bytes` each below `directory`, beginning at `start`."""

    def __init__(
        self, directory: Path, segment_bytes: int, *, crc_item: bool = True, start: int = 0
    ) -> None:
        assert start % segment_bytes == 0
        directory.mkdir(parents=True, exist_ok=True)
        self.directory = directory
        self.segment_bytes = segment_bytes
        self.crc_item = crc_item
        self.end = start
        self.rows: list[Row] = []
        self._next: dict[tuple[str, int], int] = {}
        self._segment = bytearray()

    def append(self, entry: Entry) -> Row:
        row = self._encode(entry, self.end)
        room = self.segment_bytes - len(self._segment)
        if len(row.record) + 8 > room:
            self.roll()
            row = self._encode(entry, self.end)
            assert len(row.record) + 8 <= self.segment_bytes
        self._segment += row.record
        self.end += len(row.record)
        if row.in_queue:
            self._next[entry.topic, entry.queue_id] = row.queue_offset + 1
        for name, offset in row.light:
            self._next[name, 0] = offset + 1
        self.rows.append(row)
        return row

    def extend(self, entries: list[Entry]) -> list[Row]:
        return [self.append(entry) for entry in entries]

    def forget(self, queue: tuple[str, int]) -> None:
        """The queue was deleted: its offsets begin at 0 again."""
        self._next.pop(queue, None)

    def roll(self) -> None:
        """End the segment with a blank record."""
        room = self.segment_bytes - len(self._segment)
        self._segment += struct.pack(">iI", room, MAGIC_BLANK) + bytes(room - 8)
        self.end += room
        self._write(self.end - self.segment_bytes)
        self._segment.clear()

    def write_raw(self, data: bytes) -> None:
        """Bytes that are no record, at the end."""
        self._segment += data
        self.end += len(data)

    def flush(self) -> None:
        """Write the segment begun; its rest is zeros."""
        if self._segment:
            self._write(self.end - len(self._segment))

    def path_of(self, physical_offset: int) -> Path:
        start = physical_offset - physical_offset % self.segment_bytes
        return self.directory / f"{start:020d}"

    def _write(self, start: int) -> None:
        data = bytes(self._segment)
        self.path_of(start).write_bytes(data + bytes(self.segment_bytes - len(data)))

    def _encode(self, entry: Entry, physical_offset: int) -> Row:
        sys_flag = entry.sys_flag
        born = _pack_host(entry.born_host)
        store = _pack_host(entry.store_host)
        sys_flag |= 0x10 if len(born) == 20 else 0
        sys_flag |= 0x20 if len(store) == 20 else 0
        if entry.queue_offset is not None:
            queue_offset = entry.queue_offset
        elif sys_flag & 0xC in (PREPARED, ROLLBACK):
            queue_offset = 0
        else:
            queue_offset = self._next.get((entry.topic, entry.queue_id), 0)

        light = tuple((name, self._next.get((name, 0), 0)) for name in entry.light_queues)
        if isinstance(entry.properties, bytes):
            assert not light
            properties = entry.properties
        else:
            items = dict(entry.properties)
            if light:
                items["INNER_MULTI_DISPATCH"] = ",".join(name for name, _ in light)
                items["INNER_MULTI_QUEUE_OFFSET"] = ",".join(str(offset) for _, offset in light)
            text = "".join(f"{name}\x01{value}\x02" for name, value in items.items())
            properties = text.encode()

        topic = entry.topic.encode()
        version = entry.version or (2 if len(entry.topic.encode("utf-16-be")) > 254 else 1)
        total = 75 + len(born) + len(store) + len(entry.body) + len(topic) + version - 1
        item_size = 20 if self.crc_item else 0
        if self.crc_item and properties and not properties.endswith(b"\x02"):
            properties += b"\x02"
        total += len(properties) + item_size
        record = b"".join(
            [
                struct.pack(">i", total),
                struct.pack(">I", MAGIC_V1 if version == 1 else MAGIC_V2),
                struct.pack(">i", crc31(entry.body)),
                struct.pack(">i", entry.queue_id),
                struct.pack(">i", entry.flag),
                struct.pack(">q", queue_offset),
                struct.pack(">q", physical_offset),
                struct.pack(">i", sys_flag),
                struct.pack(">q", entry.born_time_ms),
                born,
                struct.pack(">q", entry.store_time_ms),
                store,
                struct.pack(">i", entry.reconsume_times),
                struct.pack(">q", entry.prepared_offset),
                struct.pack(">i", len(entry.body)),
                entry.body,
                struct.pack(">b" if version == 1 else ">h", len(topic)),
                topic,
                struct.pack(">h", len(properties) + item_size),
                properties,
            ]
        )
        if self.crc_item:
            digits = f"{crc31(record):010d}"[::-1]
            item = f"__CRC32#\x01{digits}\x02".encode()
            record += item
            properties += item
        assert len(record) == total
        values = decode_properties(properties)
        tag = values.get("TAGS")
        return Row(
            entry=entry,
            queue_offset=queue_offset,
            physical_offset=physical_offset,
            record=record,
            sys_flag=sys_flag,
            properties=properties,
            tag=tag,
            tag_code=_tag_code(entry, tag, values.get("DELAY")),
            keys=_keys(values),
            light=light,
        )


def decode_properties(data: bytes) -> dict[str, str]:
    """As RocketMQ's MessageDecoder.string2messageProperties does it."""
    text = data.decode()
    found: dict[str, str] = {}
    index = 0
    while index < len(text):
        end = text.find("\x02", index)
        if end < 0:
            end = len(text)
        if end - index >= 3:
            split = text.find("\x01", index)
            if index < split < end - 1:
                found[text[index:split]] = text[split + 1 : end]
        index = end + 1
    return found


def _tag_code(entry: Entry, tag: str | None, delay: str | None) -> int:
    if entry.topic == "SCHEDULE_TOPIC_XXXX" and delay is not None:
        try:
            level = min(int(delay), len(DELAY_SECONDS))
        except ValueError:  # text of a client: no level
            level = 0
        if level > 0:
            return entry.store_time_ms + DELAY_SECONDS[level - 1] * 1000
    return java_hash(tag) if tag else 0


def _keys(values: Mapping[str, str]) -> tuple[str, ...]:
    wanted = [values.get("UNIQ_KEY", ""), *values.get("KEYS", "").split(" ")]
    return tuple(dict.fromkeys(key for key in wanted if key))


def _pack_host(host: Host) -> bytes:
    return ipaddress.ip_address(host[0]).packed + struct.pack(">i", host[1])
