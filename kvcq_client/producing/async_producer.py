"""The producer, in an event loop."""

from __future__ import annotations

import asyncio
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.errors import BufferFullError, ClosedError, DeadlineError
from kvcq_client.producing.accumulator import Accumulator
from kvcq_client.producing.batch import SendingMany
from kvcq_client.producing.delivery import Delivery
from kvcq_client.transport import ForkedError, close_in_children

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from kvcq_client.producing.batch import Run, Sending
    from kvcq_client.producing.config import ProducerConfig
    from kvcq_client.transport import Connection
    from kvcq_client.values import Message, Placed


class ProducerCore:
    """What both faces of a producer share: the accumulator, the delivery, and the linger timer.

    `accumulator` may be touched from any thread; the rest is owned by the event loop.
    """

    def __init__(
        self, connection: Connection, config: ProducerConfig, loop: asyncio.AbstractEventLoop
    ) -> None:
        self.config = config
        self.accumulator = Accumulator(config, self._begun, self._ready)
        self.delivery = Delivery(connection, self.accumulator, config)
        self._loop = loop
        self._linger_s = config.linger_ms / 1000
        # Set under the accumulator's lock when a wake-up is on its way, so that a fast sender
        # causes one for many batches; cleared in the loop before it looks.
        self._wake_sent = False
        self._timer_runs = False
        self._task = loop.create_task(self.delivery.run(), name="put-delivery")
        close_in_children(self)

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self._wake_sent = self._timer_runs = True  # nobody is there to be woken
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

    async def close(self, timeout_s: float) -> None:
        """Deliver what is buffered; what is not acknowledged in time gets ClosedError.

        Failures that nobody asked for are logged.
        """
        self.accumulator.close(ClosedError("the producer is closed"))
        self.delivery.stop()
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(self._task)
        except TimeoutError:
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.delivery.unasked.tell()

    def full(self) -> BufferFullError:
        return BufferFullError(
            f"{self.accumulator.buffered_bytes} bytes wait to be acknowledged, and none was "
            f"for {self.config.max_block_s:g} s"
        )


class AsyncProducer:
    """Batches messages and delivers each once, in the order of `send`.

    `async with client.producer() as producer: await producer.send("orders", b"…")`

    `send` returns as soon as the message is buffered, and waits when the buffer is full; await
    what it returns for the acknowledgement. Made by `AsyncClient.producer`. Owned by its loop.
    """

    def __init__(self, core: ProducerCore, forget: Callable[[AsyncProducer], None]) -> None:
        self._core = core
        self._forget = forget
        self._add = core.accumulator.add

    async def send(
        self,
        topic: str,
        body: bytes,
        *,
        queue_id: int | None = None,
        tag: str = "",
        keys: Sequence[str] = (),
        light_queues: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time_ms: int | None = None,
    ) -> Sending:
        """The message is buffered. Fields: see Message.

        Raises ClosedError; BufferFullError after `max_block_s`; TypeError, ValueError.
        """
        fields = (topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms)
        sending = self._add(*fields)
        while sending is None:
            await self._wait_for_room()
            sending = self._add(*fields)
        return sending

    async def send_many(self, messages: Iterable[Message]) -> SendingMany:
        """All messages are buffered, in order. Raises as `send` does.

        TypeError and ValueError come before anything was buffered.
        """
        accumulator = self._core.accumulator
        checked = accumulator.check(messages)
        runs: list[Run] = []
        first = 0
        while first < len(checked):
            added = accumulator.add_checked(checked, first)
            runs += added
            first += sum(end - begin for _, begin, end in added)
            if first < len(checked):
                await self._wait_for_room()
        return SendingMany(runs)

    async def put(self, message: Message) -> Placed:
        """Send one message and wait until it is acknowledged. Raises its error."""
        many = await self.send_many([message])
        return (await many)[0]

    async def flush(self, timeout_s: float | None = None) -> None:
        """All that was sent has an outcome. Raises DeadlineError."""
        done = asyncio.get_running_loop().create_future()
        self._core.accumulator.when_idle(lambda: None if done.done() else done.set_result(None))
        try:
            async with asyncio.timeout(timeout_s):
                await done
        except TimeoutError:
            raise DeadlineError(f"not all was acknowledged within {timeout_s} s") from None

    @property
    def producer_id(self) -> str:
        """The name that the server knows this producer by."""
        return self._core.delivery.producer_id

    @property
    def next_sequence(self) -> int:
        """The number of the next message that leaves the buffer."""
        return self._core.delivery.next_sequence

    async def close(self, timeout_s: float | None = None) -> None:
        """Deliver what is buffered, then end. Repeatable.

        What is not acknowledged within `timeout_s` (None: the delivery timeout) fails with
        ClosedError.
        """
        limit_s = self._core.config.delivery_timeout_s if timeout_s is None else timeout_s
        self._forget(self)
        await self._core.close(limit_s)

    async def _wait_for_room(self) -> None:
        room = asyncio.get_running_loop().create_future()
        self._core.accumulator.when_room(lambda: None if room.done() else room.set_result(None))
        try:
            async with asyncio.timeout(self._core.config.max_block_s):
                await room
        except TimeoutError:
            raise self._core.full() from None

    async def __aenter__(self) -> AsyncProducer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
