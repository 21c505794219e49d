"""Threads for what may block: disk reads far behind, queries, metadata, topic deletion."""

from __future__ import annotations

import asyncio
import logging
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable

logger = logging.getLogger(__name__)

P = ParamSpec("P")
T = TypeVar("T")

#: What runs for a call that was cancelled may take this long to notice that the server ends.
CLOSE_S = 2.0


class Workers:
    """A bounded pool. A call cancelled before its turn is never begun."""

    def __init__(self, threads: int) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="worker")
        # Submitted and not ended; added to in the event loop, taken from by the workers.
        self._running: set[Future[Any]] = set()

    async def run(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """The function's result, computed in a worker thread."""
        future = self._pool.submit(function, *args, **kwargs)
        self._running.add(future)
        future.add_done_callback(self._running.discard)
        return await asyncio.wrap_future(future)

    def close(self) -> bool:
        """Drop what has not begun, and wait for what runs, `CLOSE_S` at most. Blocks.

        Whether all of it ended; the rest goes on, on a store that is closed under it.
        """
        self._pool.shutdown(wait=False, cancel_futures=True)
        left = wait(self._running.copy(), CLOSE_S).not_done
        if left:
            logger.warning("%d workers still run after %g s, the server ends", len(left), CLOSE_S)
        return not left
