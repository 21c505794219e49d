"""Batches acknowledgements and other settlements of deliveries.

While calls are in progress, further settlements wait, and are sent together afterwards. So batches
grow with the load.

An acknowledgement goes with the next receive if there is one: one call, and one record of the
server's log, instead of two. Those of `with delivery:` and `run`, whose outcome no caller waits
for, wait for such a receive, but at most ALONE_S. All others are sent at once.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import defaultdict, deque
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple

from kvcq_client.calls import HANDLES_OF_A_RECEIVE
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
#: How long an acknowledgement waits for a receive that takes it along.
ALONE_S = 0.01


Part = list[tuple["Delivery", Settlement]]


class Told(NamedTuple):
    """A settlement of a delivery."""

    what: str  # acknowledge, give_back or hold
    seconds: float | None = None  # the delay, or the time to hold it
    not_begun: bool = False  # an argument of give_back


class Settlements:
    """Sends them. `add` may be called on any thread; the rest is owned by the event loop."""

    def __init__(
        self,
        connection: Connection,
        calls: Calls,
        group: str,
        settled: Callable[[Sequence[Delivery]], None],
        is_taken_along: Callable[[], bool],
    ) -> None:
        """`settled`: called with deliveries that were acknowledged or given back, or failed.
        `is_taken_along`: whether a receive comes that takes acknowledgements along."""
        self._connection = connection
        self._calls = calls
        self._group = group
        self._settled = settled
        self._is_taken_along = is_taken_along
        self._loop = asyncio.get_running_loop()
        self._thread_id = threading.get_ident()
        self._waiting: deque[tuple[Told, Delivery, Settlement]] = deque()
        self._under_way: set[Settlement] = set()
        self._changed = asyncio.Event()
        self._is_urgent = False  # something waits that is to be sent now; set by any thread
        self._wake_is_due = False  # set by any thread, after its append to `_waiting`
        self._idle = asyncio.Event()
        self._idle.set()

    def __len__(self) -> int:
        """How many wait to be sent."""
        return len(self._waiting)

    def add(self, told: Told, delivery: Delivery, *, may_wait: bool = False) -> Settlement:
        """Send it now, or soon if it may wait. Thread: any. Raises ClosedError."""
        self._connection.check_open()
        settlement = Settlement()
        self._waiting.append((told, delivery, settlement))
        if may_wait or self._is_urgent:
            self._wake_soon()
        else:
            self.hurry()
        return settlement

    def hurry(self) -> None:
        """Let nothing wait. Thread: any."""
        self._is_urgent = True
        self._wake_is_due = False
        self._wake_soon()

    def _wake_soon(self) -> None:
        if threading.get_ident() == self._thread_id:
            self._wake()
        elif not self._wake_is_due:  # waking a loop costs more than everything else here
            self._wake_is_due = True
            with suppress(RuntimeError):  # the loop is closed; so is the connection
                self._loop.call_soon_threadsafe(self._wake)

    def wake_if_waiting(self) -> None:
        """Look again whether a receive comes. Owned by the event loop."""
        if self._waiting:
            self._wake()

    def _wake(self) -> None:
        self._idle.clear()
        self._changed.set()

    async def run(self) -> None:
        """Send until cancelled. What is left then fails with ClosedError."""
        try:
            while True:
                await self._changed.wait()
                while self._waiting:
                    await self._until_due()
                    await self._send_some()
                self._changed.clear()
                self._wake_is_due = False  # before the look: later additions wake it again
                if self._waiting:
                    self._changed.set()
                elif not self._under_way:
                    self._idle.set()
        finally:
            self.fail(ClosedError("the receiver is closed"))

    async def flush(self) -> None:
        """Wait until all have their outcomes."""
        self._is_urgent = True
        self._wake()
        await self._idle.wait()

    def fail(self, error: KvcqError) -> None:
        """Fail all settlements that have no outcome yet."""
        waiting = [settlement for _, _, settlement in self._waiting]
        self._waiting.clear()
        for settlement in (*self._under_way, *waiting):
            if not settlement.done():
                settlement.set_exception(error)

    # --- with a receive --------------------------------------------------------------------

    def take(self) -> Part:
        """Take acknowledgements to send with a receive. Must be followed by `taken` or
        `put_back`."""
        part: Part = []
        others: list[tuple[Told, Delivery, Settlement]] = []
        while self._waiting and len(part) < HANDLES_OF_A_RECEIVE:
            told, delivery, settlement = each = self._waiting.popleft()
            if told.what == "acknowledge":
                part.append((delivery, settlement))
                self._under_way.add(settlement)
            else:
                others.append(each)
        self._waiting.extendleft(reversed(others))
        return part

    def taken(self, part: Part, outcomes: Sequence[Outcome]) -> None:
        """Set the outcomes of the settlements in `part`."""
        if part:
            self._answer(Told("acknowledge"), part, outcomes, None)
            self._wake()

    def put_back(self, part: Part) -> None:
        """The receive failed: they are sent by a call of their own."""
        if part:
            self._under_way.difference_update(settlement for _, settlement in part)
            self._waiting.extendleft((Told("acknowledge"), *each) for each in reversed(part))
            self.hurry()

    # --- alone -----------------------------------------------------------------------------

    async def _until_due(self) -> None:
        """Wait for a receive to take along what may wait for it."""
        end_s = self._loop.time() + ALONE_S
        while self._waiting and not self._is_urgent and self._is_taken_along():
            self._changed.clear()
            left_s = end_s - self._loop.time()
            if left_s <= 0:
                return
            with suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._changed.wait()

    async def _send_some(self) -> None:
        by_told = defaultdict[Told, Part](list)
        self._is_urgent = False
        for _ in range(min(len(self._waiting), _A_ROUND)):
            told, delivery, settlement = self._waiting.popleft()
            by_told[told].append((delivery, settlement))
            self._under_way.add(settlement)
        sending = (self._send(told, part) for told, part in by_told.items())
        await asyncio.gather(*sending)

    async def _send(self, told: Told, part: Part) -> None:
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
        if error is not None:
            logger.warning(
                "%d messages of group %s could not be settled (%s), and are delivered again when "
                "their time is over: %s",
                *(len(part), self._group, told.what, error),
            )
        self._answer(told, part, outcomes, error)

    def _answer(
        self, told: Told, part: Part, outcomes: Sequence[Outcome], error: KvcqError | None
    ) -> None:
        if told.what != "hold":
            self._settled([delivery for delivery, _ in part])
        for at, (_, settlement) in enumerate(part):
            self._under_way.discard(settlement)
            if settlement.done():
                continue
            if error is not None:
                settlement.set_exception(error)
            else:
                settlement.set_result(outcomes[at])
