"""The producer, in an event loop."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import check_known, checked
from kvcq_client.errors import DeadlineError
from kvcq_client.format import given_as
from kvcq_client.producing.batch import SendingMany
from kvcq_client.producing.core import ProducerState
from kvcq_client.transport import AsyncClosing

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Never

    from kvcq_client.format import Outgoing
    from kvcq_client.producing.batch import Run, Sending
    from kvcq_client.producing.core import ProducerCore
    from kvcq_client.transport import Waits
    from kvcq_client.values import Message, Placed


@checked(but=("send", "put"))  # each message is checked as it is added
class AsyncProducer(ProducerState, AsyncClosing):
    """Batches messages and stores each once; those of one queue in the order of `send`.

    Messages with the same `ordering_key` stand in one queue. Those with neither a key nor a queue
    go to the queues in turn, and there is no order among them.

    `async with client.producer() as producer: await producer.send("orders", b"…")`

    `send` returns as soon as the message is buffered, and waits when the buffer is full; await
    what it returns for the acknowledgement. Made by `AsyncClient.producer`. Owned by its loop.
    """

    def __init__(self, core: ProducerCore, waits: Waits) -> None:
        super().__init__(core)
        self._waits = waits
        self._add = core.accumulator.add

    async def send(
        self,
        /,
        topic: str,
        body: bytes,
        *,
        ordering_key: str = "",
        queue_id: int | None = None,
        tag: str = "",
        keys: Sequence[str] = (),
        light_queues: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time_ms: int | None = None,
        **unknown: Never,
    ) -> Sending:
        """The message is buffered. Fields: see Message.

        Raises ClosedError; BufferFullError after `max_block_s`; TypeError, ValueError.
        """
        if unknown:
            check_known(unknown)
        texts = (tag, keys, light_queues, properties)
        return await self._buffered(
            (topic, body, queue_id, *texts, flag, born_time_ms, ordering_key)
        )

    async def _buffered(self, message: Outgoing) -> Sending:
        while (sending := self._add(*message)) is None:
            await self._wait_for_room()
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
            if accumulator.has_sealed:
                accumulator.has_sealed = False
                self._waits.give_way()
            runs += added
            first += sum(end - begin for _, begin, end in added)
            if first < len(checked):
                await self._wait_for_room()
        return SendingMany(runs)

    async def put(
        self,
        /,
        topic: str | Message,
        body: bytes | None = None,
        *,
        ordering_key: str = "",
        queue_id: int | None = None,
        tag: str = "",
        keys: Sequence[str] = (),
        light_queues: Sequence[str] = (),
        properties: Mapping[str, str] | None = None,
        flag: int = 0,
        born_time_ms: int | None = None,
        **unknown: Never,
    ) -> Placed:
        """Send one message and wait until it is acknowledged. Raises its error.

        Fields: see Message, which may also stand in place of all of them. When the wait is
        cancelled the message is still delivered.
        """
        check_known(unknown)
        texts = (tag, keys, light_queues, properties)
        given = given_as(topic, body, queue_id, *texts, flag, born_time_ms, ordering_key)
        sending = await self._buffered(given)
        await self._waits.until(lambda wake: sending.add_done_callback(lambda _: wake()), None)
        return sending.result()

    async def flush(self, timeout_s: float | None = None) -> int:
        """Wait until every message that was sent has an outcome. Raises DeadlineError.

        Returns how many messages failed since the last `flush`: 0 says that all are stored. Why one
        failed is in what `send` returned.
        """
        if not await self._waits.until(self._core.accumulator.when_idle, timeout_s):
            raise DeadlineError(f"not all was acknowledged within {timeout_s} s")
        return self._core.delivery.failures.count()

    async def close(self, timeout_s: float | None = None) -> int:
        """Deliver what is buffered, then end. Repeatable.

        What is not acknowledged within `timeout_s` (None: the delivery timeout) fails with
        ClosedError. Returns how many messages failed since the last `flush`. At the end of `with`
        nobody has that number: failures whose outcome was not asked for are logged as a warning.
        """
        return await self._waits.end(self._core.close(timeout_s)) or 0

    async def _wait_for_room(self) -> None:
        core = self._core
        if not await self._waits.until(core.accumulator.when_room, core.config.max_block_s):
            raise core.full()
