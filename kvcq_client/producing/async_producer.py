"""The producer, in an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import checked
from kvcq_client.errors import DeadlineError
from kvcq_client.format import outgoing_or_message, outgoing_with, with_message_fields
from kvcq_client.producing.batch import SendingMany
from kvcq_client.producing.core import ProducerState
from kvcq_client.transport import AsyncClosing

if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Unpack

    from kvcq_client.format import Outgoing
    from kvcq_client.producing.batch import Part, Sending
    from kvcq_client.producing.core import ProducerCore
    from kvcq_client.transport import Waits
    from kvcq_client.values import Message, MessageFields, Placed


@checked(but=("send", "put"))  # the accumulator checks each message
class AsyncProducer(ProducerState, AsyncClosing):
    """Sends messages in batches, and stores each once; those of one queue in the order of `send`.

    Messages with the same `ordering_key` go to the same queue. Messages with neither a key nor a
    queue are distributed over the queues in turn, without an order among them.

    `async with client.producer() as producer: await producer.send("orders", b"…")`

    `send` returns when the message is buffered, and waits while the buffer is full. Await what it
    returns for the acknowledgement. Made by `AsyncClient.producer`. Owned by its event loop.
    """

    def __init__(self, core: ProducerCore, waits: Waits) -> None:
        super().__init__(core)
        self._waits = waits
        self._add = core.accumulator.add

    @with_message_fields
    async def send(self, /, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> Sending:
        """Put a message into the buffer. Fields: see Message.

        Raises ClosedError; BufferFullError after `max_block_s`; TypeError, ValueError.
        """
        return await self._buffered(outgoing_with(topic, body, **fields))

    async def _buffered(self, message: Outgoing) -> Sending:
        while (sending := self._add(message)) is None:
            await self._wait_for_room()
        return sending

    async def send_many(self, messages: Iterable[Message]) -> SendingMany:
        """Put all messages into the buffer, in order. Raises like `send`.

        TypeError and ValueError are raised before anything is buffered.
        """
        accumulator = self._core.accumulator
        checked = accumulator.check(messages)
        parts: list[Part] = []
        first = 0
        while first < len(checked):
            added = accumulator.add_checked(checked, first)
            if accumulator.has_sealed:
                accumulator.has_sealed = False
                self._waits.give_way()
            parts += added
            first += sum(end - begin for _, begin, end in added)
            if first < len(checked):
                await self._wait_for_room()
        return SendingMany(parts)

    @with_message_fields
    async def put(
        self, /, topic: str | Message, body: bytes | None = None, **fields: Unpack[MessageFields]
    ) -> Placed:
        """Send one message, and wait until it is acknowledged. Raises its error.

        Fields: see Message, which may also be given instead of all fields. If the call is
        cancelled, the message is still delivered.
        """
        sending = await self._buffered(outgoing_or_message(topic, body, fields))
        await self._waits.until(lambda wake: sending.add_done_callback(lambda _: wake()), None)
        return sending.result()

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until every message is acknowledged or has failed. Raises DeadlineError.

        Returns how many messages failed since the last `flush`; 0 means that all are stored. The
        future that `send` returned has the error.
        """
        if not await self._waits.until(self._core.accumulator.when_idle, timeout_s):
            raise DeadlineError(f"not all messages were acknowledged within {timeout_s} s")
        return self._core.delivery.failures.count()

    async def close(self, timeout_s: float | None = None) -> int:
        """Deliver buffered messages, then close. Repeatable.

        Messages not acknowledged within `timeout_s` (None: the delivery timeout) fail with
        ClosedError. Returns how many messages failed since the last `flush`. `with` drops that
        number, so failures whose result was never checked are also logged as a warning.
        """
        return await self._waits.end(self._core.close(timeout_s)) or 0

    async def _wait_for_room(self) -> None:
        core = self._core
        if not await self._waits.until(core.accumulator.when_room, core.config.max_block_s):
            raise core.full()
