"""The state that Producer and AsyncProducer share: accumulator, delivery and linger timer."""

from __future__ import annotations

import asyncio
from contextlib import suppress
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
    """Owned by the event loop, except for `accumulator`, which is thread-safe."""

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
        self._timer: asyncio.TimerHandle | None = None  # set in the loop, read under the lock
        self._task = in_background(self.delivery.run(), "put-delivery")
        close_in_children(self)

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self.accumulator.after_fork(error)
        self.delivery.after_fork(error)

    def _begun(self) -> None:
        if self._timer is None:
            self._soon(self._linger)

    def _ready(self) -> None:
        self._soon(self.delivery.wake)

    def _soon(self, callback: Callable[[], None]) -> None:
        """Call back in the loop; ignored once it is closed. Done for each batch, since a flag that
        it was done could be left set by an interrupt, and no later batch would be sent."""
        with suppress(RuntimeError):
            self._loop.call_soon_threadsafe(callback)

    def _linger(self) -> None:
        """Send the open batch when its first message is old enough."""
        # First, so that a batch that begins now sets the timer again.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        now_s = monotonic()
        begun_s = self.accumulator.seal_older_than(now_s - self._linger_s)
        if begun_s is not None:
            wait_s = max(0.0, begun_s + self._linger_s - now_s)
            self._timer = self._loop.call_later(wait_s, self._linger)

    async def close(self, timeout_s: float | None = None) -> int:
        """Deliver buffered messages; those not acknowledged in time fail with ClosedError.

        `timeout_s` None: the delivery timeout. Logs failures that were not checked. Returns how
        many messages failed since the last `flush`.
        """
        self._forget(self)
        limit_s = self.config.delivery_timeout_s if timeout_s is None else timeout_s
        self.accumulator.close(ClosedError("the producer is closed"))
        self.delivery.stop()
        try:
            await asyncio.wait((self._task,), timeout=limit_s)
        except asyncio.CancelledError:  # later failures are logged all the same
            self._task.add_done_callback(lambda _: self.delivery.failures.log_unasked())
            raise
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.delivery.failures.log_unasked()
        return self.delivery.failures.count()

    def full(self) -> BufferFullError:
        return BufferFullError(
            f"the send buffer was full for {self.config.max_block_s:g} s "
            f"({self.accumulator.buffered_bytes} bytes unacknowledged)"
        )


class ProducerState:
    """Properties of Producer and AsyncProducer."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core

    @property
    def producer_id(self) -> str:
        """The name under which the server knows this producer. After messages with an unknown
        outcome had to be given up, it becomes `NAME.` and a random part."""
        return self._core.delivery.producer_id

    @property
    def next_sequence(self) -> int | None:
        """The number of the next message that is sent. With a `producer_id` and no
        `first_sequence`: None until the server has been asked for the first number."""
        return self._core.delivery.next_sequence
