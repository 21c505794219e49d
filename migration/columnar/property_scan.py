"""Finds properties in the property strings of many records at once.

Looks at every 01 byte for a wanted name before it. Splits no strings, and runs no Python code per
record except for light queues and repeated keys, which are rare. store/format/properties.py defines
the format; tests compare the two.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from migration.columnar.strings import Strings
from migration.columnar.unaligned import gather
from store.format import BATCH, ITEM_END, KEYS, LMQ_NAMES, LMQ_OFFSETS, UNIQ_KEY, light_queues

if TYPE_CHECKING:
    import numpy.typing as npt

    from migration.columnar.unaligned import Bools, Ints

_NAME_END = 1
_ITEM_END = 2
_SPACE = 32


class LightQueues(NamedTuple):
    """Light queues of records: row of the record, name, and offset in it."""

    rows: Ints
    names: list[str]
    offsets: Ints


class PropertyScan:
    """Properties of `strings`, one property string for each record."""

    def __init__(self, strings: Strings) -> None:
        self._strings = strings.packed()
        self._flat = self._strings.data

    @cached_property
    def is_ascii(self) -> bool:
        return bool((self._flat < 0x80).all())

    @cached_property
    def _name_ends(self) -> Ints:
        return np.flatnonzero(self._flat == _NAME_END)

    @cached_property
    def _item_ends(self) -> Ints:
        return np.flatnonzero(self._flat == _ITEM_END)

    @cached_property
    def _before(self) -> npt.NDArray[np.uint32]:
        """The four bytes before each 01 as a number, which differs between most names."""
        return gather(self._flat, "<u4", self._name_ends - 4).view(np.uint32)

    def values(self, name: str) -> tuple[Ints, Strings]:
        """Records that have the property, ascending, and its value in each."""
        raw = name.encode()
        size = len(raw)
        ends = self._name_ends[self._before == int.from_bytes(raw[-4:], "little")]
        starts = ends - size
        ends = ends[starts >= 0]
        starts = starts[starts >= 0]
        for at in range(size - 4):
            same = self._flat[starts + at] == raw[at]
            starts, ends = starts[same], ends[same]
        records = np.searchsorted(self._strings.starts, ends, side="right") - 1
        record_starts = self._strings.starts[records]
        # The name must begin an item: at the record's start, or after the end of an item.
        begins = starts == record_starts
        begins |= (starts > record_starts) & (self._flat[starts - 1] == _ITEM_END)
        ends, records = ends[begins], records[begins]
        # A value ends with its item; the last item may end with the string.
        index = np.searchsorted(self._item_ends, ends)
        stops = self._strings.ends[records]
        inside = index < len(self._item_ends)
        stops[inside] = np.minimum(self._item_ends[index[inside]], stops[inside])
        some = stops > ends + 1
        ends, stops, records = ends[some], stops[some], records[some]
        # If a name is repeated, the last item wins.
        last = np.ones(len(records), dtype=np.bool_)
        last[:-1] = records[1:] != records[:-1]
        return records[last], Strings(self._flat, ends[last] + 1, stops[last])

    def keys(self, indexed: Bools) -> tuple[Ints, Strings]:
        """The index keys of records that are `indexed`: UNIQ_KEY, then the words of KEYS, each
        once. For keys of batches see `marks`."""
        unique_rows, unique = self.values(UNIQ_KEY)
        word_rows, words = self._words(*self.values(KEYS))
        rows = np.concatenate([unique_rows, word_rows])
        # UNIQ_KEY is first in the input, so a stable sort leaves it first in its record.
        order = np.argsort(rows, kind="stable")
        order = order[indexed[rows[order]]]
        keys = Strings(
            self._flat,
            np.concatenate([unique.starts, words.starts])[order],
            np.concatenate([unique.ends, words.ends])[order],
        )
        return _without_repeats(rows[order], keys)

    def _words(self, rows: Ints, values: Strings) -> tuple[Ints, Strings]:
        """Each value split at its spaces, without empty words."""
        spaces = np.flatnonzero(self._flat == _SPACE)
        first, behind = np.searchsorted(spaces, (values.starts, values.ends))
        counts = behind - first
        if not counts.any():
            return rows, values
        within = np.repeat(first - np.cumsum(counts) + counts, counts) + np.arange(counts.sum())
        begins = np.cumsum(counts + 1) - counts - 1  # number of each value's first word
        starts = np.empty(len(rows) + len(within), dtype=np.int64)
        ends = starts.copy()
        cut = np.ones(len(starts), dtype=np.bool_)
        cut[begins] = False
        starts[begins], starts[cut] = values.starts, spaces[within] + 1
        ends[begins + counts], ends[np.append(cut[1:], False)] = values.ends, spaces[within]
        some = ends > starts
        return np.repeat(rows, counts + 1)[some], Strings(self._flat, starts[some], ends[some])

    def marks(self) -> tuple[Ints, list[bytes]]:
        """Records that begin a numbered batch, and the batch's key in the index."""
        records, values = self.values(BATCH)
        names = (b":".join(value.split(b":", 2)[:2]) for value in values.tolist())
        return records, [ITEM_END.encode() + name for name in names]

    def light_queues(self, in_queue: Bools) -> LightQueues:
        """The light queues of records that are `in_queue`."""
        rows, names_of = self.values(LMQ_NAMES)
        offset_rows, offsets_of = self.values(LMQ_OFFSETS)
        offsets = dict(zip(offset_rows.tolist(), offsets_of.tolist(), strict=True))
        found = []
        for row, names in zip(rows.tolist(), names_of.tolist(), strict=True):
            if in_queue[row]:
                texts = (names, offsets.get(row, b""))
                values = (text.decode(errors="replace") for text in texts)
                properties = dict(zip((LMQ_NAMES, LMQ_OFFSETS), values, strict=True))
                found += [(row, *each) for each in light_queues(properties)]
        return LightQueues(
            np.array([row for row, _, _ in found], dtype=np.int64),
            [name for _, name, _ in found],
            np.array([offset for _, _, offset in found], dtype=np.int64),
        )


def _without_repeats(rows: Ints, keys: Strings) -> tuple[Ints, Strings]:
    """Each key of a record once, at its first position."""
    # Only records with two keys or more can repeat one.
    same_row = np.zeros(len(rows), dtype=np.bool_)
    same_row[1:] = rows[1:] == rows[:-1]
    same_row[:-1] |= same_row[1:]
    several = np.flatnonzero(same_row)
    if not len(several):
        return rows, keys
    codes, values = keys[several].coded()
    _, first = np.unique(rows[several] * len(values) + codes, return_index=True)
    if len(first) == len(several):
        return rows, keys
    keep = ~same_row
    keep[several[first]] = True
    return rows[keep], keys[keep]
