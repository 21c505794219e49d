"""Checks delayed messages with code that is independent of dispatch.

Rows are decoded by the layout documented in `store/state/rows.py`; entries are summed up. For
millions of timers, only their number and an order-independent sum over their keys are kept.
"""

from __future__ import annotations

import struct
from hashlib import blake2b
from typing import TYPE_CHECKING

from store.state import TIMER_TOPIC, TimerEnded, TimerSet

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from kvcq.inspect.shared_groups import Tell
    from store.state import Entry

_KEY = struct.Struct(">cqq")
_VALUE = struct.Struct(">qqq")
_COUNT = struct.Struct(">q")
_COUNT_KEY = b"j"


class Timers:
    """Waiting timers, from rows or from records."""

    def __init__(self) -> None:
        self.count = 0
        self.sum = 0
        self.counted = 0  # the number in the row
        self.last: tuple[int, bytes] | None = None  # the highest place, and the key of its row

    def take_row(self, key: bytes, value: bytes, tell: Tell) -> None:
        """Add a row. Reports and skips an invalid one; ignores other tables."""
        if key == _COUNT_KEY and len(value) == _COUNT.size:
            (self.counted,) = _COUNT.unpack(value)
        elif key[:1] in (b"i", _COUNT_KEY):
            if len(key) != _KEY.size or len(value) != _VALUE.size:
                tell(key, "a row that can be", value.hex())
                return
            _, due_ms, timer = _KEY.unpack(key)
            place, begins, nonce = _VALUE.unpack(value)
            if due_ms < 0 or not 0 <= timer <= place or begins < 0 or nonce <= 0:
                tell(key, "a timer that can be", f"at {place}, topic at {begins}, nonce {nonce}")
                return
            self._add(key)
            if self.last is None or self.last[0] < place:
                self.last = place, key

    def follow(self, entries: Iterable[Entry]) -> None:
        """Process the entries of the next record."""
        for entry in entries:
            if isinstance(entry, TimerSet):
                self._add(_KEY.pack(b"i", entry.due_ms, entry.place))
            elif isinstance(entry, TimerEnded) and entry.moved_to < 0:
                self._add(_KEY.pack(b"i", entry.due_ms, entry.timer), -1)

    def _add(self, key: bytes, times: int = 1) -> None:
        self.count += times
        self.sum += times * int.from_bytes(blake2b(key, digest_size=16).digest(), "big")

    def check(self, tell: Tell, end_of: Callable[[str, int], int]) -> None:
        """Report states that are impossible whatever the records say. `end_of`: the next offset of
        a queue."""
        if self.counted != self.count:
            tell(_COUNT_KEY, f"{self.count} timers, as there are rows", f"{self.counted}")
        if self.last is not None and self.last[0] >= (end := end_of(TIMER_TOPIC, 0)):
            place, key = self.last
            tell(key, f"a place below {end}, the end of the queue", f"{place}")

    def compare(self, wanted: Timers, tell: Tell) -> None:
        """Report whether this differs from what the records produce."""
        if (self.count, self.sum) != (wanted.count, wanted.sum):
            said = [f"{each.count} timers, keys of sum {each.sum:x}" for each in (wanted, self)]
            tell(b"i", *said)
