"""The frames in which RocksDB writes its manifest and its write-ahead log.

A file is a run of blocks of 32 KiB, a block a run of frames; the last bytes of a block that cannot
hold a header are zero. No frame reaches beyond its block: a longer record is cut into several.

| at | size | type | field    | meaning                                              |
|---:|-----:|------|----------|------------------------------------------------------|
|  0 |    4 | u32  | checksum | masked CRC-32C of type and payload                   |
|  4 |    2 | u16  | length   | L, of the payload                                    |
|  6 |    1 | u8   | type     | 1 a whole record; 2, 3, 4 its first, middle, last part |
|  7 |    L |      | payload  |                                                      |

Little-endian. RocksDB reads a frame that seems to end behind its file, and one of a type that only
files written over an older one have, as the torn end that a crash leaves, and drops it and what
follows. One turned bit is enough for that. So frames that do not verify are looked at again here:
where turning back one bit of the header makes all of it whole, nothing was torn.

A power loss leaves more than torn ends: where the length of a file reached the disk and a page of
it did not, the page reads as zeros, and pages behind it may be there. RocksDB takes such a hole for
damage, or steps over it without a word when a frame begins where it does.

Source: RocksDB 10, its log format.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple

from kvcq.engine.rocks.checksum import crc32c

if TYPE_CHECKING:
    from collections.abc import Iterator

BLOCK_BYTES = 32 << 10
#: What a disk writes whole or not at all.
SECTOR_BYTES = 512

_HEADER = struct.Struct("<IHB")
assert _HEADER.size == 7

WHOLE, FIRST, MIDDLE, LAST = 1, 2, 3, 4
_TYPES = frozenset((WHOLE, FIRST, MIDDLE, LAST))

_MASK_DELTA = 0xA282EAD8


class Frame(NamedTuple):
    """One frame that verifies; `end` is its position in the file, exclusive."""

    type: int
    payload: bytes
    end: int


class TurnedBitError(Exception):
    """A frame is whole but for one bit of its header."""


def read_frames(data: bytes, start: int = 0) -> Iterator[Frame]:
    """The frames of `data`, which lies at position `start` of its file, where a frame begins.

    Ends at the first frame that is not whole: after a crash the last one may be torn.
    Raises TurnedBitError where it is not torn but damaged.
    """
    at = 0
    while True:
        at, left = _frame_at(at, start)
        room = min(left, len(data) - at) - _HEADER.size
        if room < 0:
            return
        checksum, length, kind = _HEADER.unpack_from(data, at)
        body = at + _HEADER.size
        if not _fits(data, body, room, checksum, length, kind):
            if _is_one_bit_off(data, body, room, checksum, length, kind):
                raise TurnedBitError(f"a turned bit in the header at position {start + at}")
            return
        at = body + length
        yield Frame(kind, data[body:at], start + at)


def has_hole(data: bytes, at: int, durable: int) -> bool:
    """Whether the frame at `at` is not whole because the disk never had a part of it.

    That part is a sector of zeros, of which the frame may begin within. `data` is all of the file,
    `durable` so many bytes of it that were on the disk: their zeros are no hole.
    """
    at, left = _frame_at(at, 0)
    end = min(at + left, len(data))
    if end - at >= _HEADER.size:
        _, length, kind = _HEADER.unpack_from(data, at)
        if kind in _TYPES:
            end = min(end, at + _HEADER.size + length)
    first = max(at, durable)
    while first < end:
        border = first - first % SECTOR_BYTES + SECTOR_BYTES
        if not any(data[first:border]):
            return True
        first = border
    return False


def _frame_at(at: int, start: int) -> tuple[int, int]:
    """Where the frame behind `at` begins, and how much of its block is left there."""
    left = BLOCK_BYTES - (start + at) % BLOCK_BYTES
    return (at, left) if left >= _HEADER.size else (at + left, BLOCK_BYTES)


def _fits(data: bytes, body: int, room: int, checksum: int, length: int, kind: int) -> bool:
    return kind in _TYPES and length <= room and _checksum(data, body, length, kind) == checksum


def _checksum(data: bytes, body: int, length: int, kind: int) -> int:
    crc = crc32c(data[body : body + length], crc32c(bytes((kind,))))
    return (((crc >> 15) | (crc << 17)) + _MASK_DELTA) & 0xFFFFFFFF


def _is_one_bit_off(
    data: bytes, body: int, room: int, checksum: int, length: int, kind: int
) -> bool:
    if any(_fits(data, body, room, checksum, length ^ 1 << bit, kind) for bit in range(16)):
        return True
    if any(_fits(data, body, room, checksum, length, kind ^ 1 << bit) for bit in range(8)):
        return True
    if kind not in _TYPES or length > room:
        return False
    return (_checksum(data, body, length, kind) ^ checksum).bit_count() == 1
