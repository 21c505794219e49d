"""Reads far behind the end of the log: in workers, and giving way to puts.

A cold read costs its time twice: the pages come from the disk, and what Python does with them
keeps puts from the interpreter. So while puts come, cold reads take a share of one core, over all
consumers together; when no puts come, they take what there is.
"""

from __future__ import annotations

import asyncio
from time import monotonic, thread_time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.workers import Workers

T = TypeVar("T")

#: Puts of fewer bytes a second take a few hundredths of a core, and need no room made.
FEW_BYTES_PER_S = 1 << 20
#: The rate is taken over at least so long: between two reads may lie microseconds.
_LOOK_S = 0.1


class ColdReads:
    """Owned by the event loop's thread."""

    def __init__(
        self,
        workers: Workers,
        share: float,
        appended: Callable[[], int],
        *,
        now_s: Callable[[], float] = monotonic,
        cpu_s: Callable[[], float] = thread_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`share`: of one core, above 0 to 1. `appended`: the end of the log, bytes."""
        self._workers = workers
        #: May be set; the next read goes by it.
        self.share = share
        self._appended = appended
        self._now_s = now_s
        self._cpu_s = cpu_s
        self._sleep = sleep
        self._looked_at = (now_s(), appended())
        self._busy = False  # whether puts came between the last two looks
        self._free_s = 0.0  # no cold read begins before

    async def run(self, read: Callable[[], T]) -> T:
        """What `read` returns, or raises, once it is its turn."""

        def timed() -> tuple[T, float]:
            began_s = self._cpu_s()
            result = read()
            return result, self._cpu_s() - began_s

        while (wait_s := self._free_s - self._now_s()) > 0:
            await self._sleep(wait_s)
        result, cpu_s = await self._workers.run(timed)
        if self._puts_come():
            rest_s = cpu_s * (1 / self.share - 1)
            self._free_s = max(self._free_s, self._now_s()) + rest_s
        return result

    def _puts_come(self) -> bool:
        before_s, before = self._looked_at
        now_s = self._now_s()
        if now_s - before_s >= _LOOK_S:
            end = self._appended()
            self._busy = end - before > FEW_BYTES_PER_S * (now_s - before_s)
            self._looked_at = now_s, end
        return self._busy
