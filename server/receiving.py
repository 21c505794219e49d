"""How requests are taken from gRPC, and answers go out with the taking of the next.

A reading of grpc.aio that is cancelled never frees what it was to get: the bytes come all the same,
and who would have put them away is gone. A request that is cut, or that its client gives up, would
cost the process what was sent of it, for good. So no caller waits for gRPC itself.

gRPC tells of the end of each operation by a thread, which wakes the event loop. Of the end of a
write nobody has any use, and most answers are followed by a request: told of both at once, the loop
is woken half as often.

Both are done below gRPC's public calls, with the releases that were measured. A front imports this,
and so nothing of the client, which would take it 0.1 s and 7 MB.
"""

from __future__ import annotations

import asyncio
import gc
from contextlib import suppress
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Generator

    Context = grpc.aio.ServicerContext[Any, Any]

#: The same as of `kvcq_client.transport`.
MEASURED = ("1.85",)

#: The layer below; the stubs of grpc leave it out. None: it is of a release that was not measured.
cygrpc: Any = (
    import_module("grpc._cython.cygrpc")
    if grpc.__version__.rpartition(".")[0] in MEASURED
    else None
)

#: What reading a stream gives once there is no more.
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out


def receive(context: Context) -> Awaitable[Any]:
    """The next request, in bytes; EOF or None when there is no more.

    Who is cancelled meanwhile leaves nothing behind: what comes is taken, and let go.
    """
    below = call_below(context)
    if below is not None:
        received = cygrpc.ReceiveMessageOperation(0)
        return _Batch().run(below, (received,), received)
    if cygrpc is not None:
        return context.read()  # it is no call of gRPC
    return asyncio.shield(asyncio.ensure_future(context.read()))


def call_below(context: Context) -> object | None:
    """gRPC's own object of the call, which its context has and does not give out. None: there is
    no such, as behind a front."""
    if cygrpc is None or not isinstance(context, cygrpc._ServicerContext):  # noqa: SLF001 - as above
        return None
    return next((x for x in gc.get_referents(context) if isinstance(x, cygrpc.RPCState)), None)


def send_and_receive(below: object, data: bytes) -> Awaitable[bytes | None]:
    """As `receive`, for a `call_below`, once `data` is sent as well; None: there is no more.

    gRPC is handed both at once, and tells once. Not before the initial metadata were sent. Who is
    cancelled meanwhile has sent it.
    """
    received = cygrpc.ReceiveMessageOperation(0)
    return _Batch().run(below, (cygrpc.SendMessageOperation(data, 0), received), received)


class _Batch:
    """What gRPC takes for its loop, and for the future of the operations that it runs.

    It is never cancelled. Whoever waits for `run` and is, leaves this behind, which runs gRPC's
    coroutine to its end.
    """

    __slots__ = ("_error", "_is_over", "_loop", "_running", "_waiter")

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._error: Exception | None = None
        self._is_over = False

    async def run(self, call: object, operations: tuple[Any, ...], received: Any) -> bytes | None:  # noqa: ANN401 - of gRPC
        """What was `received` when gRPC has done all of the operations; None: nothing."""
        self._running = running = cygrpc.execute_batch(call, operations, self)
        self._waiter: asyncio.Future[None] | None = self._loop.create_future()
        try:
            running.send(None)  # gRPC begins
            await self._waiter
            running.send(None)  # it takes what came, and ends
        except StopIteration:
            message: bytes | None = received.message()
            return message
        except cygrpc.ExecuteBatchError:
            return None
        except BaseException:
            self._waiter = None
            if self._is_over:
                self._end_for_nobody()
            raise
        raise AssertionError("gRPC waits for something else")

    def _end_for_nobody(self) -> None:
        with suppress(StopIteration, cygrpc.ExecuteBatchError):
            self._running.send(None)

    # --- as a loop -------------------------------------------------------------------------

    def create_future(self) -> _Batch:
        return self

    def call_soon_threadsafe(self, callback: Callable[..., object], *arguments: object) -> None:
        """So gRPC tells what is not of the loop that it looks from: it does not know us for it."""
        if asyncio.get_running_loop() is self._loop:
            callback(*arguments)
        else:
            self._loop.call_soon_threadsafe(callback, *arguments)

    # --- as a future -----------------------------------------------------------------------

    def __await__(self) -> Generator[None, None, None]:
        yield
        if self._error is not None:
            raise self._error

    def cancelled(self) -> bool:
        return False

    def set_exception(self, error: Exception) -> None:
        self._error = error
        self.set_result(None)

    def set_result(self, _: None) -> None:
        self._is_over = True
        if self._waiter is None:
            self._end_for_nobody()
        elif not self._waiter.done():  # else it was cancelled, and will say so
            self._waiter.set_result(None)
