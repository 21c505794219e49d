"""Waits, in the event loop, until an append may be acknowledged."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from store.errors import FlushTimeoutError, StoreBusyError

if TYPE_CHECKING:
    from collections.abc import Callable

    from store.message_store import MessageStore


class Durability:
    """Connects the store's flush thread and the loop. Owned by the event loop's thread."""

    def __init__(
        self, store: MessageStore, loop: asyncio.AbstractEventLoop, timeout_s: float
    ) -> None:
        self._store = store
        self._loop = loop
        self._timeout_s = timeout_s

    @property
    def is_at_append(self) -> bool:
        """Whether everything may be acknowledged once it is appended."""
        return self._store.acknowledges_at_append

    def is_durable(self, end_offset: int) -> bool:
        """Whether it may be acknowledged now. Always true in ASYNC mode."""
        return self._store.is_durable(end_offset)

    async def wait(self, end_offset: int) -> None:
        """Wait until everything below `end_offset` may be acknowledged.

        Raises FlushError if the flush failed, FlushTimeoutError if it took too long. In the second
        case the message is in the log, and becomes durable later or is lost if the machine fails.
        """
        if self._store.is_durable(end_offset):
            return
        done = self._loop.create_future()
        self.when_durable(end_offset, _resolver(done))
        try:
            async with asyncio.timeout(self._timeout_s):
                await done
        except TimeoutError:
            raise FlushTimeoutError(end_offset, self._timeout_s) from None

    def when_durable(
        self, end_offset: int, callback: Callable[[BaseException | None], None]
    ) -> None:
        """Call `callback` in the loop, with the error if the flush failed."""
        self._store.when_durable(end_offset, _in_loop(self._loop, callback))


async def wait_visible(store: MessageStore) -> None:
    """Wait until everything appended before is in the queues and the index.

    Raises StoreBusyError if that takes too long, and the error if it can never happen.
    """
    loop = asyncio.get_running_loop()
    timeout_s = store.config.sync_flush_timeout_s
    done = loop.create_future()
    store.when_visible(_in_loop(loop, _resolver(done)))
    try:
        async with asyncio.timeout(timeout_s):
            await done
    except TimeoutError:
        raise StoreBusyError(f"appended messages are not visible after {timeout_s:g} s") from None


def _in_loop(
    loop: asyncio.AbstractEventLoop, callback: Callable[[BaseException | None], None]
) -> Callable[[BaseException | None], None]:
    """The callback, callable from any thread."""

    def called(error: BaseException | None) -> None:
        try:
            loop.call_soon_threadsafe(callback, error)
        except RuntimeError:
            # The loop is closed, so no caller waits, and this thread must continue.
            return

    return called


def _resolver(future: asyncio.Future[None]) -> Callable[[BaseException | None], None]:
    def resolve(error: BaseException | None) -> None:
        if future.done():  # the caller was cancelled, or its time is up
            return
        if error is None:
            future.set_result(None)
        else:
            future.set_exception(error)

    return resolve
