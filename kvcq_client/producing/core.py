"""What both faces of a producer share: the accumulator, the delivery, and the linger timer."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.errors import BufferFullError, ClosedError
from kvcq_client.producing.accumulator import Accumulator
from kvcq_client.producing.delivery import Delivery
from kvcq_client.transport import ForkedError, close_in_children, in_background

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.transport import Connection


class ProducerCore:
    """Made and closed in the event loop.

    `accumulator` may be touched from any thread; the rest is owned by the event loop.
    """

    def __init__(
        self,
        connection: Connection,
        config: ProducerConfig,
        forget: Callable[[ProducerCore], None],
    ) -> None:
        self.config = config
        self._forget = forget
        self.accumulator = Accumulator(config, self._begun, self._ready)
        self.delivery = Delivery(connection, self.accumulator, config)
        self._loop = asyncio.get_running_loop()
        self._linger_s = config.linger_ms / 1000
        # Set under the accumulator's lock when a wake-up is on its way, so that a fast sender
        # causes one for many batches; cleared in the loop before it looks.
        self._wake_sent = False
        self._timer_runs = False
        self._task = in_background(self.delivery.run(), "put-delivery")
        close_in_children(self)

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self._wake_sent = self._timer_runs = True  # there is no loop to wake
        self.accumulator.after_fork(error)
        self.delivery.after_fork(error)

    def _begun(self) -> None:
        if not self._timer_runs:
            self._timer_runs = True
            self._call_soon(self._linger)

    def _ready(self) -> None:
        if not self._wake_sent:
            self._wake_sent = True
            self._call_soon(self._wake)

    def _call_soon(self, callback: Callable[[], None]) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback)

    def _wake(self) -> None:
        self._wake_sent = False
        self.delivery.wake()

    def _linger(self) -> None:
        """Let a batch go when its first message has waited long enough."""
        # Cleared first: a batch that begins from here on starts the timer again.
        self._timer_runs = False
        now_s = monotonic()
        begun_s = self.accumulator.seal_older_than(now_s - self._linger_s)
        if begun_s is not None and not self._timer_runs:
            self._timer_runs = True
            self._loop.call_later(max(0.0, begun_s + self._linger_s - now_s), self._linger)

    async def close(self, timeout_s: float | None = None) -> None:
        """Deliver what is buffered; what is not acknowledged in time gets ClosedError.

        None: the delivery timeout. Failures whose outcome was not asked for are logged.
        """
        self._forget(self)
        limit_s = self.config.delivery_timeout_s if timeout_s is None else timeout_s
        self.accumulator.close(ClosedError("the producer is closed"))
        self.delivery.stop()
        try:
            async with asyncio.timeout(limit_s):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.delivery.unasked.tell()

    def full(self) -> BufferFullError:
        return BufferFullError(
            f"the send buffer was full for {self.config.max_block_s:g} s "
            f"({self.accumulator.buffered_bytes} bytes unacknowledged)"
        )


class ProducerState:
    """What a producer tells of itself, in both faces."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    @property
    def producer_id(self) -> str:
        """The name that the server knows this producer by."""
        return self._core.delivery.producer_id

    @property
    def next_sequence(self) -> int:
        """The number of the next message that leaves the buffer."""
        return self._core.delivery.next_sequence
