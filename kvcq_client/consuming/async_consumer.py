"""The consumer, in an event loop."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping
    from types import TracebackType

    from kvcq_client.consuming.core import ConsumerCore, Wanted
    from kvcq_client.format import StoredMessage
    from kvcq_client.values import Queue, Start


class AsyncConsumer:
    """Reads many queues as one run of messages; each queue in its order.

    `async for message in consumer` goes on for ever, and waits when there is nothing; `to_end()`
    ends at what was there when it began. A lost connection is made again, and reading goes on
    behind the last message. Made by `AsyncClient.consumer`. Owned by its loop; one reader.
    """

    def __init__(self, core: ConsumerCore, forget: Callable[[AsyncConsumer], None]) -> None:
        self._core = core
        self._forget = forget

    def __aiter__(self) -> AsyncConsumer:
        return self

    async def __anext__(self) -> StoredMessage:
        """The next message. Raises the error of a queue; the others can then be read on."""
        core = self._core
        at = core.index
        messages = core.messages
        if at >= len(messages):
            messages, at = await self._wait(), 0
        core.index = at + 1
        return messages[at]

    async def batch(self, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next messages of one queue, as they came; [] when there were none in time."""
        core = self._core
        if core.index >= len(core.messages):
            try:
                async with asyncio.timeout(timeout_s):
                    await self._wait()
            except TimeoutError:
                return []
        return core.rest_of_batch()

    async def take(self, count: int, timeout_s: float | None = None) -> list[StoredMessage]:
        """The next `count` messages, or as many as came in time."""
        taken: list[StoredMessage] = []
        try:
            async with asyncio.timeout(timeout_s):
                while len(taken) < count:
                    taken.append(await anext(self))
        except TimeoutError:
            pass
        return taken

    async def to_end(self, idle_timeout_s: float = 30.0) -> AsyncIterator[StoredMessage]:
        """All that is there now and was not read; what comes meanwhile may be among it.

        Raises DeadlineError when nothing came for `idle_timeout_s` before that.
        """
        async for batch in self.batches_to_end(idle_timeout_s):
            for message in batch:
                yield message

    async def batches_to_end(
        self, idle_timeout_s: float = 30.0
    ) -> AsyncIterator[list[StoredMessage]]:
        """As `to_end`, in batches of one queue each."""
        core = self._core
        core.aim_at(await core.ends())
        while True:
            rest = core.rest_of_batch()
            if rest:
                yield rest
            elif core.next_batch() is None:
                if not core.behind:
                    return
                try:
                    async with asyncio.timeout(idle_timeout_s):
                        await self._fetched()
                except TimeoutError:
                    raise core.stuck(idle_timeout_s) from None
            elif not core.behind:
                return

    @property
    def queue(self) -> Queue | None:
        """The queue of the last message or batch; a light queue where one was read."""
        return self._core.queue

    def positions(self) -> dict[Queue, int]:
        """The next offset of each queue: behind the last message that was handed out."""
        return self._core.positions()

    async def follow(self, wanted: Wanted) -> None:
        """Follow more queues; one that is followed already begins anew."""
        await self._core.follow(wanted)

    def leave(self, queues: Iterable[Queue]) -> None:
        """Follow these no longer."""
        self._core.leave(queues)

    async def seek(self, to: Mapping[Queue, int] | Start) -> None:
        """Go on from these offsets, or with all queues from one end or the committed offsets."""
        await self._core.seek(to)

    async def commit(self, positions: Mapping[Queue, int] | None = None) -> None:
        """Commit for the group, durably: these positions, or what was read so far.

        Raises ValueError without a group.
        """
        await self._core.commit(self.positions() if positions is None else positions)

    async def close(self) -> None:
        """Stop. Commits nothing. Repeatable."""
        self._forget(self)
        await self._core.close()

    async def _wait(self) -> list[StoredMessage]:
        """The next batch, nothing of it read; waits for it."""
        while True:
            messages = self._core.next_batch()
            if messages is not None:
                return messages
            await self._fetched()

    async def _fetched(self) -> None:
        come = asyncio.get_running_loop().create_future()

        def wake() -> None:
            if not come.done():
                come.set_result(None)

        self._core.subscription.when_fetched(wake)
        await come

    async def __aenter__(self) -> AsyncConsumer:
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()
