"""Walks from record to record through one segment, decoding as little as possible.

A record begins with its size, so a walk needs no index, but it must begin at a record. A reader
that begins inside a segment finds one with `find_record`. That is a guess, because a message body
may contain a copy of a whole record. It is verified afterwards: the reader of the previous range
must end exactly there, or the read fails (see decoder.py).
"""

from __future__ import annotations

import enum
import mmap
import struct
from typing import NamedTuple

import numpy as np

from migration.columnar.block import RecordBlock
from store.format import BLANK_BYTES, MAGIC_BLANK, MIN_RECORD_BYTES, Found, check_record

#: One whole segment.
Buffer = mmap.mmap | bytes

#: Records that a walk without an end checks together.
_STEP = 65_536
_SIZE = struct.Struct(">i")
_SIZE_AND_MAGIC = struct.Struct(">ii")
#: Both magic codes of records begin with these bytes.
_MAGIC_START = b"\xda\xa3\x20"


class Stop(enum.Enum):
    """Why a walk ended."""

    COUNT = "as many records as were asked for"
    LIMIT = "the end of the range"
    BLANK = "a blank record: the segment's end"
    NOTHING = "bytes that are no record"


class Walked(NamedTuple):
    """The records found, and the position in the segment at which the walk ended."""

    block: RecordBlock
    next_position: int
    stop: Stop


def walk(data: Buffer, base: int, begin: int, limit: int, count: int) -> Walked:
    """Up to `count` records that begin in begin..limit (end exclusive), positions in `data`.

    `base`: physical offset of data[0]. Every record is completely in `data`, contains its own
    position, and has consistent fields. CRCs are not checked here.
    """
    positions: list[int] = []
    add = positions.append
    size_at = _SIZE.unpack_from
    at = begin
    last = min(limit, len(data) - MIN_RECORD_BYTES + 1)
    # Only sizes. The rest is checked for all records together, which is cheaper.
    while at < last and len(positions) < count:
        (size,) = size_at(data, at)
        if size < MIN_RECORD_BYTES:
            break
        add(at)
        at += size
    block = RecordBlock(
        np.frombuffer(data, dtype=np.uint8), base, np.array(positions, dtype=np.int64)
    )
    sound = block.count_sound()
    if sound < len(positions):
        at = positions[sound]
        return Walked(block.first(sound), at, stop_at(data, at))
    if at >= limit:
        return Walked(block, at, Stop.LIMIT)
    if len(positions) == count:
        return Walked(block, at, Stop.COUNT)
    return Walked(block, at, stop_at(data, at))


def walk_to(data: Buffer, base: int, begin: int, limit: int) -> tuple[int, Stop]:
    """The position at which a walk over all records from `begin` on ends, and why."""
    while True:
        walked = walk(data, base, begin, limit, _STEP)
        begin = walked.next_position
        if walked.stop is not Stop.COUNT:
            return begin, walked.stop


def find_record(data: Buffer, base: int, begin: int, limit: int) -> int | None:
    """Position of the first record that begins in begin..limit, or None.

    A candidate must contain its own position, and its fields must be consistent.
    """
    view = memoryview(data)
    at = begin
    # Excludes the last byte, which cannot end a magic code: before Python 3.11.4 `find` of a
    # mapping reads the byte after the end.
    end = min(limit + 3 + len(_MAGIC_START), len(data) - 1)
    while True:
        at = data.find(_MAGIC_START, at + 4, end) - 4
        if at < 0:
            return None
        checked = check_record(view, at, len(data), base + at, verify_crc=False)
        if checked.found is Found.RECORD:
            return at
        at += 1


def stop_at(data: Buffer, at: int) -> Stop:
    """Why a walk ends at `at`, where there is no record."""
    if at + BLANK_BYTES > len(data):
        return Stop.NOTHING
    magic = _SIZE_AND_MAGIC.unpack_from(data, at)[1]
    return Stop.BLANK if magic == MAGIC_BLANK else Stop.NOTHING
