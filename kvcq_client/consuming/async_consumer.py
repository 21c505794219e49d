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
    """Reads messages of many queues; those of each queue in order.

    `async for message in consumer` never ends, and waits for new messages; `to_end()` ends at
    the ends of the queues when it was called. After a lost connection the consumer reconnects and
    continues after the last message. Made by `AsyncClient.consumer`. Owned by its event loop, for
    one reader.
    """

    def __init__(self, core: ConsumerCore, waits: Waits) -> None:
        super().__init__(core)
        self._waits = waits

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> StoredMessage:
        """The next message. Raises the error of a queue; the other queues can still be read."""
        core = self._core
        at = core.index
        messages = core.messages
        if at >= len(messages):
            await self._wait(None)
            messages, at = core.messages, 0
        core.index = at + 1
        return messages[at]

    async def batch(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages of one queue; [] if none arrive within `timeout_s`."""
        core = self._core
        if core.index >= len(core.messages) and not await self._wait(timeout_s):
            return []
        return core.rest_of_batch()

    async def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as arrive within `timeout_s`.

        If cancelled or interrupted, none of them counts as read. An error is raised when there is
        nothing to read before it.
        """
        await self._gather(count, timeout_s)
        return self._core.read(count)

    async def _gather(self, count: int, timeout_s: float | None) -> None:
        """Decode `count` messages, or as many as arrive in time, without reading them."""
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
            if came is None:
                # Also without time left: a loop of such calls must let the event loop run.
                if not await self._fetched(left_s):
                    return
            elif left_s == 0.0:
                return

    async def to_end(self, idle_timeout_s: float = 30.0) -> AsyncIterator[StoredMessage]:
        """Yield all messages up to the current ends of the queues, perhaps with some newer ones.

        A message counts as read once it is yielded, so reading continues after it if the loop is
        left. Raises DeadlineError if nothing arrives for `idle_timeout_s` before the end.
        """
        await self._aim(idle_timeout_s)
        while await self._before_end(idle_timeout_s):
            for message in self._core.one_by_one():
                yield message

    async def batches_to_end(
        self, idle_timeout_s: float = 30.0
    ) -> AsyncIterator[list[StoredMessage]]:
        """Like `to_end`, in batches of one queue."""
        await self._aim(idle_timeout_s)
        while await self._before_end(idle_timeout_s):
            yield self._core.rest_of_batch()

    async def _aim(self, idle_timeout_s: float) -> None:
        """Aim at the current ends of all queues."""
        number("idle_timeout_s", idle_timeout_s)
        self._core.aim_at(await self._waits.in_loop(self._core.ends()))

    async def _before_end(self, idle_timeout_s: float) -> bool:
        """Wait for a message. Returns False once all queues have reached their ends."""
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
        """Follow more queues; those that are already followed start again."""
        await self._waits.in_loop(self._core.follow(queues))

    def leave(self, queues: Iterable[str | Queue]) -> None:
        """Stop following queues, light queues, or all queues of a topic, by its name."""
        self._core.leave(queues)

    async def seek(self, to: Mapping[Queue, int] | Start | str) -> None:
        """Continue at these offsets, or with all queues at one end or at the committed offsets."""
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
        """Stop fetching. Commits nothing. Repeatable."""
        await self._waits.end(self._core.close())

    async def _wait(self, timeout_s: float | None) -> bool:
        """Wait for the next batch, after the current one was read. Whether it came in time."""
        end_s = _end_of(timeout_s)
        while self._core.next_batch() is None:
            left_s = None if end_s is None else max(0.0, end_s - monotonic())
            if not await self._fetched(left_s):
                return False
        return True

    async def _fetched(self, timeout_s: float | None) -> bool:
        """Wait for fetched messages. Returns whether some came in time."""
        return await self._waits.until(self._core.subscription.when_fetched, timeout_s)


def _end_of(timeout_s: float | None) -> float | None:
    """The deadline on the monotonic clock; None for none. Raises TypeError, ValueError."""
    return None if timeout_s is None else monotonic() + number("timeout_s", timeout_s)
