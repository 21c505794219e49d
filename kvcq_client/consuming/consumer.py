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
    """Reads messages of many queues; those of each queue in order.

    `for message in consumer` never ends, and waits for new messages; `to_end()` ends at
    the ends of the queues when it was called. After a lost connection the consumer reconnects and
    continues after the last message. Made by `Client.consumer`. For one reader at a time, on any
    thread; records are decoded on that thread, one batch at a time.
    """

    def __init__(self, core: ConsumerCore, thread: LoopThread) -> None:
        ConsumerState.__init__(self, core)
        Blocking.__init__(self, AsyncConsumer(core, ThreadWaits(thread)), finished)
        self._thread = thread

    def __iter__(self) -> Consumer:
        return self

    def __next__(self) -> StoredMessage:
        """The next message. Raises the error of a queue; the other queues can still be read."""
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
        """The next messages of one queue; [] if none arrive within `timeout_s`."""
        # Not through AsyncConsumer's: Ctrl-C between its return and ours would skip the batch.
        core = self._core
        if core.index >= len(core.messages) and not self._wait(timeout_s):
            return []
        return core.rest_of_batch()

    def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as arrive within `timeout_s`.

        If cancelled or interrupted, none of them counts as read. An error is raised when there is
        nothing to read before it.
        """
        self._gather(count, timeout_s)
        return self._core.read(count)

    def to_end(self, idle_timeout_s: float = 30.0) -> Iterator[StoredMessage]:
        """Yield all messages up to the current ends of the queues, perhaps with some newer ones.

        A message counts as read once it is yielded, so reading continues after it if the loop is
        left. Raises DeadlineError if nothing arrives for `idle_timeout_s` before the end.
        """
        self._aim(idle_timeout_s)
        while self._before_end(idle_timeout_s):
            yield from self._core.one_by_one()

    def batches_to_end(self, idle_timeout_s: float = 30.0) -> Iterator[list[StoredMessage]]:
        """Like `to_end`, in batches of one queue."""
        self._aim(idle_timeout_s)
        while self._before_end(idle_timeout_s):
            yield self._core.rest_of_batch()

    def leave(self, queues: Iterable[str | Queue]) -> None:
        """Stop following queues, light queues, or all queues of a topic, by its name."""

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
