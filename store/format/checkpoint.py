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
and is then treated as damaged.

A store has two such files. `checkpoint` is replaced about once a second. `checkpoint.previous` is
replaced behind it, with the same values, each time the queues are flushed. When the first is lost
or damaged, the second still tells what is durable at least, but not how much more is.

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
    # In RocketMQ's checkpoint both of our own fields are 0.
    if any(data[_FIELDS.size - 8 : _USED_BYTES]) and _crc_in(data) != zlib.crc32(fields):
        raise StoreFormatError(path, "the checkpoint is damaged: its CRC does not match")
    if data.count(0, _USED_BYTES) != CHECKPOINT_BYTES - _USED_BYTES:
        raise StoreFormatError(path, "the checkpoint is damaged: its tail is not zero")
    checkpoint = Checkpoint(*_FIELDS.unpack(fields))
    for name, value in checkpoint._asdict().items():
        if value < 0:
            raise StoreFormatError(path, f"the checkpoint is damaged: {name} is {value}")
    return checkpoint


def read_checkpoint(path: Path) -> Checkpoint | None:
    """What `path` holds; None when there is no such file.

    Raises StoreFormatError when it is damaged.
    """
    try:
        data = path.read_bytes()
    except FileNotFoundError:
        return None
    return unpack_checkpoint(path, data)


class Noted(NamedTuple):
    """The combined content of a store's two checkpoint files."""

    checkpoint: Checkpoint | None  # None: neither can be read
    #: It was written last: so only what lies above its flushed offset can be torn by a power loss.
    #: Otherwise more was durable than it says, and bytes that are no record may be damage.
    is_newest: bool
    faults: tuple[StoreFormatError, ...]  # errors of files that are damaged or missing


def read_noted(newest: Path, previous: Path) -> Noted:
    """Read both checkpoint files of a store: what is known to be durable.

    A missing `previous` is normal: version 0.1 wrote none.
    """
    faults: list[StoreFormatError] = []
    first = _read_or_note(newest, faults)
    second = _read_or_note(previous, faults)
    if second is not None and not newest.exists():
        faults.append(StoreFormatError(newest, "is missing, though there is an older one"))
    # A broker's checkpoint does not show what this program flushed.
    is_newest = first is not None and _crc_in(newest.read_bytes()) != 0
    found = first if is_newest or second is None else second
    return Noted(found, is_newest, tuple(faults))


def _read_or_note(path: Path, faults: list[StoreFormatError]) -> Checkpoint | None:
    try:
        return read_checkpoint(path)
    except StoreFormatError as error:
        faults.append(error)
        return None


def _crc_in(data: bytes) -> int:
    """The CRC stored in a checkpoint file; 0 if RocketMQ wrote it."""
    found: int = _CRC.unpack_from(data, _FIELDS.size)[0]
    return found


def write_checkpoint(path: Path, checkpoint: Checkpoint) -> None:
    """Replace `path` with `checkpoint`, durably; after a crash it has the new or the old
    content."""
    write_file(path, pack_checkpoint(checkpoint))
