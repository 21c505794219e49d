"""A coroutine that a thread hands to an event loop, and waits for."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvcq_client.errors import ClosedError

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Coroutine

R = TypeVar("R")


class HandedWork(Generic[R]):
    """One such coroutine. `wait` by the thread, once; the rest in the loop, or when it has ended.

    It waits for a bare lock: whoever holds another one, as those of `threading` and of futures do
    inside, may be stopped there by a signal whose handler waits for this same loop.
    """

    __slots__ = ("_coroutine", "_ended", "_error", "_loop", "_result", "_task", "is_done")

    def __init__(self, coroutine: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> None:
        self._coroutine = coroutine
        self._loop = loop
        self._task: asyncio.Task[R] | None = None
        self._result: R
        self._error: BaseException | None = None
        self._ended = threading.Lock()  # free once it is done
        self._ended.acquire()
        self.is_done = False

    def wait(self) -> R:
        """Its result, or what it raised. Ctrl-C cancels it, and gets through once it has ended; a
        second one does not wait. Raises ClosedError when the loop ends before it."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
            self._ended.acquire()
        except BaseException as error:
            if isinstance(error, RuntimeError) and self._loop.is_closed():
                self._coroutine.close()
                raise ClosedError("the client is closed") from None
            if not self.is_done:
                try:
                    self._loop.call_soon_threadsafe(self._give_up)
                except RuntimeError:  # that is closed
                    self._coroutine.close()
                else:
                    self._ended.acquire()
            raise
        if self._error is None:
            return self._result
        try:
            raise self._error
        finally:
            self._error = None  # its trace has this frame: no cycle

    def lose(self) -> None:
        """The loop has ended, and this may not have."""
        if not self.is_done:
            self._coroutine.close()
            self._end(ClosedError("the client is closed"))

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._coroutine)
        self._task.add_done_callback(self._task_ended)

    def _give_up(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.is_done:  # the interrupt came before it was handed over
            self._coroutine.close()
            self._end(CancelledError())

    def _task_ended(self, task: asyncio.Task[R]) -> None:
        if task.cancelled():
            self._coroutine.close()  # where it never began
            self._end(CancelledError())
        elif (error := task.exception()) is not None:
            self._end(error)
        else:
            self._result = task.result()
            self._end(None)

    def _end(self, error: BaseException | None) -> None:
        self._error = error
        self._task = None
        self.is_done = True
        self._ended.release()
