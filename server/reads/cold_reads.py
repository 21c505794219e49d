"""Cold reads, far behind the end of the log: in workers, and with lower priority than puts.

A cold read costs twice: pages come from the disk, and Python's work on them keeps puts from the
interpreter. So while puts arrive, all cold reads together use what the rest of the server leaves of
one core, and a small share if it leaves nothing; the work of reader processes does not count.
Without puts they are not limited.
"""

from __future__ import annotations

import asyncio
from collections import deque
from time import monotonic, process_time, thread_time
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from server.workers import Workers

T = TypeVar("T")

#: Puts of fewer bytes a second take a few hundredths of a core, and need no room made.
FEW_BYTES_PER_S = 1 << 20
#: Time to send a byte of a response, in the loop and in gRPC's threads: 1.3 to 1.6 ns, measured
#: with responses of a megabyte.
_SENDING_S = 1.4e-9
#: Share of a core that stays free for the rest of the server. A server that is slowed down by reads
#: seems to leave what they take; with this margin they get less each time.
_MARGIN = 0.2
#: The rate is taken over at least so long: between two reads may lie microseconds.
_LOOK_S = 0.1
#: The free share is the least of this many looks: at any rate of puts the server is idle for
#: moments.
_LOOKS = 5


class ColdReads:
    """Schedules cold reads. Owned by the event loop's thread."""

    def __init__(
        self,
        workers: Workers,
        share: float,
        appended: Callable[[], int],
        *,
        now_s: Callable[[], float] = monotonic,
        process_cpu_s: Callable[[], float] = process_time,
        cpu_s: Callable[[], float] = thread_time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`share`: minimum share of one core, above 0 to 1. `appended`: the end of the log, bytes.

        `process_cpu_s`, `cpu_s`: processor time of all threads, and of the calling worker.
        """
        self._workers = workers
        self._share = share
        self._appended = appended
        self._now_s = now_s
        self._process_cpu_s = process_cpu_s
        self._cpu_s = cpu_s
        self._sleep = sleep
        self._charged_s = 0.0  # processor time of cold reads
        self._looked_at = (now_s(), appended(), process_cpu_s())
        self._busy = False  # whether puts came between the last two looks
        self._left = deque([0.0], maxlen=_LOOKS)  # shares of a core, one for each look
        self._free_s = 0.0  # the next cold read does not begin before this time

    async def run(self, read: Callable[[bool], T], bytes_of: Callable[[T], int]) -> T:
        """Run `read` when it is its turn; returns its result or raises its error. Its argument is
        whether puts are arriving.

        `bytes_of`: the number of bytes of its result that will be sent.
        """

        def timed(puts_come: bool) -> tuple[T, float]:  # noqa: FBT001 - as `read` is called
            began_s = self._cpu_s()
            result = read(puts_come)
            return result, self._cpu_s() - began_s

        while (wait_s := self._free_s - self._now_s()) > 0:
            await self._sleep(wait_s)
        result, cpu_s = await self._workers.run(timed, self._puts_arrive())
        cpu_s += bytes_of(result) * _SENDING_S
        self._charged_s += cpu_s
        if self._puts_arrive():
            rest_s = cpu_s * (1 / max(self._share, min(self._left) - _MARGIN) - 1)
            self._free_s = max(self._free_s, self._now_s()) + rest_s
        return result

    def _puts_arrive(self) -> bool:
        before_s, before, cpu_before_s = self._looked_at
        now_s = self._now_s()
        seconds = now_s - before_s
        if seconds >= _LOOK_S:
            end, cpu_s = self._appended(), self._process_cpu_s() - self._charged_s
            self._busy = end - before > FEW_BYTES_PER_S * seconds
            self._left.append(1 - (cpu_s - cpu_before_s) / seconds)
            self._looked_at = now_s, end, cpu_s
        return self._busy
