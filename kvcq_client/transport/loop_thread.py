"""An event loop in a thread of its own, which runs the calls of blocking code."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvcq_client.errors import ClosedError
from kvcq_client.transport.bare_locks import acquire
from kvcq_client.transport.below_grpc import is_news_of_grpc
from kvcq_client.transport.forks import ForkedError, close_in_children

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

R = TypeVar("R")


class _IgnoresLateCallbacks:
    """An event loop that ignores gRPC's notifications of cancelled calls once it is closed.

    One gRPC thread serves all event loops of a process. It wakes any of them, which then forwards
    the others' notifications, and would print an error for a loop that is already closed.
    """

    def call_soon_threadsafe(
        self, callback: Callable[..., object], *args: object, context: Context | None = None
    ) -> asyncio.Handle | None:
        try:
            of_loop: Any = super()
            handle: asyncio.Handle = of_loop.call_soon_threadsafe(callback, *args, context=context)
        except RuntimeError:
            if not is_news_of_grpc(callback):
                raise
            return None
        return handle


def new_event_loop() -> asyncio.AbstractEventLoop:
    """A uvloop event loop where installed, since it is faster; else the standard one."""
    try:
        from uvloop import Loop
    except ImportError:  # not available for this system
        from asyncio import SelectorEventLoop as Loop
    kind: Callable[[], asyncio.AbstractEventLoop] = type("Loop", (_IgnoresLateCallbacks, Loop), {})
    return kind()


#: An event loop only holds weak references to tasks. Without this set, the task of an idle producer
#: would be collected when its client goes out of scope.
_running: set[asyncio.Task[Any]] = set()


def in_background(work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
    """Start a task that is kept alive until it ends, even if nothing else refers to it."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def _tell(
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
    is_ending: Callable[[], bool] = sys.is_finalizing,  # modules have been cleared by then
) -> None:
    """Report an error of the loop, but not while the interpreter shuts down."""
    if not is_ending():
        loop.default_exception_handler(context)


class _Handed(Generic[R]):
    """A coroutine that a thread hands to the loop, and waits for.

    The thread waits on a bare lock. `threading.Condition`, and so futures, hold an inner lock for a
    moment. If a signal handler that makes a call of its own interrupted the thread then, the loop
    would wait for that lock, and the handler for the loop.
    """

    def __init__(self, work: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[R] | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self) -> R:
        """Return the coroutine's result or raise its error. On Ctrl-C, cancel it and wait for its
        end; a second Ctrl-C does not wait. Raises ClosedError if the loop ended before it
        started."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
            acquire(self._ended)
        except BaseException:
            if not self._loop.is_closed():
                with suppress(RuntimeError):  # it was closed just now
                    self._loop.call_soon_threadsafe(self._cancel)
                    # The interrupt may have come after the lock was had: it is not released again.
                    if self._task is None or not self._task.done():
                        acquire(self._ended)
            elif self._task is None:
                self._work.close()
                raise ClosedError("the client is closed") from None
            raise
        task, self._task = self._task, None
        if task is None:
            raise ClosedError("the client is closed")
        if task.cancelled():
            raise CancelledError
        try:
            return task.result()
        finally:
            del task  # breaks the cycle of the exception, its traceback and this frame

    def lose(self) -> None:
        """Release the waiting thread after the loop has ended."""
        if self._task is None:
            self._work.close()
        if self._ended.locked():
            self._ended.release()

    def _begin(self) -> asyncio.Task[R]:
        if self._task is None:
            self._task = self._loop.create_task(self._work)
            self._task.add_done_callback(self._end)
        return self._task

    def _cancel(self) -> None:
        self._begin().cancel()

    def _end(self, task: asyncio.Task[R]) -> None:
        if not task.cancelled():
            task.exception()  # marks it as retrieved, in case the waiting thread was interrupted
        self._ended.release()


class LoopThread:
    """Runs coroutines for callers in other threads.

    Thread-safe. Coroutines run in the thread "kvcq-client", a daemon, so that a program that
    forgets to close a client still ends.
    """

    def __init__(self) -> None:
        self._forked: ForkedError | None = None
        self._calls: set[_Handed[Any]] = set()
        self._is_ending = False
        self._is_stopped = False  # in the loop
        self.loop = new_event_loop()
        self.loop.set_exception_handler(_tell)
        self._thread = threading.Thread(target=self._run, name="kvcq-client", daemon=True)
        self._thread.start()
        close_in_children(self)

    def run(self, call: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine and return its result. Must not be called from the loop's own thread.

        On Ctrl-C the coroutine is cancelled, and KeyboardInterrupt is raised once it has ended, so
        that it never runs beside the caller's next steps; a second Ctrl-C does not wait. Raises
        ForkedError in a forked child, and ClosedError when the loop has ended.
        """
        try:
            self.check_caller()
        except BaseException:
            call.close()
            raise
        if self.has_ended:  # callers that retry must not delay its end
            call.close()
            raise ClosedError("the client is closed")
        handed = _Handed(call, self.loop)
        self._calls.add(handed)  # before it is handed over: the loop may end at any time
        try:
            return handed.wait()
        except CancelledError:
            if self.has_ended:
                raise ClosedError("the client is closed") from None
            raise
        finally:
            self._calls.discard(handed)

    def check_caller(self) -> None:
        """Raise ForkedError in a forked child, and RuntimeError in the loop's own thread, which
        would wait for itself."""
        if self._forked is not None:
            raise self._forked
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("a blocking call inside the client's own thread")

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run the callback in the loop; ignored if the loop has ended."""
        if self._forked is None:
            with suppress(RuntimeError):  # the loop is closed
                self.loop.call_soon_threadsafe(callback, *arguments)

    @property
    def has_ended(self) -> bool:
        """Whether the loop no longer accepts coroutines."""
        return self._is_ending

    @property
    def is_forked(self) -> bool:
        """Whether this is a forked child, which does not have the thread."""
        return self._forked is not None

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self._forked = error

    def close(self) -> None:
        """Cancel running coroutines, and end the thread. Repeatable."""
        if self._forked is not None:
            return
        self._is_ending = True  # first, so that cancelled callers get ClosedError
        self.call_soon(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        """Stop the loop once: a second stop would interrupt the cancelling of tasks."""
        if not self._is_stopped:
            self._is_stopped = True
            self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            while tasks := asyncio.all_tasks(self.loop):  # more may arrive meanwhile
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()
            for call in tuple(self._calls):
                call.lose()
