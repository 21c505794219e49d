"""The unit of a file consume queue, and the names of its files.

| at | size | type | field           | meaning                                                |
|---:|-----:|------|-----------------|--------------------------------------------------------|
|  0 |    8 | i64  | physical_offset | start of the record in the commit log, bytes           |
|  8 |    4 | i32  | record_size     | the whole record, bytes, above 0                       |
| 12 |    8 | i64  | tag_code        | hash of the tag, 0 for none; due time (ms) if delayed  |

Big-endian, no padding, 20 bytes. No checksum: a unit is derived from its record. A file holds a
fixed number of units, and has its full size from its creation; unwritten bytes are zero. Its name
is the byte offset of its first unit in the whole queue, as 20 digits.

A *blank* unit is (0, 0x7FFFFFFF, 0). It fills a file up to the first unit of a queue whose
earlier messages are gone. An *end mark* is (0, 1, 0), and only kvcq writes it: when a truncation
removes all units of a queue, it is put where the last unit was, so that the queue's offsets
continue. RocketMQ treats it as the unit of an expired record. Blank units, end marks and zero
units are not valid units.

Source: RocketMQ 5, classes ConsumeQueue and DefaultMappedFile.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

#: Directory of queues in the root of a store; below it `<topic>/<queue id>/`.
QUEUE_DIRECTORY = "consumequeue"
UNIT_SIZE = 20
#: RocketMQ mappedFileSizeConsumeQueue / 20.
UNITS_PER_FILE = 300_000
BLANK_SIZE = 0x7FFFFFFF
END_MARK_SIZE = 1  # smaller than any record

UNIT_DTYPE = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("tag_code", ">i8"),
    ]
)
assert UNIT_DTYPE.itemsize == UNIT_SIZE

_UNIT = struct.Struct(">qiq")
assert _UNIT.size == UNIT_SIZE

END_MARK = _UNIT.pack(0, END_MARK_SIZE, 0)
BLANK_UNIT = _UNIT.pack(0, BLANK_SIZE, 0)

#: Units as a structured array of UNIT_DTYPE.
UnitArray = npt.NDArray[np.void]
BoolArray = npt.NDArray[np.bool_]

_NAME_DIGITS = 20
#: Units of one read: 1.25 MiB.
_CHUNK_UNITS = 65_536


def pack_units(fields: Sequence[int]) -> bytes:
    """Units as bytes; `fields` is flat: offset, size, tag code, offset, size, tag code, ..."""
    return struct.pack(">" + "qiq" * (len(fields) // 3), *fields)


def unpack_units(data: bytes) -> UnitArray:
    """A read-only view of whole units; a trailing partial unit is ignored."""
    return np.frombuffer(data, dtype=UNIT_DTYPE, count=len(data) // UNIT_SIZE)


def valid_units(units: UnitArray) -> BoolArray:
    """Which of `units` can refer to a record: not zeros, blanks, end marks, or negative values."""
    sizes = units["record_size"]
    return np.asarray(
        (units["physical_offset"] >= 0) & (sizes > END_MARK_SIZE) & (sizes != BLANK_SIZE),
        dtype=np.bool_,
    )


def unpack_unit(data: bytes) -> tuple[int, int, int] | None:
    """Physical offset, size and tag code of one unit; None if it is invalid."""
    if len(data) < UNIT_SIZE:
        return None
    physical_offset, record_size, tag_code = _UNIT.unpack_from(data)
    if physical_offset < 0 or record_size <= END_MARK_SIZE or record_size == BLANK_SIZE:
        return None
    return physical_offset, record_size, tag_code


def file_name(start_bytes: int) -> str:
    """Name of the file that begins `start_bytes` into its queue."""
    return f"{start_bytes:020d}"


def parse_file_name(name: str) -> int | None:
    """Byte offset at which a file begins; None if the name is not that of a queue file."""
    if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    return int(name)


def parse_queue_id(name: str) -> int | None:
    """Queue id of a directory; None for a foreign directory."""
    if not (name.isascii() and name.isdigit()) or (len(name) > 1 and name[0] == "0"):
        return None
    return int(name)


def entries_in(directory: Path) -> list[Path]:
    """The entries of a directory, by name; empty if it does not exist."""
    try:
        return sorted(directory.iterdir())
    except (FileNotFoundError, NotADirectoryError):
        return []


def queues_in(directory: Path) -> Iterator[tuple[str, int, Path]]:
    """Yield topic, queue id and directory of each queue, by name. Skips anything that is not a
    queue."""
    for topic in entries_in(directory):
        for queue in entries_in(topic):
            queue_id = parse_queue_id(queue.name)
            if queue_id is not None and queue.is_dir():
                yield topic.name, queue_id, queue


def files_in(queue: Path) -> Iterator[tuple[int, Path]]:
    """Yield the start in bytes and the path of each file of a queue, ascending. Foreign names are
    left out."""
    for path in entries_in(queue):
        start = parse_file_name(path.name)
        if start is not None:
            yield start, path


def units_in(
    path: Path, skipped: int = 0, *, at_once: int = _CHUNK_UNITS
) -> Iterator[tuple[int, UnitArray]]:
    """Yield chunks of the units of a file, valid or not, after the first `skipped`: number of the
    first unit, units. Raises OSError."""
    with path.open("rb") as file:
        file.seek(skipped * UNIT_SIZE)
        while len(units := unpack_units(file.read(at_once * UNIT_SIZE))):
            yield skipped, units
            skipped += len(units)
