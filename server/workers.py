"""Worker threads for blocking work: cold disk reads, queries, metadata, topic deletion.

Each kind of work has threads of its own, so it does not wait for another kind: a commit does not
queue behind listings, nor a query behind producers that look up their batches. Within a kind the
callers take turns, so a caller with much work only delays itself. Long work comes in slices, each a
job of its own, so that it stops when its caller is gone, and others get their turns in between.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from contextvars import ContextVar, copy_context
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from google.protobuf.message import Message

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")
S = TypeVar("S")

#: Work for a cancelled call gets this long to notice that the server ends.
CLOSE_S = 2.0


#: Queues whose bounds or offsets are looked up in one slice: some milliseconds.
QUEUES_A_TURN = 512

#: The caller of the current task; set for each call when it arrives.
CALLER: ContextVar[str] = ContextVar("caller", default="")


class Workers:
    """A bounded thread pool. A call that is cancelled before its turn is never started.

    Owned by the event loop's thread.
    """

    def __init__(self, threads: int, name: str = "worker") -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix=name)
        self._free = threads
        # Calls that wait for a thread, by caller; the first caller is next.
        self._turns: OrderedDict[str, deque[asyncio.Future[None]]] = OrderedDict()
        # Submitted and not ended; added to in the event loop, taken from by the workers.
        self._running: set[Future[Any]] = set()

    @property
    def waiting(self) -> int:
        """Number of jobs that wait for a thread."""
        return sum(map(len, self._turns.values()))

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run the function in a worker thread when it is the caller's turn; returns its result."""
        if self._free:
            self._free -= 1
        else:
            await self._turn()
        try:
            # Log lines from the thread name the call; see server/edge/call_info.py.
            context = copy_context()
            future = self._pool.submit(lambda: context.run(function, *args, **kwargs))
        except BaseException:
            self._start_next()
            raise
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        try:
            return await asyncio.wrap_future(future)
        finally:
            if future.done():
                self._start_next()
            else:  # no caller waits for it any more, but it still has its thread
                loop = asyncio.get_running_loop()
                future.add_done_callback(lambda _: call_soon(loop, self._start_next))

    async def run_slices(
        self,
        function: Callable[[Sequence[S]], Iterable[T]],
        items: Sequence[S],
        size: int = QUEUES_A_TURN,
    ) -> list[T]:
        """The function's results for slices of `size` items, each in its own turn."""
        found: list[T] = []
        for begin in range(0, len(items), size):
            found += await self.run(function, items[begin : begin + size])
        return found

    async def encoded_slices(
        self, function: Callable[[Sequence[S]], Message], items: Sequence[S]
    ) -> bytes:
        """The function's responses to slices of the items, encoded as one response.

        Protobuf joins repeated fields of concatenated messages.
        """

        def encoded(some: Sequence[S]) -> list[bytes]:
            return [function(some).SerializeToString()]

        return b"".join(await self.run_slices(encoded, items))

    async def _turn(self) -> None:
        turn = asyncio.get_running_loop().create_future()
        self._turns.setdefault(CALLER.get(), deque()).append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._start_next()  # its turn came at that very moment
            raise

    def _start_next(self) -> None:
        """A thread is free: start the next caller's first job."""
        while self._turns:
            caller, turns = self._turns.popitem(last=False)
            turn = turns.popleft()
            if turns:
                self._turns[caller] = turns  # after all others
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    async def encoded(self, answer: Callable[[], Message]) -> bytes:
        """The result of `answer`, computed and encoded in a worker thread, since a page may be
        large."""
        return await self.run(lambda: answer().SerializeToString())

    def close(self) -> bool:
        """Drop jobs that have not started, and wait for running ones, at most `CLOSE_S`. Blocks.

        Returns whether all have ended; the rest continues while its store is closed.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        left = wait(self._running.copy(), CLOSE_S).not_done
        if left:
            logger.warning(
                "%d workers still run after %g s, the server is shutting down", len(left), CLOSE_S
            )
        return not left


class Pools:
    """The thread pools of the services, by kind of work."""

    def __init__(self) -> None:
        self.lookups = Workers(8)
        self.scans = Workers(2, "scan")  # calls that take long: many queues or names
        self.commits = Workers(4, "commit")
        self.settling = Workers(8, "settle")  # of deliveries; they may share a turn of the store
        self.changes = Workers(2, "change")  # topics and groups; may wait for what was dispatched
        self.steps = Workers(2, "step")  # of a migration, and starts of jobs

    def waiting(self) -> dict[str, int]:
        """Number of jobs that wait for a thread, by pool."""
        return {name: workers.waiting for name, workers in vars(self).items()}

    def close(self) -> None:
        """Close all pools, one after the other; see `Workers.close`."""
        for workers in vars(self).values():
            workers.close()


def call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[[], object]) -> None:
    """Run the callback in the loop, from any thread. Ignored if the loop has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(callback)
