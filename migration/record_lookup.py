"""Single records of a log by physical offset, read from the segment files.

What the file queues need of the log while they are being opened (their index is cut by store
times) and when they are read (their units carry no store time). Reads with pread, so that a cold
page never holds up other threads; needs no open log. Nothing is trusted: a record must say itself
that it lies there.
"""

from __future__ import annotations

import os
import struct
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from store.errors import CorruptRecordError
from store.record import (
    BORN_HOST_V6,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    Found,
    check_record,
    dispatch_request,
)
from store.segment import segment_name

if TYPE_CHECKING:
    from pathlib import Path

    from store.consume_queue import DispatchRequest

_OPEN_SEGMENTS = 32
# record_size, magic, physical_offset, sys_flag, born_time, and both places of the store time
_HEAD = struct.Struct(">ii20xqi8x8xq4xq")
_HEAD_BYTES = 76
assert _HEAD.size == _HEAD_BYTES


class RecordLookup:
    """Thread: any. Locks: `_lock` for the table of open files, held while one is opened."""

    def __init__(self, commitlog: Path, segment_bytes: int) -> None:
        # Constant after construction.
        self._commitlog = commitlog
        self._segment_bytes = segment_bytes
        self._lock = threading.Lock()
        # Guarded by _lock; the least recently used file first.
        self._files: OrderedDict[int, int] = OrderedDict()

    def store_time_ms(self, physical_offset: int) -> int | None:
        """Store time of the record there; None when there is none."""
        head = self._read(physical_offset, _HEAD_BYTES)
        if len(head) < _HEAD_BYTES:
            return None
        size, magic, found, sys_flag, v4_ms, v6_ms = _HEAD.unpack(head)
        if magic not in (MAGIC_V1, MAGIC_V2) or found != physical_offset or size < MIN_RECORD_BYTES:
            return None
        time_ms: int = v6_ms if sys_flag & BORN_HOST_V6 else v4_ms
        return time_ms

    def record_keys(self, physical_offset: int) -> tuple[str, tuple[str, ...]] | None:
        """Topic and keys of the record there; None when there is none."""
        request = self.request(physical_offset)
        return None if request is None else (request.topic, request.keys)

    def request(self, physical_offset: int) -> DispatchRequest | None:
        """What is derived from the record there; None when no whole one is."""
        head = self._read(physical_offset, 8)
        size = int.from_bytes(head[:4], "big", signed=True)
        if len(head) < 8 or not MIN_RECORD_BYTES <= size <= self._segment_bytes:
            return None
        data = self._read(physical_offset, size)
        if check_record(data, 0, len(data), physical_offset).found is not Found.RECORD:
            return None
        try:
            return dispatch_request(data, 0)
        except CorruptRecordError:
            return None

    def forget_below(self, log_start: int) -> None:
        """Let go of segments that were dropped: an open file would keep its space."""
        with self._lock:
            for start in [each for each in self._files if each + self._segment_bytes <= log_start]:
                os.close(self._files.pop(start))

    def close(self) -> None:
        """Let go of all files. Repeatable; a later read opens them again."""
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
            # Under the lock, so that nobody closes it meanwhile: a pread is microseconds.
            return os.pread(descriptor, size, offset - start)
