"""Reads cold records, many with one read of a file: how far one read goes, and verification.

Used by the open log, and by other processes that read its files.
"""

from __future__ import annotations

import os
from bisect import bisect_left
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from store.errors import CorruptRecordError, MessageNotFoundError
from store.format import (
    CRC_ITEM_BYTES,
    CRC_MASK,
    PHYSICAL_OFFSET_AT,
    Found,
    Records,
    check_record,
    crc_item,
)
from store.log.record_columns import copy_records
from store.log.segment import segment_name

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

# A read takes this much at most, and goes over gaps of this much (a disk's read-ahead is 128 KiB:
# gaps within it cost nothing).
_READ_BYTES = 4 << 20
_GAP_BYTES = 32 << 10


def run_end(places: Sequence[tuple[int, int]], index: int, stop: int) -> int:
    """The end of one read from `places[index]` on, at most `stop`. It includes the following
    records that are close.

    A read for each record costs more than reading the gaps between them.
    """
    offset, size = places[index]
    end = offset + size
    stop = min(offset + _READ_BYTES, stop)
    for following, following_size in places[index + 1 :]:
        if not end <= following <= end + _GAP_BYTES or following + following_size > stop:
            break
        end = following + following_size
    return end


def verify(data: bytes, offset: int, size: int) -> None:
    """Raise CorruptRecordError unless `data` is the whole record at physical offset `offset`."""
    # The CRC item covers everything before it, so one pass is enough; records of others, which
    # may lack the item, get the full check.
    item_at = size - CRC_ITEM_BYTES
    if (
        data[item_at:] == crc_item(crc32(memoryview(data)[:item_at]) & CRC_MASK)
        and data[:4] == size.to_bytes(4, "big")
        and data[PHYSICAL_OFFSET_AT : PHYSICAL_OFFSET_AT + 8] == offset.to_bytes(8, "big")
    ):
        return
    checked = check_record(data, 0, len(data), offset)
    if checked.found is not Found.RECORD or checked.size != size:
        raise CorruptRecordError(offset, checked.reason or "not the record its unit describes")


def is_whole(data: bytes, offset: int, size: int) -> bool:
    """Whether `data` is the whole record at physical offset `offset`."""
    try:
        verify(data, offset, size)
    except CorruptRecordError:
        return False
    return True


class LogFiles:
    """The files of a log that another process has open. Read-only; no file stays open, so that the
    space of one that retention removes is freed."""

    def __init__(self, directory: Path, segment_bytes: int) -> None:
        self._directory = directory
        self._segment_bytes = segment_bytes

    def read_all(self, places: Sequence[tuple[int, int]]) -> Records:
        """Records at these (offset, size), in order, each verified like `CommitLog.read`.

        All or nothing: raises MessageNotFoundError if a file is gone, CorruptRecordError if bytes
        are not that record, OSError.
        """
        runs: list[Records] = []
        at = 0
        while at < len(places):
            run = self._read_run(places, at)
            runs.append(run)
            at += len(run)
        return Records.of_runs(runs)

    def _read_run(self, places: Sequence[tuple[int, int]], at: int) -> Records:
        """The records from `places[at]` on that one read returns."""
        base = places[at][0]
        start = base - base % self._segment_bytes
        end = run_end(places, at, start + self._segment_bytes)
        source = self._pread(start, base - start, end - base)
        run = places[at : max(at + 1, bisect_left(places, (end,), at))]
        copies, are_whole = copy_records(source, base, run)
        if not are_whole:
            for copy, (offset, size) in zip(copies, run, strict=True):
                verify(copy, offset, size)
        return copies

    def _pread(self, start: int, position: int, size: int) -> bytes:
        """Returns fewer bytes at the end of the file; such records do not verify."""
        try:
            file = os.open(self._directory / segment_name(start), os.O_RDONLY | os.O_CLOEXEC)
        except FileNotFoundError:
            raise _gone(start + position) from None
        try:
            data = os.pread(file, size, position)
            # A reader far behind continues from there: the disk reads while this is sent.
            os.posix_fadvise(file, position + size, _READ_BYTES, os.POSIX_FADV_WILLNEED)
            return data
        finally:
            os.close(file)


def _gone(offset: int) -> MessageNotFoundError:
    return MessageNotFoundError(str(offset), "its segment is gone")
