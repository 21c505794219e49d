"""The `checkpoint` file: up to when which kind of data is durable.

| at | size | type | field                 | meaning                                               |
|---:|-----:|------|-----------------------|-------------------------------------------------------|
|  0 |    8 | i64  | log_time_ms           | store time of the last flushed record, ms since 1970  |
|  8 |    8 | i64  | queue_time_ms         | store time of the last record with a durable unit     |
| 16 |    8 | i64  | index_time_ms         | end time of the last full index file that is durable  |
| 24 |    8 | i64  | master_flushed_offset | 0: there is no replication                            |
| 32 |    8 | i64  | confirmed_offset      | start of the last record as recovery found it; 0: ?   |
| 40 |    8 | i64  | flushed_offset        | physical end of what is durable; 0: RocketMQ wrote it |
| 48 |    4 | u32  | crc                   | CRC-32 of the 48 bytes before; 0: RocketMQ wrote it   |
| 52 | 4044 |      | (zero)                |                                                       |

Big-endian, 4096 bytes. Source: RocketMQ 5, StoreCheckpoint; it reads and writes the first 40 bytes
only, so the last two are nothing to it. A file it changed in place after we wrote it fails the CRC
and is then treated as damaged: the scan takes longer, nothing else.

Only durable values may go in (RocketMQ advances queue_time_ms when a unit is written, which may be
long before its fsync). The file is replaced by renaming, not changed in place: so no assumption is
made about how much of a block the disk writes in one piece, and a reader never sees half of it.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, NamedTuple

from store.base import write_file
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

CHECKPOINT_BYTES = 4096
_FIELDS = struct.Struct(
    ">"
    "q"  # log_time_ms
    "q"  # queue_time_ms
    "q"  # index_time_ms
    "q"  # master_flushed_offset
    "q"  # confirmed_offset
    "q"  # flushed_offset
)
_CRC = struct.Struct(">I")
_USED_BYTES = _FIELDS.size + _CRC.size
assert (_FIELDS.size, _USED_BYTES) == (48, 52)

#: A record is stamped before it is appended, so times may be this far out of order (RocketMQ).
_MARGIN_MS = 3000


class Checkpoint(NamedTuple):
    """Values of the checkpoint file; all 0 or more."""

    log_time_ms: int = 0
    queue_time_ms: int = 0
    index_time_ms: int = 0
    master_flushed_offset: int = 0
    confirmed_offset: int = 0
    flushed_offset: int = 0  # 0 in a file that RocketMQ wrote

    @property
    def min_time_ms(self) -> int:
        """Everything stored before this is durable, in the log and in the queues."""
        return max(0, min(self.log_time_ms, self.queue_time_ms) - _MARGIN_MS)


def pack_checkpoint(checkpoint: Checkpoint) -> bytes:
    fields = _FIELDS.pack(*checkpoint)
    return (fields + _CRC.pack(zlib.crc32(fields))).ljust(CHECKPOINT_BYTES, b"\0")


def unpack_checkpoint(path: Path, data: bytes) -> Checkpoint:
    """Inverse of pack_checkpoint, or of RocketMQ's. Raises StoreFormatError, naming `path`."""
    if len(data) != CHECKPOINT_BYTES:
        raise StoreFormatError(path, f"has {len(data)} bytes, a checkpoint has {CHECKPOINT_BYTES}")
    fields = data[: _FIELDS.size]
    (crc,) = _CRC.unpack_from(data, _FIELDS.size)
    if crc not in (0, zlib.crc32(fields)):
        raise StoreFormatError(path, "a damaged checkpoint: its CRC does not fit")
    if data.count(0, _USED_BYTES) != CHECKPOINT_BYTES - _USED_BYTES:
        raise StoreFormatError(path, "a damaged checkpoint: its tail is not zero")
    checkpoint = Checkpoint(*_FIELDS.unpack(fields))
    for name, value in checkpoint._asdict().items():
        if value < 0:
            raise StoreFormatError(path, f"a damaged checkpoint: {name} is {value}")
    return checkpoint


def read_checkpoint(path: Path) -> Checkpoint | None:
    """What `path` holds; None when there is no such file.

    Raises StoreFormatError when it is damaged. It only shortens recovery: the caller may go on
    as if there were none.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return unpack_checkpoint(path, data)


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """`path` holds `checkpoint`, durably; after a crash, that or what it held before."""
    write_file(path, pack_checkpoint(checkpoint))
