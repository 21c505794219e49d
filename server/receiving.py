"""How requests are taken from gRPC, and how an answer goes out with the taking of the next one.

A read of grpc.aio that is cancelled never frees what it was to get: the bytes come all the same,
and nothing puts them away. A request that is cut, or that its client gives up, would cost the
process what was sent of it, for good. So no read is cancelled here: a caller that gives up leaves
it to run to its end.

gRPC tells of the end of each operation by a thread that wakes the event loop. A caller that makes
one call after the other would have it woken twice for each: by the end of the answer's write, and
by the next request. `send_and_receive` has it woken once. It is the only thing here that is below
gRPC's public calls, and is used with the releases that were measured. With others, and where
KVCQ_PUBLIC_GRPC is set in the environment, `call_below` gives None: answers are written, and
requests read, one after the other.

A front imports this, and so nothing of the client, which would take it 0.1 s and 7 MB.
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

#: The same as of `kvcq_client.transport`.
MEASURED = ("1.85",)

#: The layer below; the stubs of grpc leave it out. None: it is of a release that was not measured,
#: or is not to be used, as in the client.
cygrpc: Any = (
    import_module("grpc._cython.cygrpc")
    if grpc.__version__.rpartition(".")[0] in MEASURED and "KVCQ_PUBLIC_GRPC" not in os.environ
    else None
)

#: What reading a stream gives once there is no more.
EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out


def receive(context: Context) -> Awaitable[Any]:
    """The next request, in bytes; EOF or None when there is no more.

    A caller that is cancelled leaves nothing behind: what comes is taken, and dropped.
    """
    return _Running(context.read()).outcome


def call_below(context: Context) -> object | None:
    """gRPC's own object of the call, for `send_and_receive`.

    None: write and `receive` do it. So it is behind a front, and with other releases of gRPC. Its
    context has the object and does not give it out.
    """
    if cygrpc is None or not isinstance(context, cygrpc._ServicerContext):  # noqa: SLF001 - as above
        return None
    return next((x for x in gc.get_referents(context) if isinstance(x, cygrpc.RPCState)), None)


def send_and_receive(below: object, data: bytes) -> Awaitable[bytes | None]:
    """As `receive`, for a `call_below`, once `data` is sent as well; None: there is no more.

    Not before the initial metadata were sent. A caller that is cancelled has sent it.
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
    """A coroutine of gRPC that begins at once, and runs to its end whoever waits for it.

    A task would begin in the next turn of the loop: an answer that is sent in this one has its
    caller at work while the server goes on.
    """

    __slots__ = ("_coroutine", "outcome")

    def __init__(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        self._coroutine = coroutine
        #: Awaited, or cancelled, by the one who waits.
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
