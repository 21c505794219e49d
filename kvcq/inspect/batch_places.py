"""Checks that the batch places of records are consistent: see batch_place.py.

Recovery cuts a torn batch, and finds a numbered one, by the places in its records. The CRC of a
record covers its place, so damage cannot change one unnoticed; a program may.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from store.format import (
    DISTANCE_SHIFT,
    LAST,
    MAX_DISTANCE,
    MAX_MESSAGES,
    PREPARED_AT,
    SYS_FLAG_BYTE_AT,
    TRANSACTION_MASK,
    BatchPlace,
    hosts_bytes,
    place_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    import numpy.typing as npt

    _Ints = npt.NDArray[np.int64]
    _Bytes = npt.NDArray[np.uint8]

_HOSTS = np.array([hosts_bytes(flags) for flags in range(256)])


class _Open(NamedTuple):
    """A batch that is not complete yet."""

    begin: int  # physical
    ordinal: int  # of its next record

    def __str__(self) -> str:
        return f"message {self.ordinal} of the batch that begins at {self.begin}"


class BatchPlaces:
    """One pass over records in log order; `tell(physical offset, expected, found)` is called for
    each fault.

    Memory: constant.
    """

    def __init__(self, start: int, tell: Callable[[int, str, str], None]) -> None:
        """`start`: the log's beginning; a batch may have begun before it."""
        self._start = start
        self._tell = tell
        self._open: _Open | None = None
        # Records below were not seen: a batch that began there may continue here.
        self._unseen_end = start

    def take(self, view: memoryview, base: int, offsets: list[int]) -> None:
        """Check the records at these physical offsets; `view[0]` is at `base`."""
        at = np.array(offsets)
        numbers, flags = _fields(view, at - base)
        if not self._fit(at, numbers, flags):
            for each in offsets:
                self._take_one(each, place_of(view, each - base), view, each - base)

    def skip(self, end: int) -> None:
        """Bytes before `end` are damaged."""
        self._open = None
        self._unseen_end = end

    def end(self, end: int) -> None:
        """The log ends at `end`, complete, because it was closed cleanly."""
        self._expect_none(end, "the end of the log")

    def _fit(self, at: _Ints, numbers: _Ints, flags: _Bytes) -> bool:
        """Whether all of them are consistent; False also if that needs a closer look."""
        placed = numbers < 0
        if not placed.any():
            return self._open is None
        ordinals = numbers & (MAX_MESSAGES - 1)
        begins = at - (numbers >> DISTANCE_SHIFT & (MAX_DISTANCE - 1))
        goes_on = placed & (numbers & LAST == 0)
        first = placed & (ordinals == 0)
        follows = placed & ~first
        if self._open is not None and not follows[0]:
            return False
        if follows[0] and self._open != (begins[0], ordinals[0]):
            return False
        if (
            _of_transactions(numbers, flags).any()
            or (begins[first] != at[first]).any()
            or (goes_on[:-1] != follows[1:]).any()
            or ((begins[1:] != begins[:-1]) & follows[1:]).any()
            or ((ordinals[1:] != ordinals[:-1] + 1) & follows[1:]).any()
        ):
            return False
        self._open = _Open(int(begins[-1]), int(ordinals[-1]) + 1) if goes_on[-1] else None
        return True

    def _take_one(self, at: int, place: BatchPlace | None, view: memoryview, position: int) -> None:
        if place is None:
            fields = _fields(view, np.array([position]))
            if self._open is not None and _of_transactions(*fields).any():
                # Version 0.1 took them into batches, and had no field for their place.
                self._open = self._open._replace(ordinal=self._open.ordinal + 1)
            else:
                self._expect_none(at, "a record that is of no batch")
            return
        begin = at - place.distance
        if place.ordinal == 0:
            self._expect_none(at, "the first record of another one")
            if place.distance:
                self._tell(at, "the first record of a batch to begin it", f"begun at {begin}")
                self._open = None
                return
        elif self._open is None:
            if begin >= self._unseen_end:
                self._tell(at, "a record of no batch, or the first of one", _text(place, begin))
                return
        elif self._open != (begin, place.ordinal):
            self._tell(at, f"{self._open}", _text(place, begin))
        self._open = None if place.is_last else _Open(begin, place.ordinal + 1)

    def _expect_none(self, at: int, found: str) -> None:
        if self._open is not None:
            self._tell(at, f"{self._open}", found)
            self._open = None


def _text(place: BatchPlace, begin: int) -> str:
    return f"message {place.ordinal} of one that begins at {begin}"


def _of_transactions(numbers: _Ints, flags: _Bytes) -> npt.NDArray[np.bool_]:
    """Records without a place that belong to a transaction."""
    found: npt.NDArray[np.bool_] = (numbers > 0) | (
        (numbers == 0) & (flags & TRANSACTION_MASK != 0)
    )
    return found


def _fields(view: memoryview, positions: _Ints) -> tuple[_Ints, _Bytes]:
    """The values of the batch-place field, as signed numbers; and the lowest byte of the flags."""
    data = np.frombuffer(view, np.uint8)
    flags = data[positions + SYS_FLAG_BYTE_AT]
    at = positions + PREPARED_AT + _HOSTS[flags]
    return data[at[:, None] + np.arange(8)].view(">i8")[:, 0].astype(np.int64), flags
