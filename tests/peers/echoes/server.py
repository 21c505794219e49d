"""The process of an echo server: `python -m tests.peers.echoes.server STACK PORT`."""

from __future__ import annotations

import asyncio
import importlib
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.transport.loop_thread import new_event_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

UNARY, STREAM = "/echo.Echo/Unary", "/echo.Echo/Stream"
#: Length-prefixed messages of plain TCP.
PREFIX_BYTES = 4


def _handlers(unary: Any, stream: Any) -> grpc.GenericRpcHandler[Any, Any]:  # noqa: ANN401 - of either kind
    """Without serializers: bytes come and go."""
    return grpc.method_handlers_generic_handler(
        "echo.Echo",
        {
            "Unary": grpc.unary_unary_rpc_method_handler(unary),
            "Stream": grpc.stream_stream_rpc_method_handler(stream),
        },
    )


async def grpc_aio(port: int) -> None:
    async def unary(request: bytes, _: object) -> bytes:
        return request

    async def stream(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield request

    server = grpc.aio.server()
    server.add_generic_rpc_handlers((_handlers(unary, stream),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def grpc_threads(port: int) -> None:
    def unary(request: bytes, _: object) -> bytes:
        return request

    def stream(requests: Iterator[bytes], _: object) -> Iterator[bytes]:
        yield from requests

    server = grpc.server(ThreadPoolExecutor(8))
    server.add_generic_rpc_handlers((_handlers(unary, stream),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


class BytesCodec:
    """For grpclib: a message is its bytes."""

    __content_subtype__ = "proto"

    def encode(self, message: bytes, _: object) -> bytes:
        return message

    def decode(self, data: bytes, _: object) -> bytes:
        return data


async def grpclib(port: int) -> None:
    const: Any = importlib.import_module("grpclib.const")
    server_module: Any = importlib.import_module("grpclib.server")

    class Echo:
        def __mapping__(self) -> dict[str, object]:
            handler, cardinality = const.Handler, const.Cardinality
            return {
                UNARY: handler(self._unary, cardinality.UNARY_UNARY, bytes, bytes),
                STREAM: handler(self._stream, cardinality.STREAM_STREAM, bytes, bytes),
            }

        async def _unary(self, stream: Any) -> None:  # noqa: ANN401 - the library is not typed
            await stream.send_message(await stream.recv_message())

        async def _stream(self, stream: Any) -> None:  # noqa: ANN401
            async for message in stream:
                await stream.send_message(message)

    server = server_module.Server([Echo()], codec=BytesCodec())
    await server.start("127.0.0.1", port)
    await server.wait_closed()


async def tcp(port: int) -> None:
    class Echo(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self._transport: Any = transport

        def data_received(self, data: bytes) -> None:
            self._transport.write(data)

    server = await asyncio.get_running_loop().create_server(Echo, "127.0.0.1", port)
    await server.serve_forever()


async def asgi(scope: dict[str, Any], receive: Any, send: Any) -> None:  # noqa: ANN401
    """The application for servers of ASGI: the frames of gRPC go back as they come."""
    if scope["type"] != "http":
        return
    headers = [(b"content-type", b"application/grpc")]
    await send({"type": "http.response.start", "status": 200, "headers": headers, "trailers": True})
    more = True
    while more:
        event = await receive()
        if event["type"] != "http.request":
            return
        more = event.get("more_body", False)
        if event["body"]:
            await send({"type": "http.response.body", "body": event["body"], "more_body": True})
    await send({"type": "http.response.body", "body": b"", "more_body": False})
    trailers = [(b"grpc-status", b"0")]
    await send({"type": "http.response.trailers", "headers": trailers, "more_trailers": False})


async def pyvoy(port: int) -> None:
    server: Any = importlib.import_module("pyvoy").PyvoyServer(
        "tests.peers.echoes.server:asgi", address="127.0.0.1", port=port, loop="uvloop"
    )
    ended = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, ended.set)
    async with server:  # a process of its own, which would outlive this one
        await ended.wait()


_IN_LOOP = {"grpc.aio": grpc_aio, "grpclib": grpclib, "tcp": tcp, "pyvoy": pyvoy}


def main() -> None:
    """STACK is a name, with `+uvloop` where the loop is uvloop's."""
    stack, port = sys.argv[1], int(sys.argv[2])
    name, _, loop = stack.partition("+")
    if name == "grpc threads":
        grpc_threads(port)
        return
    factory: Callable[[], asyncio.AbstractEventLoop] = (
        new_event_loop if loop else asyncio.new_event_loop
    )
    factory().run_until_complete(_IN_LOOP[name](port))


if __name__ == "__main__":
    main()
