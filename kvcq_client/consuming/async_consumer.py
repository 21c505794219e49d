"""The consumer, in an event loop."""

from __future__ import annotations

from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.arguments import checked, number, whole
from kvcq_client.consuming.core import ConsumerState
from kvcq_client.transport import AsyncClosing

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Mapping

    from kvcq_client.consuming.core import ConsumerCore, Wanted
    from kvcq_client.format import StoredMessage
    from kvcq_client.transport import Waits
    from kvcq_client.values import Queue, Start


@checked()
class AsyncConsumer(ConsumerState, AsyncClosing):
    """Reads many queues as one run of messages; each queue in its order.

    `async for message in consumer` never ends, and waits when there is nothing; `to_end()` ends at
    what was there when it began. After a lost connection it reconnects, and reading continues
    behind the last message. Made by `AsyncClient.consumer`. Owned by its loop; one reader.
    """

    def __init__(self, core: ConsumerCore, waits: Waits) -> None:
        super().__init__(core)
        self._waits = waits

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> StoredMessage:
        """The next message. Raises the error of a queue; the others can then be read on."""
        core = self._core
        at = core.index
        messages = core.messages
        if at >= len(messages):
            await self._wait(None)
            messages, at = core.messages, 0
        core.index = at + 1
        return messages[at]

    async def batch(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages of one queue, as they came; [] when there were none in time."""
        core = self._core
        if core.index >= len(core.messages) and not await self._wait(timeout_s):
            return []
        return core.rest_of_batch()

    async def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as came in time.

        Cancelled or interrupted it has read none. The error of a queue, or of all, is raised when
        nothing is to be read before it.
        """
        await self._gather(count, timeout_s)
        return self._core.read(count)

    async def _gather(self, count: int, timeout_s: float | None) -> None:
        """So many messages are at hand, none of them read, or as many as came in time."""
        if whole("count", count) < 0:
            raise ValueError(f"count: {count} is below 0")
        end_s = _end_of(timeout_s)
        core = self._core
        while (missing := count - core.at_hand()) > 0:
            if missing < count and core.is_error_next():
                return
            came = core.fetch()
            while came is not None and (missing := missing - came) > 0 and not core.is_error_next():
                came = core.fetch()
            left_s = None if end_s is None else max(0.0, end_s - monotonic())
            if left_s == 0.0 or (came is None and not await self._fetched(left_s)):
                return

    async def to_end(self, idle_timeout_s: float = 30.0) -> AsyncIterator[StoredMessage]:
        """All that is there now and was not read; what comes meanwhile may be among it.

        A message is read once it was handed out: who leaves the loop goes on behind it. Raises
        DeadlineError when nothing arrives for `idle_timeout_s` before the end.
        """
        await self._aim(idle_timeout_s)
        while await self._before_end(idle_timeout_s):
            for message in self._core.one_by_one():
                yield message

    async def batches_to_end(
        self, idle_timeout_s: float = 30.0
    ) -> AsyncIterator[list[StoredMessage]]:
        """As `to_end`, in batches of one queue each."""
        await self._aim(idle_timeout_s)
        while await self._before_end(idle_timeout_s):
            yield self._core.rest_of_batch()

    async def _aim(self, idle_timeout_s: float) -> None:
        """At the present ends of all queues."""
        number("idle_timeout_s", idle_timeout_s)
        self._core.aim_at(await self._waits.in_loop(self._core.ends()))

    async def _before_end(self, idle_timeout_s: float) -> bool:
        """Whether a message is at hand; False once all queues are where they were aimed at."""
        core = self._core
        while core.index >= len(core.messages):
            if core.next_batch() is not None:
                return core.behind > 0
            if not core.behind:
                return False
            if not await self._fetched(idle_timeout_s):
                raise core.stuck(idle_timeout_s)
        return True

    async def follow(self, queues: Wanted) -> None:
        """Follow more queues; one that is followed already begins anew."""
        await self._waits.in_loop(self._core.follow(queues))

    def leave(self, queues: Iterable[str | Queue]) -> None:
        """Follow these no longer: queues, light queues, or all queues of a topic, by its name."""
        self._core.leave(queues)

    async def seek(self, to: Mapping[Queue, int] | Start | str) -> None:
        """Go on from these offsets, or with all queues from one end or the committed offsets."""
        await self._waits.in_loop(self._core.seek(to))

    async def commit(
        self, positions: Mapping[Queue, int] | None = None, *, allow_back: bool = False
    ) -> None:
        """Commit offsets for the reader group, durably: `positions`, or what was read so far.

        Raises ValueError without a reader group, and OffsetBehindError when the group's committed
        offset in one of the queues is later: another consumer of the group is ahead, or this one
        started again further back. Nothing is committed then; `allow_back` commits all the same.
        Light queues that have no message yet, or were deleted, are left out of what was read;
        NotFoundError is raised when `positions` has one.
        """
        core = self._core
        if positions is None:
            committing = core.commit_read(self.positions(), allow_back=allow_back)
        else:
            committing = core.commit(positions, allow_back=allow_back)
        await self._waits.in_loop(committing)

    async def close(self) -> None:
        """Stop. Commits nothing. Repeatable."""
        await self._waits.end(self._core.close())

    async def _wait(self, timeout_s: float | None) -> bool:
        """Whether there is a next batch, nothing of it read, in time.

        Called when all of the last one is read.
        """
        end_s = _end_of(timeout_s)
        while self._core.next_batch() is None:
            left_s = None if end_s is None else end_s - monotonic()
            if left_s is not None and left_s <= 0:
                return False
            if not await self._fetched(left_s):
                return False
        return True

    async def _fetched(self, timeout_s: float | None) -> bool:
        """Whether something came in time."""
        return await self._waits.until(self._core.subscription.when_fetched, timeout_s)


def _end_of(timeout_s: float | None) -> float | None:
    """When it is over, by the monotonic clock; None: never. Raises TypeError, ValueError."""
    return None if timeout_s is None else monotonic() + number("timeout_s", timeout_s)
