"""How requests are read from gRPC, and how a response is sent together with reading the next one.

A cancelled read of grpc.aio never frees its buffer: the bytes still arrive, and nothing releases
them. A request that is cut off or cancelled would leak its bytes. So no read is cancelled here: if
a caller gives up, its read runs to the end.

gRPC signals the end of each operation by a thread that wakes the event loop. For sequential calls
the loop would be woken twice for each: at the end of the response's write, and by the next request.
`send_and_receive` wakes it once. It is the only code here below gRPC's public calls, and is only
used with the releases that were measured; with others `call_below` returns None, and responses are
written and requests read one after the other.

A front imports this module, so it imports nothing of the client, which would cost 0.1 s and 7 MB.
"""

from __future__ import annotations

import asyncio
import gc
import os
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc

if TYPE_CHECKING:
    from collections.abc import Awaitable, Coroutine

    Context = grpc.aio.ServicerContext[Any, Any]

#: See the constant of this name in `kvcq_client.transport`.
MEASURED = ("1.85",)

#: The layer below; the stubs of grpc leave it out. None: it is of a release that was not measured,
#: or is not to be used, as in the client.
cygrpc: Any = (
    import_module("grpc._cython.cygrpc")
    if grpc.__version__.rpartition(".")[0] in MEASURED and "KVCQ_PUBLIC_GRPC" not in os.environ
    else None
)

#: Result of reading a stream after its last request.
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out


def receive(context: Context) -> Awaitable[Any]:
    """The next request, in bytes; EOF or None at the end.

    If the caller is cancelled, the request is still read, and dropped.
    """
    return _Running(context.read()).outcome


def call_below(context: Context) -> object | None:
    """gRPC's internal object of the call, for `send_and_receive`.

    None if write and `receive` have to be used: behind a front, and with other gRPC releases.
    """
    if cygrpc is None or not isinstance(context, cygrpc._ServicerContext):  # noqa: SLF001 - as above
        return None
    return next((x for x in gc.get_referents(context) if isinstance(x, cygrpc.RPCState)), None)


def send_and_receive(below: object, data: bytes) -> Awaitable[bytes | None]:
    """Send `data`, then like `receive`, for a `call_below`; None at the end.

    The initial metadata must be sent before. If the caller is cancelled, `data` is still sent.
    """
    return _Running(_both(below, data)).outcome


async def _both(below: object, data: bytes) -> bytes | None:
    received = cygrpc.ReceiveMessageOperation(0)
    both = (cygrpc.SendMessageOperation(data, 0), received)
    try:
        await cygrpc.execute_batch(below, both, asyncio.get_running_loop())
    except cygrpc.ExecuteBatchError:
        return None
    message: bytes | None = received.message()
    return message


class _Running:
    """A gRPC coroutine that starts immediately, and runs to its end even if its waiter is
    cancelled.

    A task would start in the next turn of the loop. A response that is sent in this one lets its
    client continue while the server does.
    """

    __slots__ = ("_coroutine", "outcome")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        #: Awaited, or cancelled, by the reader.
        self.outcome: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._go_on()

    def _go_on(self, _: object = None) -> None:
        outcome = self.outcome
        try:
            waits_for: asyncio.Future[Any] = self._coroutine.send(None)
        except StopIteration as end:
            if not outcome.done():
                outcome.set_result(end.value)
        except asyncio.CancelledError:
            outcome.cancel()
        except Exception as error:  # noqa: BLE001 - whoever waits has it
            if not outcome.done():
                outcome.set_exception(error)
        else:
            waits_for.add_done_callback(self._go_on)
