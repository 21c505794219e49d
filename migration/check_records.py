"""Reads records for the check: quickly where a record proves itself, else with every single look.

Files are read, not mapped: pages of a mapping count as memory of this process as long as the kernel
likes to keep them, and a disk that fails is an error instead of the end of the process.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from isal.isal_zlib import crc32

from store.consume_queue import DispatchRequest
from store.properties import DELAY, LMQ_NAMES, TAGS, decode_properties, index_keys, light_queues
from store.record import (
    BLANK_BYTES,
    BORN_HOST_V6,
    CRC_ITEM_BYTES,
    CRC_ITEM_PREFIX,
    CRC_MASK,
    HEADER_V4_BYTES,
    MAGIC_V1,
    MIN_RECORD_BYTES,
    STORE_HOST_V6,
    TRANSACTION_MASK,
    Checked,
    check_record,
    java_hash,
    tag_code_of,
)
from store.units import LMQ_PREFIX

if TYPE_CHECKING:
    from store.segment import Segment

#: Read at once. Large enough that the system calls do not count.
_WINDOW_BYTES = 8 << 20
#: At least so much is held while records are looked at one after the other.
_HELD_BYTES = 64 << 10
_LEAST = MIN_RECORD_BYTES + CRC_ITEM_BYTES
_UNCOMMON = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_MASK
_RUN_BYTES = 1 << 20
_CACHED_TOPICS = 65_536
_CACHED_TAGS = 4096
_ONLY_TAG = {TAGS}
_ITEM_END = 2

# record_size, magic, queue_id, queue_offset, physical_offset, sys_flag, store_time_ms, body_length
_FIELDS = struct.Struct(">ii4xi4xqqi16xq20xi")
assert _FIELDS.size == HEADER_V4_BYTES

_tag_hash = lru_cache(maxsize=4096)(java_hash)


class Window:
    """A piece of one segment in memory. Memory: 8 MiB, or one record when that is larger."""

    def __init__(self, segment: Segment) -> None:
        self._segment = segment
        self.start = segment.start_offset  # physical, of data[0]
        self.end = self.start
        self.data = b""

    def hold(self, at: int, size: int = _HELD_BYTES) -> None:
        """At least `size` bytes from physical offset `at` on are in `data`, or all there are."""
        base = self._segment.start_offset
        rest = base + self._segment.size - at
        if at < self.start or at + min(size, rest) > self.end:
            self.data = self._segment.pread(at - base, min(rest, max(size, _WINDOW_BYTES)))
            self.start, self.end = at, at + len(self.data)

    def check(self, at: int) -> Checked:
        """What stands at `at`, looked at in every way."""
        end = self._segment.start_offset + self._segment.size
        self.hold(at, BLANK_BYTES)
        size = int.from_bytes(self.data[at - self.start : at - self.start + 4], "big", signed=True)
        if BLANK_BYTES <= size <= end - at:
            self.hold(at, size)
        return check_record(self.data, at - self.start, end - self.start, at)


def check_at(segment: Segment, at: int, *, verify_crc: bool = True) -> tuple[Checked, bytes]:
    """What stands at physical offset `at`, and its bytes; for single looks."""
    position = at - segment.start_offset
    rest = segment.size - position
    head = segment.pread(position, min(BLANK_BYTES, rest))
    size = int.from_bytes(head[:4], "big", signed=True)
    data = segment.pread(position, size) if MIN_RECORD_BYTES <= size <= rest else head
    return check_record(data, 0, rest, at, verify_crc=verify_crc), data


class ProvenRecords:
    """The quick way through records. Memory: bounded caches of names met before."""

    def __init__(self) -> None:
        self._topics: dict[bytes, str] = {}
        # Property strings that say nothing but a tag, which repeat, to the tag's code.
        self._tags: dict[bytes, int] = {}

    def parse(self, window: Window, at: int) -> tuple[list[DispatchRequest], int]:
        """What is derived from the records from `at` on whose CRC item proves them.

        Also returns where that ended: after about a mebibyte, before the window's end, or at a
        record of another kind, for which `Window.check` is to be asked. Like
        `sealed_run.parse_sealed`, and it goes on over properties: in a log with keys nearly every
        record has some.
        """
        data, base = window.data, window.start
        end = window.end - base
        position = at - base
        last = min(position + _RUN_BYTES, end - HEADER_V4_BYTES - CRC_ITEM_BYTES)
        unpack, checksum = _FIELDS.unpack_from, crc32
        topics, tags = self._topics, self._tags
        new, kind = tuple.__new__, DispatchRequest
        least, uncommon, mask, prefix = _LEAST, _UNCOMMON, CRC_MASK, CRC_ITEM_PREFIX
        requests: list[DispatchRequest] = []
        add = requests.append
        while position <= last:
            size, magic, queue_id, queue_offset, offset, sys_flag, store_time_ms, body_length = (
                unpack(data, position)
            )
            if (
                offset != at
                or magic != MAGIC_V1
                or sys_flag & uncommon
                or not least <= size <= end - position
                or not 0 <= body_length <= size - least
                or queue_id < 0
                or queue_offset < 0
            ):
                break
            record_end = position + size
            item_at = record_end - CRC_ITEM_BYTES
            crc = checksum(data[position:item_at]) & mask
            if data[item_at:record_end] != prefix + (b"\x02%010d" % crc)[::-1]:
                break
            topic_at = position + HEADER_V4_BYTES + body_length
            topic_end = topic_at + 1 + data[topic_at]
            properties_at = topic_end + 2
            if properties_at > item_at:
                break
            name = data[topic_at + 1 : topic_end]
            keys: tuple[str, ...] = ()
            light: tuple[tuple[str, int], ...] = ()
            tag_code: int | None = 0
            try:
                topic = topics.get(name) or self._new_topic(name)
                if properties_at != item_at:
                    text = data[properties_at:item_at]
                    tag_code = tags.get(text)
                    if tag_code is None:
                        whole = data[properties_at:record_end]
                        tag_code, keys, light = self._properties(text, whole, topic, store_time_ms)
            except UnicodeDecodeError:
                break
            add(
                new(
                    kind,
                    (
                        topic,
                        queue_id,
                        queue_offset,
                        at,
                        size,
                        tag_code,
                        store_time_ms,
                        keys,
                        light,
                        True,
                    ),
                )
            )
            at += size
            position = record_end
        return requests, at

    def _new_topic(self, name: bytes) -> str:
        if len(self._topics) >= _CACHED_TOPICS:
            self._topics.clear()
        topic = self._topics[name] = name.decode()
        return topic

    def _properties(
        self, text: bytes, whole: bytes, topic: str, store_time_ms: int
    ) -> tuple[int, tuple[str, ...], tuple[tuple[str, int], ...]]:
        """Tag code, keys and light queues. `whole` ends with the CRC item.

        The item is a property of its own only if the one before it ends as all should.
        """
        properties = decode_properties(str(text if text[-1] == _ITEM_END else whole, "utf-8"))
        tag = properties.get(TAGS, "")
        if text[-1] == _ITEM_END and properties.keys() == _ONLY_TAG:
            if len(self._tags) >= _CACHED_TAGS:
                self._tags.clear()
            code = self._tags[text] = _tag_hash(tag)
            return code, (), ()
        delay = properties.get(DELAY)
        if delay is not None:
            code = tag_code_of(topic, tag, delay, store_time_ms)
        else:
            code = _tag_hash(tag) if tag else 0
        light = light_queues(properties, LMQ_PREFIX) if LMQ_NAMES in properties else ()
        return code, index_keys(properties), light
