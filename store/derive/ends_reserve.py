"""Room that is kept for the ends of queues, for when the disk is full.

Segments go only after `meta/` has noted which queues end in them, and where the log begins then. On
a full disk it takes nothing, so nothing would go that would end the full disk. The file `ends` has
its blocks since there was room: notes are written into them in its stead, and moved to it later.
The file is a run of parts, one for each removal, and zeros behind them:

| at | size | type | field   | meaning                                                            |
|---:|-----:|------|---------|--------------------------------------------------------------------|
|  0 |    4 | u32  | length  | L, of the payload                                                  |
|  4 |    4 | u32  | crc     | CRC-32 of the payload                                              |
|  8 |    L |      | payload | lines under gzip: where the log begins, then pages of last units,  |
|    |      |      |         | a JSON list of [topic, queue id, queue offset, physical offset]    |

Big-endian. A part that does not verify is the end: its removal had not begun.
"""

from __future__ import annotations

import gzip
import json
import os
import struct
import zlib
from contextlib import suppress
from io import BytesIO
from typing import TYPE_CHECKING

from store.base import telling_of_full_disk
from store.consume_queue import LastUnit
from store.log import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_HEADER = struct.Struct(
    ">"
    "I"  # length
    "I"  # crc
)
assert _HEADER.size == 8

#: Of the length of a segment. A unit takes about 10 bytes here: of a segment of 1 GiB the ends of
#: three million queues have room.
_SHARE = 32
_PAGE_BYTES = 4096


class EndsReserve:
    """The file at `path`, which need not be there. Thread: one at a time."""

    def __init__(self, path: Path, segment_bytes: int) -> None:
        """Looks at nothing yet."""
        # Constant after construction.
        self._path = path
        self._size = max(_PAGE_BYTES, segment_bytes // _SHARE // _PAGE_BYTES * _PAGE_BYTES)
        self._is_prepared = False  # set once

    def prepare(self) -> None:
        """The file is there, with all its blocks. Raises DiskFullError, OSError."""
        if self._is_prepared:
            return
        if not self._path.exists():
            Segment.create(self._path, 0, self._size).close()
        with telling_of_full_disk(self._path, self._size), self._path.open("r+b") as file:
            os.posix_fallocate(file.fileno(), 0, self._size)  # a copy may be sparse
            os.fsync(file.fileno())
        self._is_prepared = True

    @property
    def log_start(self) -> int | None:
        """Where the log begins behind the last removal; None when nothing is noted."""
        start = None
        for lines, _ in self._parts():
            start = int(lines.readline())
        return start

    def pages(self) -> Iterator[list[LastUnit]]:
        """The last units, in the order they were noted in."""
        for lines, _ in self._parts():
            lines.readline()
            for line in lines:
                yield [LastUnit(*unit) for unit in json.loads(line)]

    def add(self, log_start: int, pages: Iterable[list[LastUnit]]) -> bool:
        """Note them behind what is there; False when there is no room. Durable on return.

        Raises OSError.
        """
        if not self._is_prepared:
            return False
        at = self._end
        packed = BytesIO(bytes(_HEADER.size))
        packed.seek(_HEADER.size)
        with gzip.GzipFile(fileobj=packed, mode="wb", compresslevel=6) as lines:
            lines.write(b"%d\n" % log_start)
            for page in pages:
                lines.write(json.dumps(page).encode() + b"\n")
                if at + packed.tell() > self._size:
                    return False
        payload = packed.getbuffer()[_HEADER.size :]
        if at + len(packed.getbuffer()) > self._size:
            return False
        _HEADER.pack_into(packed.getbuffer(), 0, len(payload), zlib.crc32(payload))
        self._write(at, packed.getbuffer())
        return True

    def clear(self) -> None:
        """Nothing is noted, durably. Raises OSError."""
        self._write(0, memoryview(bytes(self._end)))

    @property
    def _end(self) -> int:
        """Where the next part goes."""
        return max((end for _, end in self._parts()), default=0)

    def _parts(self) -> Iterator[tuple[gzip.GzipFile, int]]:
        """The lines of each part, and where it ends."""
        with suppress(FileNotFoundError), self._path.open("rb") as file:
            while len(header := file.read(_HEADER.size)) == _HEADER.size:
                length, crc = _HEADER.unpack(header)
                if not 0 < length <= self._size:
                    return
                payload = file.read(length)
                if zlib.crc32(payload) != crc:
                    return
                yield gzip.GzipFile(fileobj=BytesIO(payload)), file.tell()

    def _write(self, at: int, data: memoryview) -> None:
        with self._path.open("r+b", buffering=0) as file:
            file.seek(at)
            while data:
                data = data[file.write(data) :]
            os.fsync(file.fileno())
