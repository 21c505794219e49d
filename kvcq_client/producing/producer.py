"""The producer, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.arguments import check_known
from kvcq_client.producing.async_producer import AsyncProducer
from kvcq_client.producing.core import ProducerState
from kvcq_client.transport import Blocking, Closing, ThreadWaits, blocking, finished

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Never

    from kvcq_client.producing.batch import Sending
    from kvcq_client.producing.core import ProducerCore
    from kvcq_client.transport import LoopThread


class Producer(ProducerState, Blocking[AsyncProducer], Closing):
    """Batches messages and stores each once; those of one queue in the order of `send`.

    Messages with the same `ordering_key` stand in one queue. Those with neither a key nor a queue
    go to the queues in turn, and there is no order among them.

    `with client.producer() as producer: producer.send("orders", b"…")`

    `send` returns as soon as the message is buffered, and blocks when the buffer is full; what it
    returns has `result()` for the acknowledgement. Made by `Client.producer`. Thread: any; each
    thread's messages keep their order.
    """

    def __init__(self, core: ProducerCore, thread: LoopThread) -> None:
        ProducerState.__init__(self, core)
        self._waits = ThreadWaits(thread)
        Blocking.__init__(self, AsyncProducer(core, self._waits), finished)
        self._accumulator = core.accumulator
        self._add = core.accumulator.add

    def send(
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
        # Written out: a coroutine for each message takes two thirds more.
        sending = self._add(
            topic,
            body,
            queue_id,
            tag,
            keys,
            light_queues,
            properties,
            flag,
            born_time_ms,
            ordering_key,
        )
        if self._accumulator.has_sealed:
            self._accumulator.has_sealed = False
            self._waits.give_way()
        if sending is not None:
            return sending
        return self._send_when_there_is_room(
            topic,
            body,
            ordering_key=ordering_key,
            queue_id=queue_id,
            tag=tag,
            keys=keys,
            light_queues=light_queues,
            properties=properties,
            flag=flag,
            born_time_ms=born_time_ms,
        )

    send_many = blocking(AsyncProducer.send_many)
    put = blocking(AsyncProducer.put)
    flush = blocking(AsyncProducer.flush)
    close = blocking(AsyncProducer.close)
    _send_when_there_is_room = blocking(AsyncProducer.send)
