"""Acknowledgements, and what else is told of deliveries, joined into batches.

While calls are under way, further settlements wait, and are sent together afterwards. So batches
grow with the load, and none waits for a timer.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict, deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.errors import ClosedError, KvcqError
from kvcq_client.receiving.deliveries import Settlement
from kvcq_client.shared_groups import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kvcq_client.calls import Calls
    from kvcq_client.receiving.deliveries import Delivery
    from kvcq_client.transport import Connection

logger = logging.getLogger(__name__)

#: Settlements of one round, four calls of acknowledgements at most.
_A_ROUND = 4096


class Told(NamedTuple):
    """What is told of a delivery."""

    what: str  # acknowledge, give_back or hold
    seconds: float | None = None  # the delay, or the time to hold it
    not_begun: bool = False  # of give_back


class Settlements:
    """Sends them. `add` may be called on any thread; the rest is owned by the event loop."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        group: str,
        settled: Callable[[Sequence[Delivery]], None],
    ) -> None:
        """`settled`: called with deliveries that were acknowledged or given back, or failed."""
        self._connection = connection
        self._calls = calls
        self._group = group
        self._settled = settled
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._waiting: deque[tuple[Told, Delivery, Settlement]] = deque()
        self._under_way: list[Settlement] = []
        self._changed = asyncio.Event()
        self._wake_is_due = False  # set by any thread, behind its append to `_waiting`
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """How many wait to be sent."""
        return len(self._waiting)

    def add(self, told: Told, delivery: Delivery) -> Settlement:
        """Send it soon. Thread: any. Raises ClosedError."""
        self._connection.check_open()
        settlement = Settlement()
        self._waiting.append((told, delivery, settlement))
        if threading.get_ident() == self._thread_id:
            self._wake()
        elif not self._wake_is_due:  # to wake a loop costs more than all else of this
            self._wake_is_due = True
            with suppress(RuntimeError):  # the loop is closed; so is the connection
                self._loop.call_soon_threadsafe(self._wake)
        return settlement

    def _wake(self) -> None:
        self._idle.clear()
        self._changed.set()

    async def run(self) -> None:
        """Send until cancelled. What is left then fails with ClosedError."""
        try:
            while True:
                await self._changed.wait()
                self._changed.clear()
                self._wake_is_due = False  # before the look: what is added from here on wakes again
                while self._waiting:
                    await self._send_some()
                self._idle.set()
        finally:
            self.fail(ClosedError("the receiver is closed"))

    async def flush(self) -> None:
        """Wait until all have their outcomes."""
        self._wake()
        await self._idle.wait()

    def fail(self, error: KvcqError) -> None:
        """Fail all that have no outcome."""
        waiting = [settlement for _, _, settlement in self._waiting]
        self._waiting.clear()
        for settlement in (*self._under_way, *waiting):
            if not settlement.done():
                settlement.set_exception(error)

    async def _send_some(self) -> None:
        by_told = defaultdict[Told, list[tuple["Delivery", Settlement]]](list)
        for _ in range(min(len(self._waiting), _A_ROUND)):
            told, delivery, settlement = self._waiting.popleft()
            by_told[told].append((delivery, settlement))
            self._under_way.append(settlement)
        sending = (self._send(told, part) for told, part in by_told.items())
        await asyncio.gather(*sending)
        self._under_way = []

    async def _send(self, told: Told, part: Sequence[tuple[Delivery, Settlement]]) -> None:
        deliveries = [delivery for delivery, _ in part]
        sent_s = monotonic()
        # For as long as it can be of use, also while the server restarts.
        left_s = max(delivery.until_s for delivery in deliveries) - sent_s
        timeout_s = max(self._connection.timeout_s, left_s)
        error: KvcqError | None = None
        outcomes: list[Outcome] = []
        received = [delivery.received for delivery in deliveries]
        try:
            match told:
                case Told("acknowledge"):
                    outcomes = await self._calls.acknowledge(
                        self._group, received, timeout_s=timeout_s
                    )
                case Told("give_back", delay_s, not_begun):
                    outcomes = await self._calls.give_back(
                        self._group,
                        received,
                        delay_s,
                        not_begun=not_begun,
                        timeout_s=timeout_s,
                    )
                case Told(_, seconds):
                    assert seconds is not None
                    outcomes = await self._calls.change_invisible(
                        self._group, received, seconds, timeout_s=timeout_s
                    )
        except KvcqError as failed:
            error = failed
        if told.what == "hold":
            for delivery, outcome in zip(deliveries, outcomes, strict=error is None):
                is_held = outcome is Outcome.DONE and told.seconds is not None
                delivery.until_s = sent_s + (told.seconds or 0.0) if is_held else 0.0
        else:
            self._settled(deliveries)
        if error is not None:
            logger.warning(
                "%d messages of group %s could not be settled (%s), and are delivered again when "
                "their time is over: %s",
                *(len(part), self._group, told.what, error),
            )
        for at, (_, settlement) in enumerate(part):
            if settlement.done():
                continue
            if error is not None:
                settlement.set_exception(error)
            else:
                settlement.set_result(outcomes[at])
