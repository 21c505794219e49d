"""The consumer, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.consuming.async_consumer import AsyncConsumer
from kvcq_client.consuming.core import ConsumerState
from kvcq_client.transport import (
    Blocking,
    Closing,
    ThreadWaits,
    blocking,
    finished,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from kvcq_client.consuming.core import ConsumerCore
    from kvcq_client.format import StoredMessage
    from kvcq_client.transport import LoopThread
    from kvcq_client.values import Queue


class Consumer(ConsumerState, Blocking[AsyncConsumer], Closing):
    """Reads many queues as one run of messages; each queue in its order.

    `for message in consumer` never ends, and waits when there is nothing; `to_end()` ends at
    what was there when it began. After a lost connection it reconnects, and reading continues
    behind the last message. Made by `Client.consumer`. Thread: one reader; records are decoded
    on its thread, a batch at a time.
    """

    def __init__(self, core: ConsumerCore, thread: LoopThread) -> None:
        ConsumerState.__init__(self, core)
        Blocking.__init__(self, AsyncConsumer(core, ThreadWaits(thread)), finished)
        self._thread = thread

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> StoredMessage:
        """The next message. Raises the error of a queue; the others can then be read on."""
        core = self._core
        at = core.index
        messages = core.messages
        if at >= len(messages):
            self._wait(None)
            messages, at = core.messages, 0
        # No call from here on: Ctrl-C comes before the message counts as read, or to the caller.
        core.index = at + 1
        return messages[at]

    def batch(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages of one queue, as they came; [] when there were none in time."""
        # As AsyncConsumer's, in this frame: Ctrl-C between there and here would skip the batch.
        core = self._core
        if core.index >= len(core.messages) and not self._wait(timeout_s):
            return []
        return core.rest_of_batch()

    def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as came in time.

        Cancelled or interrupted it has read none. The error of a queue, or of all, is raised when
        nothing is to be read before it.
        """
        self._gather(count, timeout_s)
        return self._core.read(count)

    def to_end(self, idle_timeout_s: float = 30.0) -> Iterator[StoredMessage]:
        """All that is there now and was not read; what comes meanwhile may be among it.

        A message is read once it was handed out: who leaves the loop goes on behind it. Raises
        DeadlineError when nothing arrives for `idle_timeout_s` before the end.
        """
        self._aim(idle_timeout_s)
        while self._before_end(idle_timeout_s):
            yield from self._core.one_by_one()

    def batches_to_end(self, idle_timeout_s: float = 30.0) -> Iterator[list[StoredMessage]]:
        """As `to_end`, in batches of one queue each."""
        self._aim(idle_timeout_s)
        while self._before_end(idle_timeout_s):
            yield self._core.rest_of_batch()

    def leave(self, queues: Iterable[str | Queue]) -> None:
        """Follow these no longer: queues, light queues, or all queues of a topic, by its name."""

        async def leave() -> None:
            self._core.leave(queues)

        self._thread.run(leave())

    _wait = blocking(AsyncConsumer._wait)  # noqa: SLF001 - the other face of the same class
    _gather = blocking(AsyncConsumer._gather)  # noqa: SLF001 - likewise
    _aim = blocking(AsyncConsumer._aim)  # noqa: SLF001 - likewise
    _before_end = blocking(AsyncConsumer._before_end)  # noqa: SLF001 - likewise
    follow = blocking(AsyncConsumer.follow)
    seek = blocking(AsyncConsumer.seek)
    commit = blocking(AsyncConsumer.commit)
    close = blocking(AsyncConsumer.close)
