"""The raw probe of a store: the same bytes with nothing around them, which is what one core stores.

No lock, no thread, no look-up, and nothing that would hold after a crash.
"""

from __future__ import annotations

import os
import struct
from collections import deque
from itertools import starmap
from typing import TYPE_CHECKING, Self

from rocksdict import Options, Rdict, WriteBatch, WriteOptions
from zlib_ng.zlib_ng import crc32

from kvcq.tables.keys import BOUNDS, DISPATCHED_KEY, pack_i64, queue_keys

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

_HEADER = struct.Struct(">iiiiiqqiq8sq8siqi")
_UNIT = struct.Struct(">qiqqi")
_HOST = b"\x7f\0\0\1\0\0\x1f\x91"
_CRC_ITEM = 20
_MAGIC = -626843481
#: Of all records of one batch; and of the file, at a time.
_BATCH_BYTES, _STEP_BYTES = 4 << 20, 64 << 20


class BareStore:
    """Packs records with their CRC item, writes them to a file, and the rows of their units.

    The file has its space beforehand. A write of a batch does not clear its pages first, as an
    mmap does.
    """

    def __init__(
        self,
        root: Path,
        queues: Sequence[tuple[str, int]],
        light_queues: Sequence[str] = (),
    ) -> None:
        """The queues' keys are made here, so that their names cost nothing later."""
        root.mkdir(parents=True)
        self._file = (root / "log").open("w+b")
        self._allocated = 0
        self._buffer = memoryview(bytearray(_BATCH_BYTES))
        options = Options(raw_mode=True)
        options.create_missing_column_families(True)
        families = {BOUNDS: Options(raw_mode=True)}
        self._db = Rdict(str(root / "db"), options, column_families=families)
        self._bounds = self._db.get_column_family_handle(BOUNDS)
        self._options = WriteOptions()
        # A property; the binding's stub says method.
        setattr(self._options, "disable_wal", True)  # noqa: B010
        self._queues: list[tuple[bytes, bytes, int, bytes]] = []
        self._next: list[int] = []
        self.add_queues(queues)
        self._light_keys = [queue_keys(name, 0) for name in light_queues]
        self._light_names = [name.encode() for name in light_queues]
        self._light_next = [0] * len(light_queues)
        self._at = 0

    def add_queues(self, queues: Sequence[tuple[str, int]]) -> range:
        """Returns which they are."""
        first = len(self._queues)
        self._queues += [(*queue_keys(*queue), queue[1], _tail(queue[0])) for queue in queues]
        self._next += [0] * len(queues)
        return range(first, len(self._queues))

    def put(self, body: bytes, queues: Sequence[int], light: Sequence[slice] = ()) -> None:
        """One batch: a message to each of these queues, which may repeat; each stands in the light
        queues of its slice as well."""
        buffer, at, following = self._buffer, 0, self._next
        start = self._at
        units: list[tuple[bytes, bytes]] = []
        bounds: dict[bytes, bytes] = {}
        before = _HEADER.size + len(body)
        for number, queue in enumerate(queues):
            prefix, max_key, queue_id, tail = self._queues[queue]
            offset = following[queue]
            following[queue] = offset + 1
            if light:
                names = b",".join(self._light_names[light[number]])
                tail = tail[:-2] + (len(names) + _CRC_ITEM).to_bytes(2, "big") + names
            verified = before + len(tail)
            size = verified + _CRC_ITEM
            _HEADER.pack_into(
                buffer, at, size, _MAGIC, crc32(body) & 0x7FFFFFFF, queue_id, 0, offset, start + at,
                0, 1, _HOST, 1, _HOST, 0, 0, len(body),
            )  # fmt: skip
            buffer[at + _HEADER.size : at + before] = body
            end = at + verified
            buffer[at + before : end] = tail
            crc = crc32(buffer[at:end]) & 0x7FFFFFFF
            buffer[end : end + _CRC_ITEM] = b"__CRC32#\x01" + (b"\x02%010d" % crc)[::-1]
            value = _UNIT.pack(start + at, size, 0, 1, 1)
            place, packed = value[:8], pack_i64(offset)
            units.append((prefix + packed, value))
            bounds[max_key] = place + packed
            if light:
                self._light_rows(light[number], value, units, bounds)
            at += size
        if start + at > self._allocated:
            os.posix_fallocate(self._file.fileno(), self._allocated, _STEP_BYTES)
            self._allocated += _STEP_BYTES
        os.pwrite(self._file.fileno(), buffer[:at], start)
        self._at = start + at
        # As RocksDB takes them fastest.
        units.sort()
        bounds[DISPATCHED_KEY] = pack_i64(self._at)
        rows = WriteBatch(raw_mode=True)
        deque(starmap(rows.put, units), maxlen=0)
        rows.set_default_column_family(self._bounds)
        deque(starmap(rows.put, sorted(bounds.items())), maxlen=0)
        self._db.write(rows, self._options)

    def sync(self) -> None:
        """All records are on disk. Thread: any; puts may go on."""
        os.fdatasync(self._file.fileno())

    def _light_rows(
        self,
        part: slice,
        value: bytes,
        units: list[tuple[bytes, bytes]],
        bounds: dict[bytes, bytes],
    ) -> None:
        place, following = value[:8], self._light_next
        for queue, (prefix, max_key) in enumerate(self._light_keys[part], part.start):
            packed = pack_i64(following[queue])
            following[queue] += 1
            units.append((prefix + packed, value))
            bounds[max_key] = place + packed

    def read(self, first: int, count: int) -> bytes:
        """Records as they lie there, each body checked. Where all of them are equally long."""
        size = self._at // sum(self._next)
        records = os.pread(self._file.fileno(), count * size, first * size)
        bodies_of(records)
        return records

    def close(self) -> None:
        # It holds a handle, and the database is closed when there is none left.
        del self._bounds
        self._db.close()
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def bodies_of(records: bytes) -> list[bytes]:
    """Each checked against its CRC: the least that a reader of records does."""
    bodies = []
    at = 0
    while at < len(records):
        found = _HEADER.unpack_from(records, at)
        begin = at + _HEADER.size
        body = records[begin : begin + found[-1]]
        if crc32(body) & 0x7FFFFFFF != found[2]:
            raise ValueError(f"the body at {at} is damaged")
        bodies.append(body)
        at += found[0]
    return bodies


def _tail(topic: str) -> bytes:
    """What follows the body: the topic, and how many bytes of properties."""
    data = topic.encode()
    return bytes([len(data)]) + data + _CRC_ITEM.to_bytes(2, "big")
