"""Handlers: what returns is acknowledged, what raises is given back; signals end it in order."""

from __future__ import annotations

import asyncio
import inspect
import logging
import signal
import threading
from contextlib import contextmanager, suppress
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any

from kvcq_client.arguments import number, whole, wrong_kind
from kvcq_client.errors import ClosedError
from kvcq_client.receiving.deliveries import RetryLater
from kvcq_client.shared_groups import Outcome
from kvcq_client.transport import acquire

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Iterator
    from types import FrameType

    from kvcq_client.receiving.core import ReceiverCore
    from kvcq_client.receiving.deliveries import Delivery, Settlement
    from kvcq_client.transport import LoopThread

    Handler = Callable[[Delivery], object]

logger = logging.getLogger(__name__)

MOST_AT_ONCE = 10_000
_SIGNALS = (signal.SIGTERM, signal.SIGINT)


def check_run(function: object, concurrency: int, stop_timeout_s: float) -> None:
    """Raise TypeError or ValueError."""
    if not callable(function):
        raise wrong_kind("function", "a function that takes a delivery", function)
    if not 1 <= whole("concurrency", concurrency) <= MOST_AT_ONCE:
        raise ValueError(f"concurrency: {concurrency} is not from 1 to {MOST_AT_ONCE}")
    if number("stop_timeout_s", stop_timeout_s) < 0:
        raise ValueError(f"stop_timeout_s: {stop_timeout_s} is below 0")


# --- threads -------------------------------------------------------------------------------


def run_in_threads(
    deliveries: Iterable[Delivery],
    core: ReceiverCore,
    loop: LoopThread,
    function: Handler,
    concurrency: int,
    stop_timeout_s: float,
) -> None:
    """See AsyncReceiver.run. `deliveries`: an iterator for many threads."""
    if inspect.iscoroutinefunction(function):
        raise TypeError("function: is a coroutine function; AsyncClient's receivers run those")
    # A bare lock: a signal may interrupt any call of a Condition in the thread that it wakes.
    woken = threading.Lock()
    woken.acquire()

    def wake() -> None:
        with suppress(RuntimeError):  # it was woken before
            woken.release()

    errors: list[BaseException] = []
    running: dict[int, Delivery] = {}

    def work(number: int) -> None:
        try:
            for delivery in deliveries:
                running[number] = delivery
                try:
                    _handle(delivery, function)
                finally:
                    del running[number]
        except BaseException as error:  # noqa: BLE001 - raised by the thread that waits
            errors.append(error)
        finally:
            wake()

    core.begin_run(wake)
    # Daemons: a handler that hangs does not keep the process from ending.
    threads = [
        threading.Thread(target=work, args=(at,), name=f"kvcq-handler-{at}", daemon=True)
        for at in range(concurrency)
    ]
    try:
        with _stopping_on_signals(wake):
            for thread in threads:
                thread.start()
            acquire(woken)
            loop.run(core.stop())
            end_s = monotonic() + stop_timeout_s
            for thread in threads:
                thread.join(max(0.0, end_s - monotonic()))
            _tell_unfinished(running, stop_timeout_s)
    finally:
        with suppress(ClosedError):
            loop.run(core.finish(tuple(running.values())))
    if errors:
        raise errors[0]


def _handle(delivery: Delivery, function: Handler) -> None:
    try:
        with delivery:
            found = function(delivery)
            if inspect.isawaitable(found):
                if inspect.iscoroutine(found):
                    found.close()
                raise TypeError("the handler returned an awaitable; AsyncClient's receivers await")
    except Exception as error:  # noqa: BLE001 - whatever a handler raises
        _tell_failed(delivery, error)
    else:
        _tell_if_late(delivery)


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[None]:
    """`stop` at the first signal; the second one acts as before. Only in the main thread."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before: dict[int, Any] = {}

    def restore() -> None:
        for which, handler in before.items():
            signal.signal(which, signal.SIG_DFL if handler is None else handler)

    def on_signal(which: int, _: FrameType | None) -> None:
        _tell_stopping(which)
        restore()
        stop()

    for which in _SIGNALS:
        before[which] = signal.signal(which, on_signal)
    try:
        yield
    finally:
        restore()


# --- an event loop -------------------------------------------------------------------------


async def run_in_loop(
    deliveries: AsyncIterator[Delivery],
    core: ReceiverCore,
    function: Handler,
    concurrency: int,
    stop_timeout_s: float,
) -> None:
    """See AsyncReceiver.run. `deliveries`: an iterator for many tasks."""
    running: dict[int, Delivery] = {}

    async def work(number: int) -> None:
        async for delivery in deliveries:
            running[number] = delivery
            try:
                await _handle_in_loop(delivery, function)
            finally:
                del running[number]

    stopped = asyncio.Event()
    core.begin_run(stopped.set)
    workers = [asyncio.create_task(work(at), name="kvcq-handler") for at in range(concurrency)]
    stopping = asyncio.create_task(stopped.wait())
    try:
        with _stopping_loop_on_signals(stopped.set, workers):
            await asyncio.wait((stopping, *workers), return_when=asyncio.FIRST_COMPLETED)
            await core.stop()
            await asyncio.wait(workers, timeout=stop_timeout_s)
            _tell_unfinished(running, stop_timeout_s)
    finally:
        for task in (stopping, *workers):
            task.cancel()
        ended = await asyncio.gather(*workers, return_exceptions=True)
        await core.finish(())
    for error in ended:
        if isinstance(error, BaseException) and not isinstance(error, asyncio.CancelledError):
            raise error


async def _handle_in_loop(delivery: Delivery, function: Handler) -> None:
    try:
        with delivery:
            found = function(delivery)
            if inspect.isawaitable(found):
                await found
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        _tell_failed(delivery, error)  # not it was cancelled, but what it waited for
    except Exception as error:  # noqa: BLE001 - whatever a handler raises
        _tell_failed(delivery, error)
    else:
        _tell_if_late(delivery)


@contextmanager
def _stopping_loop_on_signals(
    stop: Callable[[], None], workers: Iterable[asyncio.Task[None]]
) -> Iterator[None]:
    """`stop` at the first signal; the second one cancels the handlers."""
    seen: list[int] = []

    def on_signal(which: int) -> None:
        if seen:
            for worker in workers:
                worker.cancel()
        else:
            _tell_stopping(which)
            stop()
        seen.append(which)

    loop = asyncio.get_running_loop()
    signals = _signals.setdefault(loop, _LoopSignals(loop))
    signals.tell(on_signal)
    try:
        yield
    finally:
        if signals.tell_no_more(on_signal):
            del _signals[loop]


class _LoopSignals:
    """Passes signals on to all runs in an event loop, which has one handler for each."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._told: list[Callable[[int], None]] = []
        self._before: dict[signal.Signals, Any] = {}

    def tell(self, run: Callable[[int], None]) -> None:
        """Tell the run of signals from now on."""
        self._told.append(run)
        # Not available: outside of the main thread, or on this system.
        with suppress(NotImplementedError, RuntimeError, ValueError):
            for which in _SIGNALS:
                if which not in self._before:
                    handler = signal.getsignal(which)
                    self._loop.add_signal_handler(which, self._came, which)
                    self._before[which] = handler

    def tell_no_more(self, run: Callable[[int], None]) -> bool:
        """Returns whether it was the last one: signals act as before then."""
        self._told.remove(run)
        if self._told:
            return False
        for which, handler in self._before.items():
            self._loop.remove_signal_handler(which)
            signal.signal(which, handler or signal.SIG_DFL)
        return True

    def _came(self, which: int) -> None:
        for run in tuple(self._told):
            run(which)


#: Of event loops with runs.
_signals: dict[asyncio.AbstractEventLoop, _LoopSignals] = {}


# --- what is logged ------------------------------------------------------------------------


def _tell_failed(delivery: Delivery, error: BaseException) -> None:
    if isinstance(error, RetryLater):
        logger.info("%r is delivered again later: %s", delivery, error)
    else:
        logger.warning(
            "%r failed, and was given back: it is delivered again, or becomes a dead letter if "
            "this was the last delivery that its group allows",
            delivery,
            exc_info=error,
        )


def _tell_if_late(delivery: Delivery) -> None:
    """Warn if the acknowledgement of a handled delivery came too late."""
    delivery.acknowledge(with_next=True).add_done_callback(partial(_late, repr(delivery)))


def _late(delivery: str, settlement: Settlement) -> None:
    if not settlement.exception() and settlement.result() is Outcome.NOT_IN_FLIGHT:
        logger.warning(
            "%s was handled too late: its time was over, and it was delivered again", delivery
        )


def _tell_stopping(number: int) -> None:
    name = signal.Signals(number).name
    logger.info("%s: handlers that run are finished; another signal ends them", name)


def _tell_unfinished(running: dict[int, Delivery], stop_timeout_s: float) -> None:
    if running:
        logger.warning(
            "%d handlers did not end within %g s; their messages are delivered again",
            *(len(running), stop_timeout_s),
        )
