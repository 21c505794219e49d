"""The rows of light queues of a run of records, in columns; same rows as computed one by one.

Keys of queues with names of equal length have equal width. So they are laid out in one block,
column by column in ascending order, and cut into rows.
"""

from __future__ import annotations

from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any

import numpy as np

from kvcq.engine import RowColumns
from kvcq.tables.keys import LENGTH_PARTS, LIGHT_MAX, LIGHT_UNIT, OFFSET_BYTES, TOPIC_AT
from kvcq.tables.values import UNIT_SIZE, expiry_stamp, pack_stamped_unit
from store.light_columns import LightNames, LightUnits

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from store.consume_queue import DispatchRequest

    _Bytes = npt.NDArray[np.uint8]

#: With fewer units with names of one length, it is faster to handle them one by one.
_FEW = 150


def light_rows(requests: Sequence[DispatchRequest]) -> tuple[RowColumns, RowColumns] | None:
    """Units and max rows, ascending, of the light queues of these records. None if there are few,
    or their names cannot be columns."""
    lights = [request[8] for request in requests]
    counts = list(map(len, lights))
    if sum(counts) < _FEW:
        return None
    flat: list[Any] = list(chain.from_iterable(chain.from_iterable(lights)))
    try:
        names = LightNames(",".join(flat[::2]), counts)
    except ValueError:
        return None
    units = LightUnits(names, np.array(flat[1::2], np.int64))
    values = [pack_stamped_unit(*each[3:7], expiry_stamp(each[6])) for each in requests]
    return rows_of_units(units, np.frombuffer(b"".join(values), np.uint8).reshape(-1, UNIT_SIZE))


def rows_of_units(units: LightUnits, values: _Bytes) -> tuple[RowColumns, RowColumns] | None:
    """Like `light_rows`, for records with these values, a row for each."""
    unit_rows, max_rows = RowColumns([], []), RowColumns([], [])
    names = units.names
    order, is_last = units.order
    lengths = names.lengths[order]
    starts = [0, *(np.flatnonzero(np.diff(lengths)) + 1).tolist(), len(order)]
    if len(order) < _FEW * (len(starts) - 1):
        return None
    values_of = values[names.messages[order] - units.messages.start]
    numbers = units.offsets_at(order).astype(">i8")[:, None].view(np.uint8)
    for start, end in pairwise(starts):
        length = int(lengths[start])
        part = slice(start, end)
        name = names.bytes_of(order[part], length)
        number, value, last = numbers[part], values_of[part], is_last[part]
        unit_rows.key_column += _cut(_keys(length, name, LIGHT_UNIT, number))
        unit_rows.value_column += _cut(value)
        if not last.all():
            name, number, value = name[last], number[last], value[last]
        max_rows.key_column += _cut(_keys(length, name, LIGHT_MAX))
        max_rows.value_column += _cut(np.hstack((value[:, :OFFSET_BYTES], number)))
    return unit_rows, max_rows


def _keys(length: int, names: _Bytes, part: bytes, *columns: _Bytes) -> _Bytes:
    """Length and name, the part after it, and the columns, side by side."""
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
    rows: list[bytes] = block.view(f"V{block.shape[1]}").ravel().tolist()
    return rows
