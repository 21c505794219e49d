"""Many records, and what proves them whole.

What is done for each record bounds reading. So records that lie one behind the other are copied
with one slice and judged in columns, and cut apart only where somebody asks for one of them. Few
are cut and judged one by one: a column costs some microseconds, however short it is.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, overload

import numpy as np
import numpy.typing as npt
from zlib_ng.zlib_ng import crc32

from store.format.layout import AT, picking
from store.format.record import (
    CRC_ITEM_BYTES,
    CRC_ITEM_PREFIX,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    MIN_RECORD_BYTES,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from mmap import mmap

    #: Physical offset and size of each record.
    Places = Sequence[tuple[int, int]]
    Ints = npt.NDArray[np.int64]

#: So many are judged in columns.
MANY = 48
_LEAST = MIN_RECORD_BYTES + CRC_ITEM_BYTES

#: Fields that say where a record belongs. They stand before the hosts, so in one place in all.
_FIELDS = ("record_size", "queue_id", "queue_offset", "physical_offset")
_TYPES = {4: ">i4", 8: ">i8"}
_PICKS = {name: picking(name) for name in _FIELDS}
_BYTES = {name: pick.size - AT[name] for name, pick in _PICKS.items()}
_HEAD = np.dtype([(name, _TYPES[count]) for name, count in _BYTES.items()])
_HEAD_AT = np.concatenate([np.arange(AT[name], AT[name] + count) for name, count in _BYTES.items()])

#: The item of a CRC of 0, where its bytes are, counted from the end of the record, and where its
#: digits are among them: the last one is the first of the number.
_ITEM = np.frombuffer((CRC_ITEM_REVERSED % 0)[::-1], np.uint8)
_ITEM_AT = np.arange(-CRC_ITEM_BYTES, 0)
_DIGITS = slice(len(CRC_ITEM_PREFIX), -1)
_POWERS = 10 ** np.arange(CRC_ITEM_BYTES - len(CRC_ITEM_PREFIX) - 1)


class Records(Sequence[bytes]):
    """Whole records, in order: each by itself, or all of them in one run of bytes.

    Equal to any sequence of the same records. Immutable.
    """

    __slots__ = ("_data", "_ends", "_heads", "_items")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self._items: list[bytes] | None = list(items)
        # In place of them:
        self._data = b""
        self._ends: Ints | None = None
        self._heads: npt.NDArray[np.void] | None = None

    @classmethod
    def back_to_back(cls, data: bytes, sizes: Iterable[int]) -> Records:
        """Records of these sizes, of which `data` consists."""
        return cls._of_run(data, np.cumsum(np.fromiter(sizes, np.int64)))

    @classmethod
    def of_runs(cls, runs: Sequence[Records]) -> Records:
        """All of them, one run behind the other."""
        return runs[0] if len(runs) == 1 else cls(chain.from_iterable(runs))

    @classmethod
    def _of_run(cls, data: bytes, ends: Ints) -> Records:
        records = cls()
        records._items = None
        records._data = data
        records._ends = ends
        return records

    @property
    def parts(self) -> Sequence[bytes]:
        """Whose bytes, joined, are those of all records."""
        return self._list() if self._ends is None else (self._data,)

    @property
    def size_bytes(self) -> int:
        """Of all records."""
        return sum(map(len, self.parts))

    def column(self, name: str) -> list[int]:
        """That field of each record: its size, queue id, queue offset or physical offset.

        For records of MIN_RECORD_BYTES and more.
        """
        if self._ends is None:
            return [value for (value,) in map(_PICKS[name].unpack_from, self._list())]
        column: list[int] = self._head_columns(self._ends)[name].tolist()
        return column

    def _head_columns(self, ends: Ints) -> npt.NDArray[np.void]:
        if self._heads is None:
            starts = np.zeros_like(ends)
            starts[1:] = ends[:-1]
            found = np.frombuffer(self._data, np.uint8)[starts[:, None] + _HEAD_AT]
            self._heads = found.view(_HEAD)[:, 0]
        return self._heads

    def _list(self) -> list[bytes]:
        if self._items is None:
            assert self._ends is not None
            ends = self._ends.tolist()
            self._items = [self._data[start:end] for start, end in pairwise((0, *ends))]
        return self._items

    def __len__(self) -> int:
        return len(self._list() if self._ends is None else self._ends)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._list())

    @overload
    def __getitem__(self, index: int) -> bytes: ...

    @overload
    def __getitem__(self, index: slice) -> Records: ...

    def __getitem__(self, index: int | slice) -> bytes | Records:
        found = self._list()[index]
        return found if isinstance(found, bytes) else Records(found)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._list() == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"Records({self._list()!r})"


def copy_records(source: mmap | bytes, base: int, places: Places) -> tuple[Records, bool]:
    """What lies at `places`, which rise, in `source`, which begins at physical offset `base`.

    And whether each of them is a record that lies there, closed by the CRC of its bytes. False says
    that one is not, or is of another kind, not which; the copies are of no use where `places`
    overlap, or `source` is too short. Raises ValueError when the mapping is closed.
    """
    if len(places) >= MANY:
        return _copy_many(source, base, places)
    items = [source[offset - base : offset + size - base] for offset, size in places]
    return Records(items), _are_whole(items, places)


def _are_whole(items: list[bytes], places: Places) -> bool:
    """One by one: the twin of `_copy_many`."""
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
    records = Records._of_run(data, ends)  # noqa: SLF001 - of this module
    if len(data) != total_bytes or int(sizes.min()) < _LEAST:
        return records, False
    heads = records._head_columns(ends)  # noqa: SLF001
    are_there = (heads["record_size"] == sizes).all() and (
        heads["physical_offset"] == offsets
    ).all()
    return records, bool(are_there) and _seals_hold(data, ends)


def _seals_hold(data: bytes, ends: Ints) -> bool:
    """Whether each record ends with an item that has the CRC of what is before that."""
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
