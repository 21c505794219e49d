"""An index file: message keys to physical offsets, a hash table with chains, in one file.

| part    | at                   | size | type | field                                            |
|---------|---------------------:|-----:|------|--------------------------------------------------|
| header  |                    0 |    8 | i64  | begin_ms: store time of the first entry          |
|         |                    8 |    8 | i64  | end_ms: store time of the last entry             |
|         |                   16 |    8 | i64  | begin_offset: physical offset of the first entry |
|         |                   24 |    8 | i64  | end_offset: physical offset of the last entry    |
|         |                   32 |    4 | i32  | slots_used                                       |
|         |                   36 |    4 | i32  | next_entry: number of the next entry, from 1     |
| slot s  |           40 + 4 * s |    4 | i32  | number of the newest entry of the slot, 0: none  |
| entry e | 40 + 4 * S + 20 * e  |    4 | i32  | key_hash, 0 or above                             |
|         |                  + 4 |    8 | i64  | physical_offset                                  |
|         |                 + 12 |    4 | i32  | seconds: whole seconds after begin_ms            |
|         |                 + 16 |    4 | i32  | previous entry of the slot, 0: none              |

Big-endian. S slots, N entries; number 0 is never used, so a file has room for N - 1. The hashed key
is `topic#key`, and from RocketMQ 5.5 on also `topic#T#tag`. The slot is the hash modulo S. A file
is named by the local time of its creation, as yyyyMMddHHmmssSSS. Source: RocketMQ 5, classes
IndexFile, IndexHeader and IndexService.
"""

from __future__ import annotations

import struct
import time
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from migration.formats.unit import entries_in
from store.format import is_mark

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path
    from typing import BinaryIO

#: Directory of index files in the root of a store.
INDEX_DIRECTORY = "index"
HEADER_SIZE = 40
SLOT_SIZE = 4
ENTRY_SIZE = 20
#: RocketMQ maxHashSlotNum and maxIndexNum.
SLOTS_PER_FILE = 5_000_000
ENTRIES_PER_FILE = 20_000_000
MAX_SECONDS = 0x7FFFFFFF

HEADER = struct.Struct(">qqqqii")
assert HEADER.size == HEADER_SIZE
ENTRY = struct.Struct(">iqii")
assert ENTRY.size == ENTRY_SIZE
ENTRY_DTYPE = np.dtype(
    [
        ("key_hash", ">i4"),
        ("physical_offset", ">i8"),
        ("seconds", ">i4"),
        ("previous", ">i4"),
    ]
)
assert ENTRY_DTYPE.itemsize == ENTRY_SIZE
SLOT_DTYPE = np.dtype(">i4")

IntArray = npt.NDArray[np.int64]
_NAME_DIGITS = 17


class IndexLayout(NamedTuple):
    """Sizes of an index file, equal for all files of a store."""

    slots: int = SLOTS_PER_FILE
    entries: int = ENTRIES_PER_FILE

    @property
    def file_bytes(self) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.slots + ENTRY_SIZE * self.entries

    def slot_position(self, slot: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * slot

    def entry_position(self, number: int) -> int:
        return HEADER_SIZE + SLOT_SIZE * self.slots + ENTRY_SIZE * number


def index_key(topic: str, key: str) -> str:
    """The text that is hashed for a key of a message. The key of a batch has no topic."""
    return f"#{key}" if is_mark(key) else f"{topic}#{key}"


def tag_as_key(tag: str) -> str:
    """The key under which RocketMQ indexes a tag from 5.5 on, after the message's keys."""
    return f"T#{tag}"


def _powers_of_31(count: int) -> npt.NDArray[np.uint32]:
    """31**n modulo 2**32 for n below `count`, as Java's hashes overflow."""
    powers = np.ones(count, dtype=np.uint32)
    for n in range(1, count):
        powers[n] = int(powers[n - 1]) * 31 & 0xFFFFFFFF
    return powers


_POWERS = _powers_of_31(512)


def key_hashes(keys: Sequence[str]) -> IntArray:
    """Key hash of each string: the absolute value of Java's string hash; 0 for -2**31.

    Computed for all strings together, because a loop over characters would take longer than the
    rest of a dispatch.
    """
    hashes = np.zeros(len(keys), dtype=np.int64)
    text = "".join(keys)
    if text.isascii():
        units = np.frombuffer(text.encode(), dtype=np.uint8)
        lengths = np.fromiter(map(len, keys), dtype=np.int64, count=len(keys))
    else:  # Java counts UTF-16 units, two for what lies beyond the basic plane
        encoded = [key.encode("utf-16-be", "surrogatepass") for key in keys]
        units = np.frombuffer(b"".join(encoded), dtype=">u2")
        lengths = np.fromiter(map(len, encoded), dtype=np.int64, count=len(keys)) // 2
    filled = np.flatnonzero(lengths)
    if not filled.size:
        return hashes
    ends = np.cumsum(lengths)
    longest = int(lengths.max())
    powers = _POWERS if longest <= len(_POWERS) else _powers_of_31(longest)
    terms = powers[np.repeat(ends - 1, lengths) - np.arange(len(units))]
    terms *= units
    sums = np.add.reduceat(terms, (ends - lengths)[filled], dtype=np.uint32)
    absolute = np.abs(sums.view(np.int32).astype(np.int64))
    # Java: abs of the smallest int is itself, negative, and is replaced by 0.
    hashes[filled] = np.where(absolute > MAX_SECONDS, 0, absolute)
    return hashes


def parse_index_name(name: str) -> int | None:
    """The name as a number; None if it is not the name of an index file."""
    if len(name) != _NAME_DIGITS or not (name.isascii() and name.isdigit()):
        return None
    return int(name)


def index_name(now_ms: int, after: str | None) -> str:
    """Name of a file created now. Sorts after `after`, even if the clock was set back."""
    seconds, millis = divmod(now_ms, 1000)
    name = time.strftime("%Y%m%d%H%M%S", time.localtime(seconds)) + f"{millis:03d}"
    if after is not None and name <= after:
        return f"{int(after) + 1:017d}"
    return name


def index_files_in(directory: Path) -> list[Path]:
    """Files named like index files, oldest first."""
    return [path for path in entries_in(directory) if parse_index_name(path.name) is not None]


def read_entries(
    file: BinaryIO, layout: IndexLayout, next_entry: int, count: int
) -> Iterator[tuple[int, npt.NDArray[np.void]]]:
    """Yield the entries of an open index file below number `next_entry`, `count` at a time, as
    (number of the first, entries); fewer if the file is cut short."""
    file.seek(layout.entry_position(1))
    for first in range(1, next_entry, count):
        wanted = min(count, next_entry - first)
        data = file.read(wanted * ENTRY_SIZE)
        yield first, np.frombuffer(data, dtype=ENTRY_DTYPE, count=len(data) // ENTRY_SIZE)
        if len(data) < wanted * ENTRY_SIZE:
            return
