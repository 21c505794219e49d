"""The receiver, for blocking code."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq_client.receiving.async_receiver import AsyncReceiver
from kvcq_client.receiving.running import check_run, run_in_threads
from kvcq_client.transport import Blocking, Closing, ThreadWaits, blocking, finished

if TYPE_CHECKING:
    from collections.abc import Callable

    from kvcq_client.receiving.core import ReceiverCore
    from kvcq_client.receiving.deliveries import Delivery
    from kvcq_client.transport import LoopThread


class Receiver(Blocking[AsyncReceiver], Closing):
    """Receives messages that the members of a shared group share.

    `for delivery in receiver` never ends, and waits for new messages; acknowledge each
    delivery, or use `run`. Messages are received ahead, at most as many as the settings allow, and
    renewed while they wait. After a lost connection the receiver continues. Made by
    `Client.receiver`. Thread-safe, for any number of readers.
    """

    def __init__(self, core: ReceiverCore, thread: LoopThread) -> None:
        super().__init__(AsyncReceiver(core, ThreadWaits(thread)), finished)
        self._core = core
        self._thread = thread

    @property
    def group(self) -> str:
        """The shared group."""
        return self._core.config.group

    def __iter__(self) -> Receiver:
        return self

    def __next__(self) -> Delivery:
        """The next delivery. Ends when the receiver is closed, also by another thread. Raises the
        error of a topic; the others can still be received from."""
        delivery = self._run(self._calls._next(None))  # noqa: SLF001 - the other face
        if delivery is None:
            raise StopIteration
        return delivery

    def run(
        self,
        function: Callable[[Delivery], object],
        *,
        concurrency: int = 1,
        stop_timeout_s: float = 30.0,
    ) -> None:
        check_run(function, concurrency, stop_timeout_s)
        self._thread.check_caller()
        run_in_threads(self, self._core, self._thread, function, concurrency, stop_timeout_s)

    run.__doc__ = AsyncReceiver.run.__doc__

    take = blocking(AsyncReceiver.take)
    stop = blocking(AsyncReceiver.stop)
    close = blocking(AsyncReceiver.close)
