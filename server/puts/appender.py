"""Appends batches: immediately in the event loop, or in a thread.

The loop never waits for the append lock, and only appends what takes a few milliseconds. Larger
batches are appended in a thread, which holds the lock. Appends for which the loop would have to
wait have a thread of their own, so that they do not queue behind large ones.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, TypeVar

from server.wire import Stored, columns_of
from server.workers import Workers
from store.errors import AppendWouldWaitError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from store.format import BatchMark
    from store.message import Appended, Message
    from store.message_store import MessageStore

    #: Appends all messages or none; raises what MessageStore.append raises.
    Append = Callable[[Sequence[Message], BatchMark | None], Awaitable[Stored]]

T = TypeVar("T")


class Appender:
    """Appends batches. Owned by the event loop's thread."""

    def __init__(self, store: MessageStore, bulk: Workers) -> None:
        self._store = store
        self._bulk = bulk
        self._behind = Workers(1)  # waits for the append lock instead of the loop

    async def small(self, messages: Sequence[Message], mark: BatchMark | None = None) -> Stored:
        """Append a small batch in the loop. In the log on return, not durable in SYNC mode."""
        try:
            return _stored(self._store.append(messages, wait=False, mark=mark))
        except AppendWouldWaitError:
            return await to_its_end(self._behind.run(self._append, messages, mark))

    async def large(self, messages: Sequence[Message], mark: BatchMark | None = None) -> Stored:
        """Append in a thread for large puts."""
        return await to_its_end(self._bulk.run(self._append, messages, mark))

    async def large_of(self, make: Callable[[], Sequence[Message]]) -> Stored:
        """Append what `make` returns; both run in the thread for large puts."""
        return await to_its_end(self._bulk.run(lambda: self._append(make())))

    async def waiting(self, messages: Sequence[Message]) -> Appended:
        """Append puts of several callers in a thread, when an append in the loop would block."""
        return await self._behind.run(self._store.append, messages, separate=True)

    def close(self) -> None:
        """Wait for the running append. Blocks."""
        self._behind.close()

    def _append(self, messages: Sequence[Message], mark: BatchMark | None = None) -> Stored:
        return _stored(self._store.append(messages, mark=mark))


def _stored(appended: Appended) -> Stored:
    return Stored(
        columns_of(appended.requests), appended.end_offset, appended.store_time_ms, repeated=False
    )


async def to_its_end(work: Awaitable[T]) -> T:
    """The result of `work`, even if the caller is cancelled meanwhile; it gets the cancellation
    afterwards.

    An append cannot be undone, so its caller must be able to record that it happened.
    """
    task = asyncio.ensure_future(work)
    caller = asyncio.current_task()
    assert caller is not None
    cancelled = False
    while not task.done():
        try:
            await asyncio.shield(task)
        except asyncio.CancelledError:
            if not task.cancelled():  # else it is the work that was
                cancelled = True
        except Exception:  # noqa: BLE001 - `result` raises it
            pass
    if cancelled:
        caller.cancel()
    return task.result()
