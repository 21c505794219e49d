"""A sequence of records, stored as one run of bytes or as separate items.

A run is only split when single records are accessed.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise
from typing import TYPE_CHECKING, ClassVar, overload

from store.format.layout import picking

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    import numpy as np
    import numpy.typing as npt


class Records(Sequence[bytes]):
    """Whole records, in order; stored separately, or as one run of bytes.

    Equal to any sequence of the same records. Immutable.
    """

    __slots__ = ("_data", "_ends", "_heads", "_items")

    #: Fields that say where a record belongs. They are before the hosts, so at the same position in
    #: all records.
    FIELDS: ClassVar = ("record_size", "queue_id", "queue_offset", "physical_offset")

    def __init__(self, items: Iterable[bytes] = ()) -> None:
        self._items: list[bytes] | None = list(items)
        # Used instead of `_items` by `back_to_back`.
        self._data = b""
        self._ends: list[int] | None = None
        self._heads: npt.NDArray[np.void] | None = None

    @classmethod
    def back_to_back(
        cls, data: bytes, ends: list[int], heads: npt.NDArray[np.void] | None = None
    ) -> Records:
        """Records that fill `data` completely; `ends` has the end position of each. `heads`: their
        FIELDS, if already parsed."""
        records = cls()
        records._items = None
        records._data = data
        records._ends = ends
        records._heads = heads
        return records

    @classmethod
    def of_runs(cls, runs: Sequence[Records]) -> Records:
        """All records of the runs, in order."""
        return runs[0] if len(runs) == 1 else cls(chain.from_iterable(runs))

    @property
    def parts(self) -> Sequence[bytes]:
        """Byte strings that, joined, are all the records."""
        return self._list() if self._ends is None else (self._data,)

    @property
    def size_bytes(self) -> int:
        """Total size of all records."""
        return sum(map(len, self.parts))

    def column(self, name: str) -> list[int]:
        """The values of one of `FIELDS`. Every record must have at least MIN_RECORD_BYTES."""
        if self._heads is None:
            return [value for (value,) in map(_PICKS[name].unpack_from, self._list())]
        column: list[int] = self._heads[name].tolist()
        return column

    def _list(self) -> list[bytes]:
        if self._items is None:
            assert self._ends is not None
            self._items = [self._data[start:end] for start, end in pairwise((0, *self._ends))]
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


_PICKS = {name: picking(name) for name in Records.FIELDS}
