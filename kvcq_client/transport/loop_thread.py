"""An event loop in a thread of its own: what the blocking face of the client runs on."""

from __future__ import annotations

import asyncio
import sys
import threading
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from kvcq_client.errors import ClosedError
from kvcq_client.transport.below_grpc import is_news_of_grpc
from kvcq_client.transport.forks import ForkedError, close_in_children

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from contextvars import Context

R = TypeVar("R")


class _GivesUpQuietly:
    """An event loop that, once it is closed, drops what gRPC tells of calls that were given up.

    gRPC has one thread for the loops of a process. It wakes any of them, and that one passes on
    what is another's: it would print an error of a loop that nobody waits for.
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
    """uvloop where there is one: it takes more calls a second; else the standard loop."""
    try:
        from uvloop import Loop
    except ImportError:  # not made for this system
        from asyncio import SelectorEventLoop as Loop
    kind: Callable[[], asyncio.AbstractEventLoop] = type("Loop", (_GivesUpQuietly, Loop), {})
    return kind()


#: A loop itself keeps no task that waits for what nobody else keeps either, such as a producer
#: without messages whose client went out of scope.
_running: set[asyncio.Task[Any]] = set()


def in_background(work: Coroutine[Any, Any, R], name: str) -> asyncio.Task[R]:
    """A task of the running loop that goes on until it ends or is cancelled, whoever forgets it."""
    task = asyncio.get_running_loop().create_task(work, name=name)
    _running.add(task)
    task.add_done_callback(_running.discard)
    return task


def _tell(
    loop: asyncio.AbstractEventLoop,
    context: dict[str, Any],
    is_ending: Callable[[], bool] = sys.is_finalizing,  # modules are empty by then
) -> None:
    """Of tasks that the end of the process takes with it there is nothing to say."""
    if not is_ending():
        loop.default_exception_handler(context)


class _Handed(Generic[R]):
    """A coroutine that one thread hands to the loop of another, and waits for.

    The thread waits for a bare lock. While it holds any other, as those of `threading` and of
    futures, a signal's handler may run that makes a call of its own, and the loop would wait for
    that lock before it came to the handler's call.
    """

    def __init__(self, work: Coroutine[Any, Any, R], loop: asyncio.AbstractEventLoop) -> None:
        self._work = work
        self._loop = loop
        self._task: asyncio.Task[R] | None = None
        self._ended = threading.Lock()
        self._ended.acquire()

    def wait(self) -> R:
        """Its result, or what it raised. Ctrl-C cancels it, and gets through once it has ended; a
        second one does not wait. Raises ClosedError when the loop ended before it began."""
        try:
            self._loop.call_soon_threadsafe(self._begin)
            self._ended.acquire()
        except BaseException:
            if not self._loop.is_closed():
                with suppress(RuntimeError):  # it is closed just now
                    self._loop.call_soon_threadsafe(self._cancel)
                    self._ended.acquire()
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
            del task  # the traceback of its exception has this frame: no cycle

    def lose(self) -> None:
        """The loop has ended, and may never have come to it."""
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
            task.exception()  # the thread may have been interrupted: nobody else asks for it
        self._ended.release()


class LoopThread:
    """Runs coroutines for callers of other threads.

    Thread: any may call; coroutines run in "kvcq-client". It is a daemon: a program that forgets
    to close a client still ends.
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
        """The coroutine's result. Ctrl-C cancels it, and gets through once it has ended, so that it
        goes on beside nothing that comes next; a second one does not wait. Not from the loop's own
        thread.

        Raises ForkedError in a child of the process that made it, and ClosedError when the loop
        has ended.
        """
        try:
            self.check_caller()
        except BaseException:
            call.close()
            raise
        if self.has_ended:  # who tries again and again must not keep it from that
            call.close()
            raise ClosedError("the client is closed")
        handed = _Handed(call, self.loop)
        self._calls.add(handed)  # first: the loop may end at any time
        try:
            return handed.wait()
        except CancelledError:
            if self.has_ended:
                raise ClosedError("the client is closed") from None
            raise
        finally:
            self._calls.discard(handed)

    def check_caller(self) -> None:
        """Raises ForkedError in a child of the process that made it, and RuntimeError in the
        loop's own thread: who waits there waits for itself."""
        if self._forked is not None:
            raise self._forked
        if threading.get_ident() == self._thread.ident:
            raise RuntimeError("a blocking call inside the client's own thread")

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> None:
        """Run the callback in the loop; dropped when that has ended."""
        if self._forked is None:
            with suppress(RuntimeError):  # that it is closed
                self.loop.call_soon_threadsafe(callback, *arguments)

    @property
    def has_ended(self) -> bool:
        """Whether it runs nothing for anybody any more."""
        return self._is_ending

    @property
    def is_forked(self) -> bool:
        """Whether this is a child process, which has no such thread: there is nothing to close."""
        return self._forked is not None

    def after_fork(self, error: ForkedError) -> None:
        """See Forkable."""
        self._forked = error

    def close(self) -> None:
        """Cancel what still runs, and end the thread. Repeatable."""
        if self._forked is not None:
            return
        self._is_ending = True  # first: what is cancelled then is told why
        self.call_soon(self._stop)
        self._thread.join()

    def _stop(self) -> None:
        """Once: a second time would stop what ends the tasks."""
        if not self._is_stopped:
            self._is_stopped = True
            self.loop.stop()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
            while tasks := asyncio.all_tasks(self.loop):  # more may be handed over meanwhile
                for task in tasks:
                    task.cancel()
                self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
        finally:
            self.loop.close()
            for call in tuple(self._calls):
                call.lose()
