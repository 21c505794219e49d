"""What lies below gRPC's public calls, for the releases that were measured. It is not promised to
stay: others go without it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import Any

from kvcq_client.transport.grpc_environment import IS_MEASURED

#: The layer below; the stubs of grpc leave it out. None: it is of a release that was not measured.
cygrpc: Any = import_module("grpc._cython.cygrpc") if IS_MEASURED else None


async def send_and_receive(call: object, data: bytes) -> bytes | None:
    """The next message, once `data` is sent as well; None: there is none, or the other side is
    gone. `call` is gRPC's own object of the call.

    gRPC is handed both at once, and tells once. Not before the initial metadata were sent. Who is
    cancelled meanwhile has sent it.
    """
    received = cygrpc.ReceiveMessageOperation(0)
    both = (cygrpc.SendMessageOperation(data, 0), received)
    try:
        await cygrpc.execute_batch(call, both, asyncio.get_running_loop())
    except cygrpc.ExecuteBatchError:
        return None
    message: bytes | None = received.message()
    return message
