"""The producer, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.format import outgoing_with, with_message_fields
from kvcq_client.producing.async_producer import AsyncProducer
from kvcq_client.producing.core import ProducerState
from kvcq_client.transport import Blocking, Closing, ThreadWaits, blocking, finished

if TYPE_CHECKING:
    from typing import Unpack

    from kvcq_client.producing.batch import Sending
    from kvcq_client.producing.core import ProducerCore
    from kvcq_client.transport import LoopThread
    from kvcq_client.values import MessageFields


class Producer(ProducerState, Blocking[AsyncProducer], Closing):
    """Sends messages in batches, and stores each once; those of one queue in the order of `send`.

    Messages with the same `ordering_key` go to the same queue. Messages with neither a key nor a
    queue are distributed over the queues in turn, without an order among them.

    `with client.producer() as producer: producer.send("orders", b"…")`

    `send` returns when the message is buffered, and blocks while the buffer is full. `result()` of
    what it returns waits for the acknowledgement. Made by `Client.producer`. Thread-safe; the
    messages of each thread keep their order.
    """

    def __init__(self, core: ProducerCore, thread: LoopThread) -> None:
        ProducerState.__init__(self, core)
        self._waits = ThreadWaits(thread)
        Blocking.__init__(self, AsyncProducer(core, self._waits), finished)
        self._accumulator = core.accumulator
        self._add = core.accumulator.add

    @with_message_fields
    def send(self, /, topic: str, body: bytes, **fields: Unpack[MessageFields]) -> Sending:
        """Put a message into the buffer. Fields: see Message.

        Raises ClosedError; BufferFullError after `max_block_s`; TypeError, ValueError.
        """
        # Not through `_buffered`: a coroutine for each message is much slower.
        message = outgoing_with(topic, body, **fields)
        sending = self._add(message)
        if self._accumulator.has_sealed:
            self._accumulator.has_sealed = False
            self._waits.give_way()
        return self._buffered(message) if sending is None else sending

    send_many = blocking(AsyncProducer.send_many)
    put = blocking(AsyncProducer.put)
    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)
    _buffered = blocking(AsyncProducer._buffered)  # noqa: SLF001 - the other face of the same class
