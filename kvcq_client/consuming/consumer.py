"""The consumer, for blocking code."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from types import TracebackType

    from kvcq_client.consuming.core import ConsumerCore, Wanted
    from kvcq_client.format import StoredMessage
    from kvcq_client.transport import LoopThread
    from kvcq_client.values import Queue, Start


class Consumer:
    """Reads many queues as one run of messages; each queue in its order.

    `for message in consumer` goes on for ever, and waits when there is nothing; `to_end()` ends
    at what was there when it began. A lost connection is made again, and reading goes on behind
    the last message. Made by `Client.consumer`. Thread: one reader; records are decoded on its
    thread, a batch at a time.
    """

    def __init__(
        self, core: ConsumerCore, thread: LoopThread, forget: Callable[[Consumer], None]
    ) -> None:
        self._core = core
        self._thread = thread
        self._forget = forget

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
        core.index = at + 1
        return messages[at]

    def batch(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages of one queue, as they came; [] when there were none in time."""
        core = self._core
        if core.index >= len(core.messages) and not self._wait(timeout_s):
            return []
        return core.rest_of_batch()

    def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as came in time."""
        end_s = None if timeout_s is None else monotonic() + timeout_s
        core = self._core
        taken: list[StoredMessage] = []
        while len(taken) < count:
            if core.index >= len(core.messages) and not self._wait(
                None if end_s is None else max(0.0, end_s - monotonic())
            ):
                break
            part = core.messages[core.index : core.index + count - len(taken)]
            core.index += len(part)
            taken += part
        return taken

    def to_end(self, idle_timeout_s: float = 30.0) -> Iterator[StoredMessage]:
        """All that is there now and was not read; what comes meanwhile may be among it.

        Raises DeadlineError when nothing came for `idle_timeout_s` before that.
        """
        for batch in self.batches_to_end(idle_timeout_s):
            yield from batch

    def batches_to_end(self, idle_timeout_s: float = 30.0) -> Iterator[list[StoredMessage]]:
        """As `to_end`, in batches of one queue each."""
        core = self._core
        core.aim_at(self._thread.run(core.ends()))
        while True:
            rest = core.rest_of_batch()
            if rest:
                yield rest
            elif core.next_batch() is None:
                if not core.behind:
                    return
                if not self._fetched(idle_timeout_s):
                    raise core.stuck(idle_timeout_s)
            elif not core.behind:
                return

    @property
    def queue(self) -> Queue | None:
        """The queue of the last message or batch; a light queue where one was read."""
        return self._core.queue

    def positions(self) -> dict[Queue, int]:
        """The next offset of each queue: behind the last message that was handed out."""
        return self._core.positions()

    def follow(self, wanted: Wanted) -> None:
        """Follow more queues; one that is followed already begins anew."""
        self._thread.run(self._core.follow(wanted))

    def leave(self, queues: Iterable[Queue]) -> None:
        """Follow these no longer."""

        async def leave() -> None:
            self._core.leave(queues)

        self._thread.run(leave())

    def seek(self, to: Mapping[Queue, int] | Start) -> None:
        """Go on from these offsets, or with all queues from one end or the committed offsets."""
        self._thread.run(self._core.seek(to))

    def commit(self, positions: Mapping[Queue, int] | None = None) -> None:
        """Commit for the group, durably: these positions, or what was read so far.

        Raises ValueError without a group.
        """
        chosen = self.positions() if positions is None else positions
        self._thread.run(self._core.commit(chosen))

    def close(self) -> None:
        """Stop. Commits nothing. Repeatable."""
        self._forget(self)
        if self._thread.is_forked:
            return
        self._thread.run(self._core.close())

    def _wait(self, timeout_s: float | None) -> bool:
        """Whether there is a next batch, nothing of it read, in time."""
        end_s = None if timeout_s is None else monotonic() + timeout_s
        while self._core.next_batch() is None:
            left_s = None if end_s is None else end_s - monotonic()
            if left_s is not None and left_s <= 0:
                return False
            if not self._fetched(left_s):
                return False
        return True

    def _fetched(self, timeout_s: float | None) -> bool:
        """Whether something came in time."""
        come = threading.Event()
        self._core.subscription.when_fetched(come.set)
        return come.wait(timeout_s)

    def __enter__(self) -> Consumer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
