"""How coroutines of producers and consumers wait: in the event loop, or by blocking a thread.

They only await a `Waits`. With `ThreadWaits` these never suspend, so any thread can run the
coroutine to its end without an event loop. That is how blocking code shares the coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from kvcq_client.transport.bare_locks import acquire

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kvcq_client.transport.loop_thread import LoopThread

R = TypeVar("R")


class Waits(Protocol):
    """The operations that such a coroutine may await."""

    async def until(
        self, call_when: Callable[[Callable[[], None]], None], timeout_s: float | None
    ) -> bool:
        """Pass a callback to `call_when` and wait for its call. Returns whether it came in time."""
        ...

    def give_way(self) -> None:
        """Let the connection's event loop run, which has work to do."""

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        """Run the coroutine in the connection's event loop, and return its result."""
        ...

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        """Like `in_loop`, for closing. Returns None in a forked child, or after the client has
        closed."""


class LoopWaits:
    """Waits in the connection's event loop."""

    async def until(
        self, call_when: Callable[[Callable[[], None]], None], timeout_s: float | None
    ) -> bool:
        called = asyncio.get_running_loop().create_future()
        call_when(lambda: None if called.done() else called.set_result(None))
        try:
            async with asyncio.timeout(timeout_s):
                await called
        except TimeoutError:
            return False
        return True

    def give_way(self) -> None:
        """Nothing to do: the loop runs at the next await."""

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        return await call

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        return await call


class ThreadWaits:
    """Waits by blocking a caller's thread."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    async def until(
        self, call_when: Callable[[Callable[[], None]], None], timeout_s: float | None
    ) -> bool:
        # A bare lock: see loop_thread.py.
        called = threading.Lock()
        called.acquire()

        def call() -> None:
            with suppress(RuntimeError):  # it was already called
                called.release()

        call_when(call)
        return acquire(called, timeout_s)

    def give_way(self) -> None:
        """Release the GIL. Otherwise the loop's thread may wait 5 ms for it before it sends."""
        sleep(0)

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        return self._thread.run(call)

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        if self._thread.is_forked or self._thread.has_ended:
            call.close()
            return None
        return self._thread.run(call)


def finished(call: Coroutine[Any, Any, R]) -> R:
    """Run a coroutine that only awaits ThreadWaits on this thread, and return its result."""
    try:
        call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError(f"{call} gave way")


def run_at_once(
    work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
) -> None:
    """Start the coroutine immediately, continue it as its futures complete, and finally call
    `ended` with its error or None.

    Like a task, but without the turn of the loop before a task starts. It cannot be cancelled, and
    must only await futures and not depend on the current task.
    """

    _Begun(work, ended).go_on()


class _Begun:
    """The state of run_at_once. A recursive closure would be a reference cycle."""

    __slots__ = ("_ended", "_work")

    def __init__(
        self, work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
    ) -> None:
        self._work = work
        self._ended = ended

    def go_on(self, _: object = None) -> None:
        error: BaseException | None = None
        try:
            future: asyncio.Future[object] = self._work.send(None)
        except StopIteration:
            pass
        except (Exception, asyncio.CancelledError) as raised:  # noqa: BLE001 - `ended` has it
            error = raised
        else:
            future.add_done_callback(self.go_on)
            return
        self._ended(error)
