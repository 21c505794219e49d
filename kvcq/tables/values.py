"""Row values, one table for each family; keys are in keys.py.

Unit: where one message lies. 32 bytes; RocketMQ's 28 are read too.

| at | size | type | field           | meaning                                                  |
|---:|-----:|------|-----------------|----------------------------------------------------------|
|  0 |    8 | i64  | physical_offset | start of the record in the commit log, bytes             |
|  8 |    4 | i32  | record_size     | the whole record, bytes, above 0                         |
| 12 |    8 | i64  | tag_code        | hash of the tag, 0 for none; due time (ms) if delayed    |
| 20 |    8 | i64  | store_time_ms   | when it was appended, ms since 1970                      |
| 28 |    4 | i32  | expiry_stamp    | store time, whole seconds, *little-endian*               |

The stamp is what RocksDB's TTL filter looks at. It is capped at 2**31 - 1 (the year 2038).

`max` row of a queue: 16 bytes, i64 physical offset of its last record (its start), i64 queue
offset of it (inclusive). Checkpoint row: i64, end of what is dispatched. Deletions row: i64.
Index row: the expiry stamp alone, 4 bytes.

No checksums: RocksDB has its own over every block, and all rows are derived from records.
Source of unit, `max` and checkpoint: RocketMQ 5, RocksDBConsumeQueueTable and
RocksDBConsumeQueueOffsetTable.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

import numpy as np

from kvcq.errors import CorruptValueError
from store.consume_queue import CqUnit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

UNIT_SIZE = 32
ROCKETMQ_UNIT_SIZE = 28

_UNIT_FIELDS = struct.Struct(
    ">"
    "q"  # physical_offset
    "i"  # record_size
    "q"  # tag_code
    "q"  # store_time_ms
)
_UNIT = struct.Struct(">qiqq4x")
_PLACE = struct.Struct(">qi20x")
_STAMP = struct.Struct("<i")
_MAX = struct.Struct(">qq")
_MAX_OFFSET = struct.Struct(">8xq")
_I64 = struct.Struct(">q")
assert _UNIT_FIELDS.size == ROCKETMQ_UNIT_SIZE
assert _UNIT.size == _PLACE.size == UNIT_SIZE
#: The same units for numpy.
UNIT_DTYPE = np.dtype(
    [
        ("physical_offset", ">i8"),
        ("record_size", ">i4"),
        ("tag_code", ">i8"),
        ("store_time_ms", ">i8"),
        ("expiry_stamp", "<i4"),
    ]
)
assert UNIT_DTYPE.itemsize == UNIT_SIZE

_LAST_STAMP = (1 << 31) - 1

#: A unit's fields and its `expiry_stamp`, which is bytes already, to the 32 bytes of its value.
pack_stamped_unit = struct.Struct(">qiqq4s").pack
pack_max = _MAX.pack


def expiry_stamp(store_time_ms: int) -> bytes:
    """The 4 bytes at the end of a unit and of an index row."""
    return _STAMP.pack(min(max(store_time_ms // 1000, 0), _LAST_STAMP))


def expiry_stamps(store_times_ms: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """The numbers that `expiry_stamp` packs, of many."""
    return np.clip(store_times_ms // 1000, 0, _LAST_STAMP)


def unpack_unit(value: bytes) -> CqUnit:
    """The unit of a value; also takes RocketMQ's 28 bytes. Raises CorruptValueError."""
    if len(value) not in (UNIT_SIZE, ROCKETMQ_UNIT_SIZE):
        raise CorruptValueError(f"a unit of {len(value)} bytes, not {UNIT_SIZE}")
    unit = CqUnit(*_UNIT_FIELDS.unpack_from(value))
    if unit.physical_offset < 0 or unit.record_size <= 0:
        raise CorruptValueError(f"impossible {unit}")
    return unit


def unpack_units(values: Sequence[bytes]) -> list[CqUnit]:
    """Many units at once. Raises CorruptValueError."""
    joined = b"".join(values)
    if len(joined) != UNIT_SIZE * len(values):
        return [unpack_unit(value) for value in values]  # some are of RocketMQ's form
    new = tuple.__new__
    units: list[CqUnit] = [new(CqUnit, fields) for fields in _UNIT.iter_unpack(joined)]
    for unit in units:
        if unit[0] < 0 or unit[1] <= 0:
            raise CorruptValueError(f"impossible {unit}")
    return units


def unpack_places(values: Sequence[bytes]) -> list[tuple[int, int]]:
    """Physical offset and size of many units. Raises CorruptValueError."""
    joined = b"".join(values)
    if len(joined) == UNIT_SIZE * len(values):
        places: list[tuple[int, int]] = list(_PLACE.iter_unpack(joined))
        if min(places, default=(0, 0))[0] >= 0 and min([size for _, size in places], default=1) > 0:
            return places
    return [(unit.physical_offset, unit.record_size) for unit in unpack_units(values)]


def unpack_max(value: bytes) -> tuple[int, int]:
    """Physical offset and queue offset of a queue's last unit. Raises CorruptValueError."""
    if len(value) != _MAX.size:
        raise CorruptValueError(f"a max row of {len(value)} bytes, not {_MAX.size}")
    physical_offset, queue_offset = _MAX.unpack(value)
    return physical_offset, queue_offset


def next_offsets_of(rows: Sequence[bytes | None]) -> list[int]:
    """The offset after the last unit of each `max` row; 0 without a row.

    Raises CorruptValueError.
    """
    unpack = _MAX_OFFSET.unpack
    try:
        return [0 if row is None else unpack(row)[0] + 1 for row in rows]
    except struct.error:
        return [0 if row is None else unpack_max(row)[1] + 1 for row in rows]


def unpack_i64(value: bytes) -> int:
    """A checkpoint or deletions row. Raises CorruptValueError."""
    if len(value) != 8:
        raise CorruptValueError(f"a number of {len(value)} bytes, not 8")
    number: int = _I64.unpack(value)[0]
    return number
