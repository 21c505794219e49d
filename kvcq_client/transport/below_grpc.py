"""What lies below gRPC's public calls, for the releases that were measured. It is not promised to
stay: others go without it."""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.transport.grpc_environment import IS_MEASURED

if TYPE_CHECKING:
    from google.protobuf.message import Message

#: The layer below; the stubs of grpc leave it out. None: it is of a release that was not measured.
cygrpc: Any = import_module("grpc._cython.cygrpc") if IS_MEASURED else None


#: What `write_request` raises when the stream is over.
STREAM_OVER = (
    grpc.aio.AioRpcError,
    grpc.aio.InternalError,
    asyncio.InvalidStateError,
)


def is_plain(stream: object) -> bool:
    """Whether a call of grpc.aio is gRPC's own. An interceptor, as those that trace, puts another
    one before it, which has the public methods alone."""
    return cygrpc is not None and hasattr(stream, "_cython_call")


def is_plain_channel(channel: object) -> bool:
    """The same of a grpc.Channel."""
    return cygrpc is not None and hasattr(getattr(channel, "_channel", None), "segregated_call")


async def write_request(stream: Any, request: Message | bytes) -> None:  # noqa: ANN401 - any call of gRPC
    """As `stream.write`, which gives the stream an end of its own making, INTERNAL, when a write
    fails, and so hides why the server ended it: that this drains, say, or knows no such user. Who
    reads hears that then.

    Raises one of STREAM_OVER.
    """
    if not is_plain(stream):
        await stream.write(request)
        return
    if stream.done():  # else one that was cancelled would cancel who writes
        raise asyncio.InvalidStateError("the stream has ended")
    await stream.wait_for_connection()
    data = request if isinstance(request, bytes) else request.SerializeToString()
    await stream._cython_call.send_serialized_message(data)  # noqa: SLF001 - below, as it says


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
