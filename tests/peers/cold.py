"""Fresh memory made dear, or cheap, before a piece of work.

A virtual machine's host takes free memory back and gives it again page by page at the first touch,
far slower than memory that is there. What a user's process asks for is such memory. But the kernel
hands out what was freed last first, so one measurement after another would find memory that is
there. `ColdMemory` takes what is there out of reach: it grows until memory comes slowly, and keeps
all of it while the work runs. Where fresh memory is never slow, as on a machine of its own, it
says so.
"""

from __future__ import annotations

import mmap
import time
from time import thread_time
from typing import TYPE_CHECKING, Self

import psutil

if TYPE_CHECKING:
    from collections.abc import Callable

CHUNK_BYTES = 32 << 20
#: Memory is cold when it comes at less than this share of the rate of memory that is there.
_COLD_SHARE = 0.35
#: So many chunks in a row, so that a slow moment is no proof.
_IN_A_ROW = 4
#: What is let go of when there is no room to hold more, and how long the host has for it. It
#: takes free memory back by about half a gigabyte a second.
_BACK_BYTES = 4 << 30
_HOST_TAKES_S = 10.0
#: For what is measured.
_LEFT_BYTES = 5 << 30
#: For one fill: all memory of a small machine, at the rate of memory that is there.
_MOST_S = 15.0
#: That many end without slow memory before it is left at that, so that a machine that has none, or
#: on which others work, does not make a run of twenty minutes an hour long.
_IN_VAIN = 3


def touched_chunk(size: int = CHUNK_BYTES) -> tuple[mmap.mmap, float]:
    """Memory with each page written once, and its rate in MB a second of processor time."""
    memory = mmap.mmap(-1, size)
    # Pages of 4 KiB, whatever the system's setting is: that is what files and heaps are made of.
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    piece = bytes(1 << 20)
    began_s = thread_time()
    for _ in range(size // len(piece)):
        memory.write(piece)
    return memory, size / 1e6 / max(1e-9, thread_time() - began_s)


class ColdMemory:
    """Holds memory that is there. Use it in a `with` block, or `release` it."""

    def __init__(
        self,
        touch: Callable[[], tuple[mmap.mmap, float]] = touched_chunk,
        limit_bytes: int | None = None,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._touch = touch
        self._held: list[mmap.mmap] = []
        if limit_bytes is None:
            available = psutil.virtual_memory().available
            limit_bytes = max(available // 2, available - _LEFT_BYTES)
        self._limit = limit_bytes
        self._sleep = sleep
        self._clock = clock
        self._in_vain = 0
        self.warm_mb_s = 0.0
        self.cold_mb_s = 0.0

    def fill(self) -> bool:
        """Grow until memory comes slowly; whether it does. With a limit of 0 it never does.

        Where others work on the machine, what they free comes fast again and again, and where
        there is much memory it takes long to find none of it slow: it is left at that then.
        """
        if not self._limit:
            return False
        if not self.warm_mb_s:
            self.warm_mb_s = self._warm_rate()
        # What a piece of work freed comes fast, so it is held as well while there is room.
        is_cold = self._grow()
        if not is_cold and self.cold_mb_s:
            self.give(_BACK_BYTES)
            self._sleep(_HOST_TAKES_S)
            is_cold = self._grow()
        if is_cold:
            self._in_vain = 0
            return True
        self._in_vain += 1
        if self._in_vain == _IN_VAIN or (not self.cold_mb_s and self.held_bytes >= self._limit):
            self.release()
            self._limit = 0
        return False

    def _grow(self) -> bool:
        """Whether memory comes slowly then."""
        end_s = self._clock() + _MOST_S
        slow = 0
        while self.held_bytes < self._limit and self._clock() < end_s:
            memory, rate = self._touch()
            self._held.append(memory)
            slow = slow + 1 if rate < self.warm_mb_s * _COLD_SHARE else 0
            if slow == _IN_A_ROW:
                self.cold_mb_s = rate
                return True
        return False

    @property
    def held_bytes(self) -> int:
        return len(self._held) * CHUNK_BYTES

    def give(self, size: int) -> None:
        """So much of what is held is there for others."""
        for _ in range(-(-size // CHUNK_BYTES)):
            if self._held:
                self._held.pop().close()

    def release(self) -> None:
        for memory in self._held:
            memory.close()
        self._held.clear()

    def _warm_rate(self) -> float:
        """Of a chunk that was just given back; the best of three."""
        rates = []
        for _ in range(4):
            memory, rate = self._touch()
            memory.close()
            rates.append(rate)
        return max(rates[1:])

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.release()
