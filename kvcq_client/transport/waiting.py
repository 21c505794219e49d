"""How the coroutines of producers and consumers wait: in the event loop, or blocking a thread.

They await nothing but a `Waits`. With `ThreadWaits` they never give way, so that any thread runs
them to their end by itself: that is how blocking code has the same coroutines.
"""

from __future__ import annotations

import asyncio
import threading
from contextlib import suppress
from time import sleep
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from kvcq_client.transport.loop_thread import LoopThread

R = TypeVar("R")


class Waits(Protocol):
    """What such a coroutine may await."""

    async def until(
        self, call_when: Callable[[Callable[[], None]], None], timeout_s: float | None
    ) -> bool:
        """Whether `call_when` called what it was given, in time."""
        ...

    def give_way(self) -> None:
        """There is something to do for the connection's event loop."""

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        """What the call returns, which the connection's event loop runs."""
        ...

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        """As `in_loop`; None in a forked child, or after the client's end: there is nothing to
        end."""


class LoopWaits:
    """In the event loop of the connection."""

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
        """It comes to it when this thread awaits."""

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        return await call

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        return await call


class ThreadWaits:
    """On a thread of the caller, beside the loop's own."""

    def __init__(self, thread: LoopThread) -> None:
        self._thread = thread

    async def until(
        self, call_when: Callable[[Callable[[], None]], None], timeout_s: float | None
    ) -> bool:
        # A bare lock: see loop_thread.
        called = threading.Lock()
        called.acquire()

        def call() -> None:
            with suppress(RuntimeError):  # it was called before
                called.release()

        call_when(call)
        return called.acquire(timeout=-1 if timeout_s is None else max(0.0, timeout_s))

    def give_way(self) -> None:
        """Let the interpreter go: whose thread asks for it waits for 5 ms otherwise, and what it
        has to send as long."""
        sleep(0)

    async def in_loop(self, call: Coroutine[Any, Any, R]) -> R:
        return self._thread.run(call)

    async def end(self, call: Coroutine[Any, Any, R]) -> R | None:
        if self._thread.is_forked or self._thread.has_ended:
            call.close()
            return None
        return self._thread.run(call)


def finished(call: Coroutine[Any, Any, R]) -> R:
    """The result of a coroutine that awaits nothing but ThreadWaits, on this thread."""
    try:
        call.send(None)
    except StopIteration as end:
        result: R = end.value
        return result
    raise AssertionError(f"{call} gave way")


def run_at_once(
    work: Coroutine[Any, Any, None], ended: Callable[[BaseException | None], None]
) -> None:
    """Run the coroutine as far as it goes, and the rest when what it awaits is there; then call
    `ended`, with what it raised or None.

    As a task, but for the turn of the loop that a task takes to begin. Nobody cancels it, and it
    must await nothing but futures, nor ask in which task it runs.
    """

    _Begun(work, ended).go_on()


class _Begun:
    """Of run_at_once; an object, as a function that names itself would be left to the collector."""

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
