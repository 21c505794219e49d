"""Copies and verifies many records at once.

The cost per record limits reading. So adjacent records are copied with one slice and verified in
columns. A few records are cut and verified one by one, because a column has a fixed cost of some
microseconds.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from store.format import (
    AT,
    CRC_ITEM_BYTES,
    CRC_ITEM_PREFIX,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    MIN_RECORD_BYTES,
    Records,
    picking,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from mmap import mmap

    #: Physical offset and size of each record.
    Places = Sequence[tuple[int, int]]
    Ints = npt.NDArray[np.int64]

#: From this many records on they are checked in columns.
MANY = 48
_LEAST = MIN_RECORD_BYTES + CRC_ITEM_BYTES

_TYPES = {4: ">i4", 8: ">i8"}
_BYTES = {name: picking(name).size - AT[name] for name in Records.FIELDS}
_HEAD = np.dtype([(name, _TYPES[count]) for name, count in _BYTES.items()])
_HEAD_AT = np.concatenate([np.arange(AT[name], AT[name] + count) for name, count in _BYTES.items()])

#: The item of a CRC of 0, where its bytes are, counted from the end of the record, and where its
#: digits are among them: the last one is the first of the number.
_ITEM = np.frombuffer((CRC_ITEM_REVERSED % 0)[::-1], np.uint8)
_ITEM_AT = np.arange(-CRC_ITEM_BYTES, 0)
_DIGITS = slice(len(CRC_ITEM_PREFIX), -1)
_POWERS = 10 ** np.arange(CRC_ITEM_BYTES - len(CRC_ITEM_PREFIX) - 1)


def copy_records(source: mmap | bytes, base: int, places: Places) -> tuple[Records, bool]:
    """Copy the records at the ascending `places` from `source`, which begins at physical offset
    `base`.

    Also returns whether each of them is a record at its place, closed by the CRC of its bytes.
    False means that one is not, or has another form, but not which; the copies are useless if
    `places` overlap, or `source` is too short. Raises ValueError if the mapping is closed.
    """
    if len(places) >= MANY:
        return _copy_many(source, base, places)
    items = [source[offset - base : offset + size - base] for offset, size in places]
    return Records(items), _are_whole(items, places)


def _are_whole(items: list[bytes], places: Places) -> bool:
    """Verifies one by one; same result as `_copy_many`."""
    sizes = [size for _, size in places]
    records = Records(items)
    if (
        list(map(len, items)) != sizes
        or min(sizes, default=0) < _LEAST
        or records.column("record_size") != sizes
        or records.column("physical_offset") != [offset for offset, _ in places]
    ):
        return False
    # All items as one text, from its end to its beginning.
    crcs = [crc32(item[:-CRC_ITEM_BYTES]) & CRC_MASK for item in reversed(items)]
    text = b"".join([item[-CRC_ITEM_BYTES:] for item in items])
    return text[::-1] == CRC_ITEM_REVERSED * len(items) % tuple(crcs)


def _copy_many(source: mmap | bytes, base: int, places: Places) -> tuple[Records, bool]:
    columns = np.fromiter(chain.from_iterable(places), np.int64, 2 * len(places))
    offsets, sizes = columns[::2], columns[1::2]
    ends = np.cumsum(sizes)
    total_bytes = int(ends[-1])
    first, end = places[0][0], sum(places[-1])
    if end - first == total_bytes:
        data = source[first - base : end - base]
    else:
        data = b"".join([source[offset - base : offset + size - base] for offset, size in places])
    if len(data) != total_bytes or int(sizes.min()) < _LEAST:
        return Records.back_to_back(data, ends.tolist()), False
    starts = ends - sizes
    heads = np.frombuffer(data, np.uint8)[starts[:, None] + _HEAD_AT].view(_HEAD)[:, 0]
    records = Records.back_to_back(data, ends.tolist(), heads)
    are_there = (heads["record_size"] == sizes).all() and (
        heads["physical_offset"] == offsets
    ).all()
    return records, bool(are_there) and _seals_hold(data, ends)


def _seals_hold(data: bytes, ends: Ints) -> bool:
    """Whether each record ends with an item that has the CRC of the bytes before it."""
    items = np.frombuffer(data, np.uint8)[ends[:, None] + _ITEM_AT] - _ITEM
    digits = items[:, _DIGITS]
    if items[:, : _DIGITS.start].any() or items[:, -1].any() or digits.max() > 9:
        return False
    view = memoryview(data)
    starts = [0, *ends[:-1].tolist()]
    crcs = [
        crc32(view[start:end])
        for start, end in zip(starts, (ends - CRC_ITEM_BYTES).tolist(), strict=True)
    ]
    return bool((digits @ _POWERS == np.array(crcs) & CRC_MASK).all())
