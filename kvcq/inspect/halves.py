"""Checks open transactions with code that is independent of dispatch.

Rows are decoded by the layouts documented in `store/state/halves.py`; entries are followed half by
half. Memory: the open ones, which a setting limits.
"""

from __future__ import annotations

import struct
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from store.state import (
    HALVES_TOPIC,
    HalfBegun,
    HalfChecked,
    HalfEnded,
    HalfMoved,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvcq.inspect.shared_groups import Tell
    from store.state import Entry

_OPEN = struct.Struct(">qqqqqih")
_COUNT = struct.Struct(">qq")
_I64 = struct.Struct(">q")
_NEVER = (1 << 63) - 1
_TABLES = (b"m", b"v", b"u", b"e")


class _Half(NamedTuple):
    place: int
    nonce: int
    began_at: int
    begun_ms: int
    check_ms: int
    checks: int
    group: bytes
    topic: bytes

    def __str__(self) -> str:
        when = "given up" if self.check_ms == _NEVER else f"asked about at {self.check_ms}"
        return (
            f"at place {self.place}, of {self.topic.decode(errors='replace')!r}, begun at "
            f"{self.begun_ms}, {when}, {self.checks} checks"
        )


class Halves:
    """Open halves, from rows or from records."""

    def __init__(self) -> None:
        self.open: dict[int, _Half] = {}
        self.ended: set[int] = set()
        self.checks: set[tuple[bytes, int, int]] = set()  # group, time and half
        self.counts: dict[bytes, tuple[int, int]] = {}

    def take_row(self, key: bytes, value: bytes, tell: Tell) -> None:
        """Add a row. Reports and skips an invalid one; ignores other tables."""
        if not key.startswith(_TABLES):
            return
        try:
            self._take(key, value)
        except (struct.error, ValueError) as error:
            tell(key, "a row that can be", f"{value.hex()}: {error}")

    def _take(self, key: bytes, value: bytes) -> None:
        table = key[:1]
        if table == b"m":
            (half,) = _I64.unpack(key[1:])
            place, nonce, began_at, begun_ms, check_ms, checks, size = _OPEN.unpack_from(value)
            group, topic = value[_OPEN.size :][:size], value[_OPEN.size + size :]
            if size < 1 or not topic or not 0 <= half <= place or checks < 0:
                raise ValueError(f"half {half} at place {place}, a group of {size} bytes")
            self.open[half] = _Half(
                place, nonce, began_at, begun_ms, check_ms, checks, group, topic
            )
        elif table == b"v":
            (size,) = struct.unpack_from(">h", key, 1)
            check_ms, half = struct.unpack(">qq", key[3 + size :])
            self.checks.add((key[3 : 3 + size], check_ms, half))
        elif table == b"u":
            self.counts[key[1:]] = _COUNT.unpack(value)
        else:
            self.ended.add(_I64.unpack(key[1:])[0])

    def follow(self, entries: Iterable[Entry], at: int) -> None:
        """Process the entries of the record at that physical offset."""
        for entry in entries:
            match entry:
                case HalfBegun(group, topic, half, nonce, begun_ms, check_ms):
                    names = group.encode(), topic.encode()
                    self.open[half] = _Half(half, nonce, at, begun_ms, check_ms, 0, *names)
                case HalfEnded(half):
                    self.open.pop(half, None)
                case HalfChecked(half, checks, check_ms) if half in self.open:
                    after = self.open[half]._replace(checks=checks, check_ms=check_ms)
                    self.open[half] = after
                case HalfMoved(half, place) if half in self.open:
                    self.open[half] = self.open[half]._replace(place=place)
                case _:
                    pass

    def check(self, tell: Tell, end_of: Callable[[str, int], int]) -> None:
        """Report states that are impossible whatever the records say. `end_of`: the next offset of
        a queue."""
        end = end_of(HALVES_TOPIC, 0)
        places: dict[int, int] = {}
        for half, one in self.open.items():
            key = b"m" + _I64.pack(half)
            if one.place >= end:
                tell(key, f"a place below {end}, the end of the queue", f"{one.place}")
            if places.setdefault(one.place, half) != half:
                tell(key, f"a place of its own, not that of half {places[one.place]}", str(one))
            if half in self.ended:
                tell(key, "a transaction that has not ended", "one that has")
        wanted = {
            (one.group, one.check_ms, half)
            for half, one in self.open.items()
            if one.check_ms != _NEVER
        }
        for group, check_ms, half in sorted(wanted ^ self.checks):
            key = b"v" + struct.pack(">h", len(group)) + group + struct.pack(">qq", check_ms, half)
            said = ["no row", "a check of a half that does not wait for it"]
            if (group, check_ms, half) in wanted:
                said = [f"a check of half {half}", "no row"]
            tell(key, *said)
        every: Counter[bytes] = Counter()
        given_up: Counter[bytes] = Counter()
        for one in self.open.values():
            for group in (one.group, b""):
                every[group] += 1
                given_up[group] += one.check_ms == _NEVER
        for group in sorted(every.keys() | self.counts.keys()):
            there = every[group], given_up[group]
            if there != (found := self.counts.get(group, (0, 0))):
                expected = f"{there[0]} open transactions, {there[1]} given up, as there are rows"
                tell(b"u" + group, expected, f"{found[0]}, {found[1]}")

    def compare(self, wanted: Halves, tell: Tell) -> None:
        """Report differences from what the records produce."""
        for half in sorted(self.open.keys() | wanted.open.keys()):
            here, there = self.open.get(half), wanted.open.get(half)
            if here != there:
                said = ["it is not open" if one is None else str(one) for one in (there, here)]
                tell(b"m" + _I64.pack(half), *said)
