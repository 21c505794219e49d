"""Reads, in a front, what the owner has planned: from mappings of the same files.

The records of a large pull would go over the socket and be copied at both ends. In place of that
the owner says where they are; it has decided already what a pull gives, and what it says is below
what it has published, so that bytes which are still being written are never looked at. What cannot
be read here, or does not verify, is the owner's to read, as everywhere: see server/readers.
"""

from __future__ import annotations

import asyncio
import logging
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from server.encoded import Encoded
    from server.readers import Order
    from store.log import LogMaps

logger = logging.getLogger("server.fronts.front")

#: A mapping that was not used from one look to the next is let go.
_LOOK_S = 2.0


class PlanReader:
    """Owned by the event loop's thread."""

    def __init__(self) -> None:
        # One: more of them would take the interpreter from each other, and from the loop.
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="plans")
        self._answer: Callable[[LogMaps, Order], Encoded | None] | None = None
        self._make_maps: type[LogMaps]  # with `_answer`
        self._maps: LogMaps | None = None
        self._loading: asyncio.Future[None] | None = None
        self._look: asyncio.TimerHandle | None = None
        self._is_told = False

    def read(self, data: bytes, done: Callable[[Encoded | None], None]) -> None:
        """Call `done` with the answer, None without one: before this returns, or later.

        `data`: an Order, pickled. What is needed to read it takes 0.2 s and 14 MB to load: the
        first orders have it loaded, and are not answered.
        """
        if self._answer is None:
            if self._loading is None:
                loop = asyncio.get_running_loop()
                self._loading = loop.run_in_executor(self._thread, self._load)
                self._loading.add_done_callback(self._loaded)
            done(None)
            return
        try:
            order: Order = pickle.loads(data)
            maps, takes_long = self._maps_of(order), order.takes_long
        except Exception:  # what is loaded may be of another version: it was replaced meanwhile
            if not self._is_told:
                logger.exception("a front cannot read what the owner plans; the owner does")
                self._is_told = True
            done(None)
            return
        if not takes_long:
            done(self._answer(maps, order))
            return
        loop = asyncio.get_running_loop()
        reading = loop.run_in_executor(self._thread, self._answer, maps, order)
        reading.add_done_callback(lambda read: None if read.cancelled() else done(read.result()))

    def close(self) -> None:
        """What is being read ends in its own time."""
        if self._look is not None:
            self._look.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _load(self) -> None:
        from server.readers import answer
        from store.log import LogMaps

        self._make_maps = LogMaps
        self._answer = answer

    @staticmethod
    def _loaded(loading: asyncio.Future[None]) -> None:
        if not loading.cancelled() and (error := loading.exception()) is not None:
            logger.error("a front reads nothing itself: %s", error)

    def _maps_of(self, order: Order) -> LogMaps:
        """Those of the log, of which there is one."""
        if self._maps is None:
            self._maps = self._make_maps(Path(order.log.directory), order.log.segment_bytes)
        if self._look is None:
            self._look = asyncio.get_running_loop().call_later(_LOOK_S, self._let_go)
        return self._maps

    def _let_go(self) -> None:
        assert self._maps is not None
        loop = asyncio.get_running_loop()
        if self._maps.count:  # not here: to unmap a segment of 1 GiB takes milliseconds
            loop.run_in_executor(None, self._maps.let_go)
        self._look = loop.call_later(_LOOK_S, self._let_go)
