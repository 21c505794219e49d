"""The producer, for blocking code."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from kvcq_client.errors import DeadlineError
from kvcq_client.producing.batch import SendingMany

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from types import TracebackType

    from kvcq_client.producing.async_producer import ProducerCore
    from kvcq_client.producing.batch import Run, Sending
    from kvcq_client.transport import LoopThread
    from kvcq_client.values import Message, Placed


class Producer:
    """Batches messages and delivers each once, in the order of `send`.

    `with client.producer() as producer: producer.send("orders", b"…")`

    `send` returns as soon as the message is buffered, and blocks when the buffer is full; what it
    returns has `result()` for the acknowledgement. Made by `Client.producer`. Thread: any;
    messages of one thread keep their order.
    """

    def __init__(
        self, core: ProducerCore, thread: LoopThread, forget: Callable[[Producer], None]
    ) -> None:
        self._core = core
        self._thread = thread
        self._forget = forget
        self._add = core.accumulator.add

    def send(
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
        sending = self._add(
            topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms
        )
        while sending is None:
            self._wait_for_room()
            sending = self._add(
                topic, body, queue_id, tag, keys, light_queues, properties, flag, born_time_ms
            )
        return sending

    def send_many(self, messages: Iterable[Message]) -> SendingMany:
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
                self._wait_for_room()
        return SendingMany(runs)

    def put(self, message: Message) -> Placed:
        """Send one message and wait until it is acknowledged. Raises its error."""
        return self.send_many([message]).result()[0]

    def flush(self, timeout_s: float | None = None) -> None:
        """All that was sent has an outcome. Raises DeadlineError."""
        idle = threading.Event()
        self._core.accumulator.when_idle(idle.set)
        if not idle.wait(timeout_s):
            raise DeadlineError(f"not all was acknowledged within {timeout_s} s")

    @property
    def producer_id(self) -> str:
        """The name that the server knows this producer by."""
        return self._core.delivery.producer_id

    @property
    def next_sequence(self) -> int:
        """The number of the next message that leaves the buffer."""
        return self._core.delivery.next_sequence

    def close(self, timeout_s: float | None = None) -> None:
        """Deliver what is buffered, then end. Repeatable.

        What is not acknowledged within `timeout_s` (None: the delivery timeout) fails with
        ClosedError.
        """
        limit_s = self._core.config.delivery_timeout_s if timeout_s is None else timeout_s
        self._forget(self)
        if self._thread.is_forked:
            return
        self._thread.run(self._core.close(limit_s))

    def _wait_for_room(self) -> None:
        room = threading.Event()
        self._core.accumulator.when_room(room.set)
        if not room.wait(self._core.config.max_block_s):
            raise self._core.full()

    def __enter__(self) -> Producer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
