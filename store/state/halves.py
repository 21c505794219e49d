"""Rows of halves. A half is a message whose transaction is open.

| key                               | value                                                       |
|-----------------------------------|-------------------------------------------------------------|
| `m` i64 half                      | i64 place, i64 nonce, i64 offset of the record that began   |
|                                   | it, i64 begun ms, i64 next check ms, i32 checks, i16, group,|
|                                   | topic                                                       |
| `v` i16, group, i64 ms, i64 half  | empty: the half is asked about then                         |
| `e` i64 half                      | i64 nonce, i64 ended ms, u8 how: for whoever decides again  |
| `u` group                         | i64 open halves, i64 given up among them; of all: no group  |

A half that was given up has the next check NEVER, and no `v` row.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, NamedTuple, Protocol

from store.state.half_entries import (
    NEVER,
    HalfBegun,
    HalfChecked,
    HalfEnd,
    HalfEnded,
    HalfMoved,
    HalvesForgotten,
)
from store.state.rows import END, CorruptRowError, Rows, every_row, sized

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.state.half_entries import HalfEntry

_OPEN = struct.Struct(">qqqqqih")
_END = struct.Struct(">qqB")
_COUNT = struct.Struct(">qq")
_I64 = struct.Struct(">q")


class OpenHalf(NamedTuple):
    """An open transaction's half."""

    half: int
    place: int  # current queue offset of its record
    nonce: int
    began_at: int  # physical offset of the state record that began it
    begun_ms: int  # ms since 1970, as all times here
    check_ms: int  # time of the next check, or NEVER
    checks: int  # number of checks sent to a producer
    group: str
    topic: str

    @property
    def is_given_up(self) -> bool:
        """Whether it is no longer checked, and waits for an operator's decision."""
        return self.check_ms == NEVER


class EndedHalf(NamedTuple):
    """The remembered outcome of a half."""

    nonce: int
    ended_ms: int
    how: HalfEnd


class HalvesCount(NamedTuple):
    """Number of halves of a group, or of all groups."""

    open: int
    given_up: int  # among the open ones


def open_key(half: int) -> bytes:
    return b"m" + _I64.pack(half)


def ended_half_key(half: int) -> bytes:
    return b"e" + _I64.pack(half)


def _check_key(half: OpenHalf) -> bytes:
    return b"v" + sized(half.group) + _I64.pack(half.check_ms) + _I64.pack(half.half)


def _count_key(group: str) -> bytes:
    return b"u" + group.encode()


def _pack_open(half: OpenHalf) -> bytes:
    group = half.group.encode()
    head = _OPEN.pack(
        *(half.place, half.nonce, half.began_at, half.begun_ms, half.check_ms, half.checks),
        len(group),
    )
    return head + group + half.topic.encode()


def _unpack_open(key: bytes, value: bytes) -> OpenHalf:
    if len(value) < _OPEN.size:
        raise CorruptRowError(f"a half with a row of {len(value)} bytes")
    place, nonce, began_at, begun_ms, check_ms, checks, size = _OPEN.unpack_from(value)
    behind = _OPEN.size + size
    group, topic = value[_OPEN.size : behind].decode(), value[behind:].decode()
    (half,) = _I64.unpack(key[1:])
    return OpenHalf(half, place, nonce, began_at, begun_ms, check_ms, checks, group, topic)


class HalfTables:
    """Reads the rows of halves. Thread: that of the rows."""

    def __init__(self, rows: Rows) -> None:
        self._rows = rows

    def open(self, half: int) -> OpenHalf | None:
        key = open_key(half)
        row = self._rows.get(key)
        return None if row is None else _unpack_open(key, row)

    def open_from(self, first: int, limit: int) -> list[OpenHalf]:
        """Up to `limit` open halves from that name on, ascending, so the oldest come first."""
        rows = self._rows.scan(open_key(first), b"m" + END * 9, limit)
        return [_unpack_open(*row) for row in rows]

    def ended(self, half: int) -> EndedHalf | None:
        row = self._rows.get(ended_half_key(half))
        if row is None:
            return None
        nonce, ended_ms, how = _END.unpack(row)
        return EndedHalf(nonce, ended_ms, HalfEnd(how))

    def ended_from(self, first: int, limit: int) -> list[tuple[int, EndedHalf]]:
        """Up to `limit` remembered ended halves from that name on, ascending."""
        found = []
        for key, row in self._rows.scan(ended_half_key(first), b"e" + END * 9, limit):
            nonce, ended_ms, how = _END.unpack(row)
            found.append((int(_I64.unpack(key[1:])[0]), EndedHalf(nonce, ended_ms, HalfEnd(how))))
        return found

    def due(
        self,
        group: str,
        now_ms: int,
        limit: int,
        after: tuple[int, int] | None = None,
        most_ahead_ms: int = NEVER,
    ) -> list[int]:
        """Up to `limit` halves of the group whose check is due, the longest due first. `after`:
        only those behind this due time (ms) and half.

        Then halves whose check is more than `most_ahead_ms` ahead, because the clock was wrong.
        """
        prefix = b"v" + sized(group)
        behind = prefix if after is None else prefix + b"".join(map(_I64.pack, after)) + b"\x00"
        far_ms = min(now_ms + most_ahead_ms, NEVER - 1) + 1
        found: list[int] = []
        for start, end in (
            (prefix, prefix + _I64.pack(now_ms + 1)),
            (prefix + _I64.pack(far_ms), prefix + END),
        ):
            rows = self._rows.scan(max(start, behind), end, limit - len(found))
            found += [int(_I64.unpack(key[-8:])[0]) for key, _ in rows]
            if len(found) == limit:
                break
        return found

    def count(self, group: str = "") -> HalvesCount:
        """The count for a group; "" for all groups."""
        row = self._rows.get(_count_key(group))
        return HalvesCount(0, 0) if row is None else HalvesCount(*_COUNT.unpack(row))

    def counts(self) -> Iterator[tuple[str, HalvesCount]]:
        """Groups with open halves, by name, and their counts."""
        for key, row in every_row(self._rows, b"u\x00", b"u" + END):
            yield key[1:].decode(), HalvesCount(*_COUNT.unpack(row))


class Writing(Rows, Protocol):
    """Rows that are being changed: see Changes."""

    def put(self, key: bytes, value: bytes) -> None: ...

    def delete(self, key: bytes) -> None: ...

    def delete_range(self, start: bytes, end: bytes) -> None: ...


def apply_half_entry(entry: HalfEntry, at: int, changes: Writing) -> None:
    """Apply the next entry of the record at physical offset `at`."""
    match entry:
        case HalfBegun(group, topic, half, nonce, begun_ms, check_ms):
            row = OpenHalf(half, half, nonce, at, begun_ms, check_ms, 0, group, topic)
            _put(row, changes)
            _count(row, changes, +1, 0)
        case HalfEnded(half, ended_ms, how):
            row = _open(half, changes)
            changes.delete(open_key(half))
            if not row.is_given_up:
                changes.delete(_check_key(row))
            changes.put(ended_half_key(half), _END.pack(row.nonce, ended_ms, how))
            _count(row, changes, -1, -row.is_given_up)
        case HalfChecked(half, checks, check_ms):
            row = _open(half, changes)
            if not row.is_given_up:
                changes.delete(_check_key(row))
            after = row._replace(checks=checks, check_ms=check_ms)
            _put(after, changes)
            _count(row, changes, 0, after.is_given_up - row.is_given_up)
        case HalfMoved(half, place):
            _put(_open(half, changes)._replace(place=place), changes)
        case HalvesForgotten(below):
            changes.delete_range(ended_half_key(0), ended_half_key(below))


def _open(half: int, changes: Writing) -> OpenHalf:
    found = HalfTables(changes).open(half)
    assert found is not None, f"an entry of half {half}, which is not open"
    return found


def _put(half: OpenHalf, changes: Writing) -> None:
    changes.put(open_key(half.half), _pack_open(half))
    if not half.is_given_up:
        changes.put(_check_key(half), b"")


def _count(half: OpenHalf, changes: Writing, more_open: int, more_given_up: int) -> None:
    tables = HalfTables(changes)
    for group in (half.group, ""):
        before = tables.count(group)
        after = HalvesCount(before.open + more_open, before.given_up + more_given_up)
        key = _count_key(group)
        if after.open:
            changes.put(key, _COUNT.pack(*after))
        else:
            changes.delete(key)
