"""Many short byte strings as slices of one buffer, and names as codes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from migration.columnar.unaligned import gather, overlapping

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import numpy.typing as npt

    from migration.columnar.unaligned import Bools, Bytes, Ints

WORD = 8
#: Up to this many distinct lengths are handled with one operation each.
_FEW_LENGTHS = 32
#: Longer strings are compared one by one.
_MOST_WORDS = 8
_BUCKET_BITS = 16
_MIX = np.uint64(0x9E3779B97F4A7C15)
_T = TypeVar("_T", str, bytes)


class Strings:
    """The bytes data[start:end] for each pair of bounds, without a copy.

    At least one word must precede each end, since `word` reads there.
    """

    __slots__ = ("data", "ends", "starts")

    def __init__(self, data: Bytes, starts: Ints, ends: Ints) -> None:
        self.data = data
        self.starts = starts
        self.ends = ends

    @classmethod
    def of(cls, parts: Sequence[bytes]) -> Strings:
        """The strings, concatenated in one buffer."""
        data = np.frombuffer(bytes(WORD) + b"".join(parts), dtype=np.uint8)
        lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
        ends = np.cumsum(lengths) + WORD
        return cls(data, ends - lengths, ends)

    def __len__(self) -> int:
        return len(self.starts)

    def __getitem__(self, rows: Ints | Bools) -> Strings:
        return Strings(self.data, self.starts[rows], self.ends[rows])

    def __getstate__(self) -> tuple[Bytes, Ints]:
        packed = self.packed()
        return packed.data, packed.lengths

    def __setstate__(self, state: tuple[Bytes, Ints]) -> None:
        self.data, lengths = state
        self.ends = np.cumsum(lengths) + WORD
        self.starts = self.ends - lengths

    @staticmethod
    def joined(parts: Sequence[Strings]) -> Strings:
        """The strings of all parts, in order."""
        data = np.concatenate([np.empty(0, dtype=np.uint8), *(part.data for part in parts)])
        shifts = np.cumsum([0, *(len(part.data) for part in parts)]).tolist()
        none = [np.empty(0, dtype=np.int64)]
        starts = [part.starts + shift for part, shift in zip(parts, shifts, strict=False)]
        ends = [part.ends + shift for part, shift in zip(parts, shifts, strict=False)]
        return Strings(data, np.concatenate(none + starts), np.concatenate(none + ends))

    def packed(self) -> Strings:
        """A copy without gaps."""
        lengths = self.lengths
        different = np.flatnonzero(np.bincount(lengths)).tolist()
        if len(different) > _FEW_LENGTHS:
            return Strings.of(self.tolist())
        ends = np.cumsum(lengths) + WORD
        starts = ends - lengths
        data = np.zeros(int(ends[-1]) if len(ends) else WORD, dtype=np.uint8)
        for length in different:
            if length:
                rows = np.flatnonzero(lengths == length)
                items = gather(self.data, f"V{length}", self.starts[rows])
                overlapping(data, length)[starts[rows]] = items
        return Strings(data, starts, ends)

    @property
    def lengths(self) -> Ints:
        return self.ends - self.starts

    def tolist(self) -> list[bytes]:
        if not len(self):
            return []
        first = int(self.starts.min())
        window = self.data[first : int(self.ends.max())].tobytes()
        bounds = zip((self.starts - first).tolist(), (self.ends - first).tolist(), strict=True)
        return [window[start:end] for start, end in bounds]

    def coded(self) -> tuple[Ints, list[bytes]]:
        """A code for each string, and the distinct strings by code."""
        lengths = self.lengths
        words = -(-int(lengths.max(initial=0)) // WORD)
        if words > _MOST_WORDS:
            return coded(self.tolist())
        columns = [lengths.view(np.uint64), *map(self.word, range(words))]
        hashes = np.zeros(len(self), dtype=np.uint64)
        for column in columns:
            hashes = (hashes ^ column) * _MIX
        buckets = (hashes >> np.uint64(64 - _BUCKET_BITS)).astype(np.int64)
        codes = np.empty(len(self), dtype=np.int64)
        firsts: list[Ints] = []
        count = 0
        rows = np.arange(len(self))
        while len(rows):
            # Each round handles one string of each bucket, and all rows equal to it.
            first = np.full(1 << _BUCKET_BITS, -1, dtype=np.int64)
            first[buckets[rows[::-1]]] = rows[::-1]
            chosen = first[buckets[rows]]
            same = np.ones(len(rows), dtype=np.bool_)
            for column in columns:
                same &= column[rows] == column[chosen]
            found = first[first >= 0]
            codes[found] = np.arange(count, count + len(found))
            codes[rows[same]] = codes[chosen[same]]
            firsts.append(found)
            count += len(found)
            rows = rows[~same]
        values = self[np.concatenate(firsts)].tolist() if firsts else []
        return codes, values

    def word(self, number: int) -> npt.NDArray[np.uint64]:
        """Eight bytes of each string from 8 * `number` on, as a number; zeros after its end.

        Strings of equal length sort like their words.
        """
        at = self.starts + WORD * number
        missing = np.clip(at + WORD - self.ends, 0, WORD)
        raw = gather(self.data, ">u8", np.minimum(at, self.ends - WORD))
        words: npt.NDArray[np.uint64] = raw.astype(np.uint64) << (missing * 8).astype(np.uint64)
        return words


@dataclass(frozen=True, slots=True)
class Names:
    """A name for each row: values[code]. `values` has each distinct name once."""

    codes: Ints
    values: list[str]

    @classmethod
    def of(cls, names: Sequence[str]) -> Names:
        return cls(*coded(names))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Ints) -> Names:
        return Names(self.codes[rows], self.values)

    def look_up(self, answer: Callable[[str], object], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
        """The answer for each row; each distinct name is looked up once."""
        return np.array([answer(name) for name in self.values], dtype=dtype)[self.codes]


def coded(values: Sequence[_T]) -> tuple[Ints, list[_T]]:
    """A code for each value, and the distinct values by code."""
    distinct = list(dict.fromkeys(values))
    number_of = {value: number for number, value in enumerate(distinct)}
    codes = np.fromiter(map(number_of.__getitem__, values), dtype=np.int64, count=len(values))
    return codes, distinct
