"""Reads single records of a log by physical offset from the segment files.

File queues need this for reads, because their units have no store time, and at opening, because the
index is cut by store times. Uses pread, so a cold page does not block other threads, and needs no
open log. Every record is verified: it must contain its own position.
"""

from __future__ import annotations

import os
from collections import OrderedDict
from typing import TYPE_CHECKING

from store.base import Lock
from store.errors import CorruptRecordError
from store.format import (
    HOST_V6_BYTES,
    HOSTS_AT,
    ITEM_END,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    NAME_END,
    SCHEDULE_TOPIC,
    STORE_TIME_BYTES,
    SYS_FLAG_BYTE_AT,
    TAGS,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    Found,
    check_record,
    decode_properties,
    dispatch_request,
    locate,
    picking,
    store_time_of,
)
from store.log import segment_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from store.consume_queue import DispatchRequest

_OPEN_SEGMENTS = 32
#: Bytes of one read for tags: some hundred records.
_SPAN_BYTES = 1 << 18
_TAG_NAME = f"{TAGS}{NAME_END}".encode()
_ITEM_END = ITEM_END.encode()
#: Bytes up to the store time, with hosts of any size.
_HEAD_BYTES = HOSTS_AT + HOST_V6_BYTES + STORE_TIME_BYTES
_HEAD = picking("record_size", "magic", "physical_offset")


class RecordLookup:
    """Reads records from the segment files. Thread: any. Locks: `_lock` for the table of open
    files, held while one is opened."""

    def __init__(self, commitlog: Path, segment_bytes: int) -> None:
        # Constant after construction.
        self._commitlog = commitlog
        self._segment_bytes = segment_bytes
        self._lock = Lock()
        # Guarded by _lock; the least recently used file first.
        self._files: OrderedDict[int, int] = OrderedDict()

    def store_time_ms(self, physical_offset: int) -> int | None:
        """Store time of the record there; None if there is none."""
        head = self._read(physical_offset, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        size, magic, found = _HEAD.unpack_from(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or found != physical_offset or size < MIN_RECORD_BYTES:
            return None
        return store_time_of(head, 0)

    def record(self, physical_offset: int) -> bytes | None:
        """The record there; None if there is no whole record."""
        head = self._read(physical_offset, 8)
        size = int.from_bytes(head[:4], "big", signed=True)
        if len(head) < 8 or not MIN_RECORD_BYTES <= size <= self._segment_bytes:
            return None
        data = self._read(physical_offset, size)
        found = check_record(data, 0, len(data), physical_offset).found
        return data if found is Found.RECORD else None

    def request(self, physical_offset: int) -> DispatchRequest | None:
        """The request derived from the record there; None if there is no whole record."""
        data = self.record(physical_offset)
        if data is None:
            return None
        try:
            return dispatch_request(data, 0)
        except CorruptRecordError:
            return None

    def tags(self, requests: Sequence[DispatchRequest]) -> list[str]:
        """The tag of each of these records, which have tag codes, in log order.

        "" if there is no tag to index: for a rollback of a transaction, a delayed message without a
        tag, and a record that left the log.
        """
        found = []
        data, base, behind = b"", 0, 0
        for number, request in enumerate(requests):
            topic, _, _, offset, size = request[:5]
            if offset < base or offset + size > behind:
                data, base = self._read_span(requests, number), offset
                behind = base + len(data)
            try:
                found.append(_tag(data, offset - base, size, topic))
            except (CorruptRecordError, IndexError):
                found.append("")  # left the log
        return found

    def _read_span(self, requests: Sequence[DispatchRequest], number: int) -> bytes:
        """Read the bytes of records from requests[number] on: as many as fit one read, in one
        segment."""
        offset, size = requests[number][3:5]
        end = offset + size
        for later in requests[number + 1 :]:
            behind = later[3] + later[4]
            if behind > offset + _SPAN_BYTES:
                break
            end = behind
        data = self._read(offset, end - offset)
        return data if len(data) >= size else b""

    def forget_below(self, log_start: int) -> None:
        """Close segments that were dropped, because open files keep their space on the disk."""
        with self._lock:
            for start in [each for each in self._files if each + self._segment_bytes <= log_start]:
                os.close(self._files.pop(start))

    def close(self) -> None:
        """Close all files. Repeatable; a later read reopens them."""
        with self._lock:
            for descriptor in self._files.values():
                os.close(descriptor)
            self._files.clear()

    def _read(self, offset: int, size: int) -> bytes:
        if offset < 0:
            return b""
        start = offset - offset % self._segment_bytes
        with self._lock:
            descriptor = self._files.pop(start, None)
            if descriptor is None:
                try:
                    path = self._commitlog / segment_name(start)
                    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
                except FileNotFoundError:
                    return b""
                while len(self._files) >= _OPEN_SEGMENTS:
                    os.close(self._files.popitem(last=False)[1])
            self._files[start] = descriptor
            # Under the lock, so that the descriptor is not closed meanwhile; a pread takes
            # microseconds.
            return os.pread(descriptor, size, offset - start)


def _tag(data: bytes, at: int, size: int, topic: str) -> str:
    """The tag of the record at this position, which has a tag code. Raises CorruptRecordError.

    Properties end the record, so the last match is the tag, unless it is in a body or a value,
    which the bytes before it show.
    """
    if data[at + SYS_FLAG_BYTE_AT] & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
        return ""
    end = at + size
    found = data.rfind(_TAG_NAME, at, end)
    if found < 0:
        return ""
    # A delayed message may have no tag: its tag code is the due time.
    if topic == SCHEDULE_TOPIC or not data.startswith(_ITEM_END, found - 1):
        begin = at + locate(data, at).properties_at
        if found != begin:
            return decode_properties(data[begin:end].decode()).get(TAGS, "")
    stop = data.find(_ITEM_END, found, end)
    return data[found + len(_TAG_NAME) : end if stop < 0 else stop].decode()
