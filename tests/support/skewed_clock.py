"""The clock of a process, moved from outside: what SystemClock says, plus an offset in a file.

`install` replaces the product's one source of wall time, `store.base.SystemClock.now_ms`, in the
process that calls it. RocksDB's own look at the clock is not replaced: its filter stays right as
long as the offset is not below zero.
"""

from __future__ import annotations

import mmap
import time
from typing import TYPE_CHECKING

from store.base import SystemClock

if TYPE_CHECKING:
    from pathlib import Path

_BYTES = 8


class Skew:
    """The offset, for who moves it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        path.write_bytes(bytes(_BYTES))

    def set(self, seconds: float) -> None:
        """From now on the clock is ahead by that much."""
        with self.path.open("r+b") as file:
            file.write(round(seconds * 1000).to_bytes(_BYTES, "big"))


def install(path: Path) -> None:
    """In this process the clock is ahead by what `path` says from moment to moment."""
    with path.open("rb") as file:
        offset = mmap.mmap(file.fileno(), _BYTES, access=mmap.ACCESS_READ)

    def now_ms(self: SystemClock) -> int:
        del self
        return time.time_ns() // 1_000_000 + int.from_bytes(offset[:_BYTES], "big")

    SystemClock.now_ms = now_ms  # type: ignore[method-assign]
