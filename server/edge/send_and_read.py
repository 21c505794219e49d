"""An answer goes out with the reading of the next request: gRPC is handed both at once.

gRPC tells of the end of each operation by a thread, which wakes the event loop. Of the end of a
write nobody has any use, and most answers are followed by a request: told of both at once, the loop
is woken half as often. It is below gRPC's public calls, and used with the releases that were
measured.
"""

from __future__ import annotations

import asyncio
import gc
from importlib import import_module
from typing import TYPE_CHECKING, Any

from kvcq_client.transport import IS_MEASURED

if TYPE_CHECKING:
    from server.edge.call_info import Context

#: The layer below; the stubs of grpc leave it out.
_cygrpc: Any = import_module("grpc._cython.cygrpc") if IS_MEASURED else None


def call_below(context: Context) -> object | None:
    """gRPC's own object of the call, which its context has and does not give out. None: there is
    no such, as behind a front."""
    if _cygrpc is None:
        return None
    return next((x for x in gc.get_referents(context) if isinstance(x, _cygrpc.RPCState)), None)


async def send_and_read(call: object, answer: bytes) -> bytes | None:
    """The next request, once the answer is sent as well; None: there is none, or the client is
    gone. Not before the initial metadata were sent. Who is cancelled meanwhile has sent it."""
    request = _cygrpc.ReceiveMessageOperation(0)
    both = (_cygrpc.SendMessageOperation(answer, 0), request)
    try:
        await _cygrpc.execute_batch(call, both, asyncio.get_running_loop())
    except _cygrpc.ExecuteBatchError:
        return None
    data: bytes | None = request.message()
    return data
