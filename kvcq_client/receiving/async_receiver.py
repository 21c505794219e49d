"""The receiver, in an event loop."""

from __future__ import annotations

from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING

from kvcq_client.arguments import checked, number, whole
from kvcq_client.errors import ClosedError, KvcqError
from kvcq_client.receiving.running import check_run, run_in_loop
from kvcq_client.transport import AsyncClosing

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.receiving.core import ReceiverCore
    from kvcq_client.receiving.deliveries import Delivery
    from kvcq_client.transport import Waits

#: A reader that gives no time waits this long, so that the event loop sees it, and receives.
_LEAST_WAIT_S = 0.001


@checked(but=("run",))
class AsyncReceiver(AsyncClosing):
    """Receives messages that the members of a shared group share.

    `async for delivery in receiver` never ends, and waits for new messages; acknowledge each
    delivery, or use `run`. Messages are received ahead, at most as many as the settings allow, and
    renewed while they wait. After a lost connection the receiver continues. Made by
    `AsyncClient.receiver`. Owned by its event loop, for any number of readers.
    """

    def __init__(self, core: ReceiverCore, waits: Waits) -> None:
        self._core = core
        self._waits = waits

    @property
    def group(self) -> str:
        """The shared group."""
        return self._core.config.group

    def __aiter__(self) -> AsyncReceiver:
        return self

    async def __anext__(self) -> Delivery:
        """The next delivery. Ends when the receiver is closed, also by another task. Raises the
        error of a topic; the others can still be received from."""
        delivery = await self._next(None)
        if delivery is None:
            raise StopAsyncIteration
        return delivery

    async def take(self, count: int, timeout_s: float | None = None) -> list[Delivery]:
        """The next `count` deliveries, or as many as arrive within `timeout_s`.

        If cancelled or interrupted, all of them are given back. Raises ClosedError. An error of a
        topic is raised when there is nothing to return before it.
        """
        if whole("count", count) < 0:
            raise ValueError(f"count: {count} is below 0")
        end_s = None if timeout_s is None else monotonic() + number("timeout_s", timeout_s)
        found: list[Delivery] = []
        try:
            while len(found) < count:
                left_s = None if end_s is None else max(0.0, end_s - monotonic())
                delivery = await self._next(left_s, before_errors=bool(found))
                if delivery is None:
                    if self._core.is_stopped and not found:
                        raise ClosedError("the receiver is closed")
                    break
                found.append(delivery)
        except BaseException:  # such as a cancellation: the caller does not get the messages
            with suppress(KvcqError):
                for delivery in found:
                    delivery.give_back(0.0, not_begun=True)
            raise
        return found

    async def run(
        self,
        function: Callable[[Delivery], object],
        *,
        concurrency: int = 1,
        stop_timeout_s: float = 30.0,
    ) -> None:
        """Call `function` with each delivery, `concurrency` at a time, until SIGTERM, SIGINT or
        `close`. In an event loop it is a coroutine function; otherwise it runs in threads.

        A delivery is acknowledged when the function returns. If it raises, the message is given
        back and delivered again after the group's backoff, or after the `delay_s` of the error, see
        RetryLater; it becomes a dead letter once it was delivered as often as the group allows.
        While the function runs, the message is renewed.

        At the end nothing more is received; messages that were received ahead are given back, and
        running functions have `stop_timeout_s` to end. A second signal does not wait. The receiver
        is closed then. Signals are only handled in the main thread. Raises the first error of a
        topic, such as NotFoundError; NotPossibleError if it runs already; TypeError, ValueError.
        """
        check_run(function, concurrency, stop_timeout_s)
        await run_in_loop(self, self._core, function, concurrency, stop_timeout_s)

    async def stop(self) -> None:
        """Receive nothing more, and give back what was received ahead. Repeatable.

        What was handed out is still renewed, and can be settled; `close` must follow.
        """
        await self._waits.end(self._core.stop())

    async def close(self) -> None:
        """Stop receiving, give back what was not settled, and wait for all outcomes. Repeatable.

        While `run` runs, it is only stopped; it returns when its functions have ended. They may
        call this as well.
        """
        await self._waits.end(self._core.end())

    async def _next(
        self, timeout_s: float | None, *, before_errors: bool = False
    ) -> Delivery | None:
        """The next delivery; None after `timeout_s`, or when the receiver is closed, and with
        `before_errors` when the error of a topic is next."""
        core = self._core
        end_s = None if timeout_s is None else monotonic() + max(_LEAST_WAIT_S, timeout_s)
        try:
            while not (before_errors and core.is_error_next):
                if (delivery := core.take()) is not None:
                    return delivery
                left_s = None if end_s is None else end_s - monotonic()
                if left_s is not None and left_s <= 0:
                    return None
                await self._wait(left_s)
        except ClosedError:
            if not core.is_stopped:
                raise
        return None

    async def _wait(self, timeout_s: float | None) -> None:
        core = self._core
        waiter: Callable[[], None] | None = None

        def call_when(callback: Callable[[], None]) -> None:
            nonlocal waiter
            waiter = callback
            core.when_ready(callback)

        try:
            await self._waits.until(call_when, timeout_s)
        finally:
            if waiter is not None:
                core.forget_waiter(waiter)
