"""Finds some properties in the property strings of many records at once.

Looks at every 01 byte, and whether a wanted name stands before it: no string is split, and no
Python runs per record but for light queues and repeated keys, which are rare. What counts as a
property is in store/format/properties.py; tests hold the two together.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from migration.columnar.gather import Bytes, Ints, gather, slices, spread
from migration.columnar.text import as_text
from store.format import (
    BATCH,
    ITEM_END,
    KEYS,
    LMQ_NAMES,
    LMQ_OFFSETS,
    UNIQ_KEY,
    light_queues,
)

_NAME_END = 1
_ITEM_END = 2


class PropertyScan:
    """Properties of `strings`, one property string for each record."""

    def __init__(self, strings: pa.BinaryArray) -> None:
        self._count = len(strings)
        self._starts: Ints = np.zeros(1, dtype=np.int64)
        self._flat: Bytes = np.empty(0, dtype=np.uint8)
        if self._count:
            _, offsets, data = strings.buffers()
            first = strings.offset
            bounds = np.frombuffer(offsets, dtype=np.int32)[first : first + self._count + 1]
            self._starts = bounds.astype(np.int64)
            if data is not None:
                self._flat = np.frombuffer(data, dtype=np.uint8)
        self._texts: dict[str, pa.Array] = {}

    @cached_property
    def _name_ends(self) -> Ints:
        return np.flatnonzero(self._flat == _NAME_END)

    @cached_property
    def _item_ends(self) -> Ints:
        return np.flatnonzero(self._flat == _ITEM_END)

    @cached_property
    def _before(self) -> npt.NDArray[np.uint32]:
        """The four bytes before each 01, as one number: few names end alike."""
        fours = np.maximum(self._name_ends - 4, 0)
        if len(self._flat) < 4:
            return np.zeros(len(fours), dtype=np.uint32)
        return gather(self._flat, "<u4", fours).view(np.uint32)

    def values(self, name: str) -> tuple[Ints, pa.BinaryArray]:
        """Records that have the property, rising, and its value in each."""
        raw = name.encode()
        size = len(raw)
        ends = self._name_ends[self._before == int.from_bytes(raw[-4:], "little")]
        starts = ends - size
        ends = ends[starts >= 0]
        starts = starts[starts >= 0]
        for at in range(size - 4):
            same = self._flat[starts + at] == raw[at]
            starts, ends = starts[same], ends[same]
        records = np.searchsorted(self._starts, ends, side="right") - 1
        record_starts = self._starts[records]
        # The name begins an item of this record: at its start, or behind the end of an item.
        begins = starts == record_starts
        begins |= (starts > record_starts) & (self._flat[starts - 1] == _ITEM_END)
        ends, records = ends[begins], records[begins]
        # A value ends with its item; the last item may end with the string.
        index = np.searchsorted(self._item_ends, ends)
        limits = self._starts[records + 1]
        stops = limits.copy()
        inside = index < len(self._item_ends)
        stops[inside] = np.minimum(self._item_ends[index[inside]], limits[inside])
        some = stops > ends + 1
        ends, stops, records = ends[some], stops[some], records[some]
        # A later item of the same name wins.
        last = np.ones(len(records), dtype=np.bool_)
        last[:-1] = records[1:] != records[:-1]
        return records[last], slices(self._flat, ends[last] + 1, stops[last])

    def text(self, name: str) -> pa.StringArray:
        """The property of each record; null where it has none."""
        if name not in self._texts:
            records, values = self.values(name)
            self._texts[name] = spread(as_text(values), records, self._count)
        return self._texts[name]

    def keys(self, indexed: npt.NDArray[np.bool_]) -> pa.ListArray:
        """What the key index holds: UNIQ_KEY, then the words of KEYS, each once; see `marks`.

        Empty for records that are not `indexed`.
        """
        unique_rows, unique = self.values(UNIQ_KEY)
        word_rows, words = self.values(KEYS)
        split = pc.split_pattern(as_text(words), " ")
        flat = split.flatten()
        rows = word_rows[np.asarray(pc.list_parent_indices(split), dtype=np.int64)]
        some = np.asarray(pc.not_equal(flat, ""), dtype=np.bool_)
        rows = np.concatenate([unique_rows, rows[some]])
        keys = pa.concat_arrays([as_text(unique), flat.filter(pa.array(some))])
        # UNIQ_KEY stands first in the input, so a stable sort leaves it first in its record.
        order = np.argsort(rows, kind="stable")
        order = order[indexed[rows[order]]]
        rows, keys = rows[order], keys.take(pa.array(order))
        rows, keys = _without_repeats(rows, keys)
        return _lists(rows, keys, self._count)

    def marks(self) -> tuple[Ints, list[bytes]]:
        """Records that begin a numbered batch, and the key that the index has each under."""
        records, values = self.values(BATCH)
        names = (b":".join(value.split(b":", 2)[:2]) for value in values.to_pylist())
        return records, [ITEM_END.encode() + name for name in names]

    def light_queues(self, in_queue: npt.NDArray[np.bool_]) -> tuple[pa.ListArray, pa.ListArray]:
        """Names of the light queues of each record, and its offset in each of them."""
        names_of, offsets_of = self.values(LMQ_NAMES), self.values(LMQ_OFFSETS)
        offsets = dict(zip(offsets_of[0].tolist(), as_text(offsets_of[1]).to_pylist(), strict=True))
        rows: list[int] = []
        names: list[str] = []
        places: list[int] = []
        for row, text in zip(names_of[0].tolist(), as_text(names_of[1]).to_pylist(), strict=True):
            if not in_queue[row]:
                continue
            found = light_queues({LMQ_NAMES: text, LMQ_OFFSETS: offsets.get(row, "")})
            for name, offset in found:
                rows.append(row)
                names.append(name)
                places.append(offset)
        at = np.array(rows, dtype=np.int64)
        return (
            _lists(at, pa.array(names, pa.string()), self._count),
            _lists(at, pa.array(places, pa.int64()), self._count),
        )


def _without_repeats(rows: Ints, keys: pa.StringArray) -> tuple[Ints, pa.StringArray]:
    """Each key of a record once, where it stood first."""
    # Only a record with two keys or more can repeat one.
    same_row = np.zeros(len(rows), dtype=np.bool_)
    same_row[1:] = rows[1:] == rows[:-1]
    same_row[:-1] |= same_row[1:]
    several = np.flatnonzero(same_row)
    if not len(several):
        return rows, keys
    encoded = keys.take(pa.array(several)).dictionary_encode()
    ids = np.asarray(encoded.indices, dtype=np.int64)
    _, first = np.unique(rows[several] * len(encoded.dictionary) + ids, return_index=True)
    if len(first) == len(several):
        return rows, keys
    keep = ~same_row
    keep[several[first]] = True
    return rows[keep], keys.filter(pa.array(keep))


def _lists(rows: Ints, values: pa.Array, count: int) -> pa.ListArray:
    """`count` lists; values[i] is in the list rows[i]; rows rise."""
    offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)
