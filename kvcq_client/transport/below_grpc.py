"""Everything of gRPC that is not public, each use with its public twin.

gRPC does not promise to keep any of it. It is used with the releases that were measured
(`grpc_environment`); with others, and where `KVCQ_PUBLIC_GRPC` is set in the environment, the twins
do the same work, more slowly. No other module of the client touches gRPC's private names.
"""

from __future__ import annotations

import asyncio
from importlib import import_module
from typing import TYPE_CHECKING, Any, TypeVar

import grpc
from google.protobuf.message import Message

from kvcq_client.transport.grpc_environment import IS_MEASURED

if TYPE_CHECKING:
    from collections.abc import Callable

R = TypeVar("R", bound=Message)

#: The layer below; the stubs of grpc leave it out. None: only public calls are used.
cygrpc: Any = import_module("grpc._cython.cygrpc") if IS_MEASURED else None

_EOF: object = grpc.aio.EOF  # type: ignore[attr-defined] # the stubs leave it out

#: Errors of `write_request` when the stream is over.
STREAM_OVER = (
    grpc.aio.AioRpcError,
    grpc.aio.InternalError,
    asyncio.InvalidStateError,
)


def _has_below(stream: object) -> bool:
    """Whether the call is gRPC's own. An interceptor, as those that trace, puts another object
    before it, which has the public methods only."""
    return cygrpc is not None and hasattr(stream, "_cython_call")


async def connected(stream: Any) -> None:  # noqa: ANN401 - any call of gRPC
    """Return once the stream can be written to, or is over.

    gRPC's own wait, which its `write` does too, never ends if the stream is cancelled before there
    is a connection.
    """
    waiting = asyncio.ensure_future(stream.wait_for_connection())
    stream.add_done_callback(lambda _: waiting.cancel())
    await asyncio.gather(waiting, return_exceptions=True)  # the reader of the stream hears its end


async def write_request(stream: Any, request: Message | bytes) -> None:  # noqa: ANN401 - any call of gRPC
    """Write the request. Raises one of STREAM_OVER; the reader of the stream hears why it ended.

    Only after `connected`, or after the initial metadata have arrived.

    The twin is `stream.write`. When a write fails it gives the stream an end of its own making,
    INTERNAL, which hides why the server ended it: that it drains, or knows no such user.
    """
    if not _has_below(stream):
        await stream.write(request)
        return
    if stream.done():  # otherwise a cancelled stream would cancel the writer
        raise asyncio.InvalidStateError("the stream has ended")
    data = request if isinstance(request, bytes) else request.SerializeToString()
    await stream._cython_call.send_serialized_message(data)  # noqa: SLF001 - see the module


async def exchange(stream: Any, request: Message, response: type[R]) -> R | None:  # noqa: ANN401 - as above
    """Send the request and return the next response; None when the stream is over.

    Only after the initial metadata have arrived, by one caller at a time. A caller that is
    cancelled has sent the request. The twin is `stream.write` and `stream.read`; here gRPC is given
    both at once and wakes the event loop once, for a quarter less of the client's processor time.
    """
    if not _has_below(stream):
        try:
            await stream.write(request)
            received = await stream.read()
        except STREAM_OVER:
            return None
        return None if received is _EOF else received
    reading = cygrpc.ReceiveMessageOperation(0)
    both = (cygrpc.SendMessageOperation(request.SerializeToString(), 0), reading)
    try:
        await cygrpc.execute_batch(
            stream._cython_call,  # noqa: SLF001 - see the module
            *(both, asyncio.get_running_loop()),
        )
    except cygrpc.ExecuteBatchError:
        return None
    data: bytes | None = reading.message()
    return None if data is None else response.FromString(data)


def is_news_of_grpc(callback: Callable[..., object]) -> bool:
    """Whether gRPC's own thread schedules the callback, to notify an event loop of what has ended.

    Without gRPC's internals every callback counts as one of the program's. A closed event loop then
    logs an error about abandoned calls.
    """
    return getattr(callback, "__name__", "") == "_handle_callback_wrapper"
