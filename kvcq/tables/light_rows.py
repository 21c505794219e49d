"""The rows of light queues of a run of records, by columns: the same as those of each by itself.

Keys of queues whose names are of one length are of one width. So they are laid out in one block,
column by column, sorted, and cut into rows.
"""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcq.engine import RowColumns
from kvcq.tables.keys import LENGTH_PARTS, LIGHT_MAX, LIGHT_UNIT, OFFSET_BYTES, TOPIC_AT
from kvcq.tables.values import UNIT_SIZE, expiry_stamp, pack_stamped_unit

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store.consume_queue import DispatchRequest

    _Bytes = npt.NDArray[np.uint8]

#: Of fewer units with names of one length, one after the other takes less.
_FEW = 150
_COMMA = ord(",")
_WORD_BYTES = 8


def light_rows(requests: Sequence[DispatchRequest]) -> tuple[RowColumns, RowColumns] | None:
    """Units and max rows, rising, of the light queues that these records stand in. None where there
    are few, or a name is empty or has a comma."""
    lights = [request[8] for request in requests]
    count = sum(map(len, lights))
    if count < _FEW:
        return None
    flat: list[Any] = list(chain.from_iterable(chain.from_iterable(lights)))
    names, offsets = flat[::2], flat[1::2]
    text = np.frombuffer(",".join([*names, ""]).encode(), np.uint8)
    ends = np.flatnonzero(text == _COMMA)
    if len(ends) != count or not all(names):
        return None
    lengths = np.diff(ends, prepend=-1) - 1
    kinds = np.flatnonzero(np.bincount(lengths)).tolist()
    if count < _FEW * len(kinds):
        return None
    numbers = np.array(offsets, ">i8").view(np.uint8).reshape(-1, OFFSET_BYTES)
    records = np.repeat(np.arange(len(lights)), [len(light) for light in lights])
    values = [pack_stamped_unit(*each[3:7], expiry_stamp(each[6])) for each in requests]
    units = np.frombuffer(b"".join(values), np.uint8).reshape(-1, UNIT_SIZE)
    unit_rows, max_rows = RowColumns([], []), RowColumns([], [])
    for length in kinds:
        if len(kinds) == 1:
            found = text.reshape(count, length + 1)[:, :length]
            numbers_of, records_of = numbers, records
        else:
            chosen = np.flatnonzero(lengths == length)
            found = text[ends[chosen, None] + np.arange(-length, 0)]
            numbers_of, records_of = numbers[chosen], records[chosen]
        # Units of one queue stay in the order of the log.
        order, is_last = _order(found)
        found, numbers_of = found[order], numbers_of[order]
        units_of = units[records_of[order]]
        unit_rows.key_column += _cut(_keys(length, found, LIGHT_UNIT, numbers_of))
        unit_rows.value_column += _cut(units_of)
        if not is_last.all():
            found, numbers_of, units_of = found[is_last], numbers_of[is_last], units_of[is_last]
        max_rows.key_column += _cut(_keys(length, found, LIGHT_MAX))
        max_rows.value_column += _cut(np.hstack((units_of[:, :OFFSET_BYTES], numbers_of)))
    return unit_rows, max_rows


def _order(names: _Bytes) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.bool_]]:
    """What sorts them, those that are the same as they came; and which is the last of these."""
    # Most begin alike: the bytes that differ make a number or two.
    differs = np.flatnonzero((names != names[0]).any(axis=0))
    first, end = (int(differs[0]), int(differs[-1]) + 1) if len(differs) else (0, 1)
    words = -(-(end - first) // _WORD_BYTES)
    padded = np.zeros((len(names), words * _WORD_BYTES), np.uint8)
    padded[:, : end - first] = names[:, first:end]
    numbers = padded.view(">u8").astype(np.uint64)
    order = np.lexsort(numbers.T[::-1])
    numbers = numbers[order]
    return order, np.append((numbers[1:] != numbers[:-1]).any(axis=1), True)


def _keys(length: int, names: _Bytes, part: bytes, *columns: _Bytes) -> _Bytes:
    """Length and name, what follows it, and the columns, side by side."""
    start = TOPIC_AT + length
    widths = [column.shape[1] for column in columns]
    block = np.empty((len(names), start + len(part) + sum(widths)), np.uint8)
    block[:, :TOPIC_AT] = np.frombuffer(LENGTH_PARTS[length], np.uint8)
    block[:, TOPIC_AT:start] = names
    block[:, start : start + len(part)] = np.frombuffer(part, np.uint8)
    at = start + len(part)
    for column, width in zip(columns, widths, strict=True):
        block[:, at : at + width] = column
        at += width
    return block


def _cut(block: _Bytes) -> list[bytes]:
    """The rows of a block."""
    rows: list[bytes] = block.view(f"V{block.shape[1]}").ravel().tolist()
    return rows
