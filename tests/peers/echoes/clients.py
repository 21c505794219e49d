"""Echo clients, one class a stack, each in the process of tests/peers/client.py."""

from __future__ import annotations

import asyncio
import importlib
import os
import queue
import socket
import struct
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from kvcq_client.transport.loop_thread import new_event_loop
from tests.peers.echoes.server import PREFIX_BYTES, STREAM, UNARY, BytesCodec
from tests.peers.systems.calls import by_callers, one_at_a_time
from tests.peers.values import BODY_BYTES, CALLERS, Durability, NotOfferedError, Timed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator

T = TypeVar("T")

_BODY = os.urandom(BODY_BYTES)
#: Without serializers, which the library does not need and its stubs ask for.
_GRPC: Any = grpc


class EchoClient:
    """What all can be asked; each kind that a client lacks raises NotOfferedError."""

    with_uvloop = True

    def __init__(self, address: str, durability: Durability) -> None:
        self._address = address
        self._loop = new_event_loop() if self.with_uvloop else asyncio.new_event_loop()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def unary_blocking(self, limit_s: float) -> Timed:
        raise NotOfferedError("the client has no blocking face")

    def unary_asyncio(self, limit_s: float) -> Timed:
        return self.run(self._unary(1, limit_s))

    def unary_64(self, limit_s: float) -> Timed:
        return self.run(self._unary(CALLERS, limit_s))

    async def _unary(self, callers: int, limit_s: float) -> Timed:
        raise NotImplementedError

    def stream_blocking(self, limit_s: float) -> Timed:
        raise NotOfferedError("the client has no blocking face")

    def stream_asyncio(self, limit_s: float) -> Timed:
        return self.run(self._stream(limit_s))

    async def _stream(self, limit_s: float) -> Timed:
        raise NotOfferedError("not measured: the client takes no part in the comparison of streams")

    def close(self) -> None:
        self._loop.close()


class GrpcEcho(EchoClient):
    """grpcio: its blocking and its asyncio client."""

    def unary_blocking(self, limit_s: float) -> Timed:
        with _GRPC.insecure_channel(self._address) as channel:
            call = channel.unary_unary(UNARY)
            return one_at_a_time(lambda: call(_BODY), limit_s)

    async def _unary(self, callers: int, limit_s: float) -> Timed:
        async with _GRPC.aio.insecure_channel(self._address) as channel:
            call = channel.unary_unary(UNARY)

            async def one(_: int) -> None:
                await call(_BODY)

            return await by_callers(one, callers, limit_s)

    def stream_blocking(self, limit_s: float) -> Timed:
        with _GRPC.insecure_channel(self._address) as channel:
            requests: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()

            def sent() -> Iterator[bytes]:
                while (request := requests.get()) is not None:
                    yield request

            answers = channel.stream_stream(STREAM)(sent())

            def one() -> None:
                requests.put(_BODY)
                next(answers)

            timed = one_at_a_time(one, limit_s)
            requests.put(None)
            return timed

    async def _stream(self, limit_s: float) -> Timed:
        async with _GRPC.aio.insecure_channel(self._address) as channel:
            call = channel.stream_stream(STREAM)()

            async def one(_: int) -> None:
                await call.write(_BODY)
                await call.read()

            timed = await by_callers(one, 1, limit_s)
            await call.done_writing()
            return timed


class GrpcEchoWithoutUvloop(GrpcEcho):
    with_uvloop = False


class GrpclibEcho(EchoClient):
    """grpclib: asyncio over h2, all of it Python."""

    async def _unary(self, callers: int, limit_s: float) -> Timed:
        client = importlib.import_module("grpclib.client")
        host, _, port = self._address.rpartition(":")
        channel: Any = client.Channel(host, int(port), codec=BytesCodec())
        method: Any = client.UnaryUnaryMethod(channel, UNARY, bytes, bytes)
        try:
            return await by_callers(lambda _: method(_BODY), callers, limit_s)
        finally:
            channel.close()

    async def _stream(self, limit_s: float) -> Timed:
        client = importlib.import_module("grpclib.client")
        host, _, port = self._address.rpartition(":")
        channel: Any = client.Channel(host, int(port), codec=BytesCodec())
        method: Any = client.StreamStreamMethod(channel, STREAM, bytes, bytes)
        try:
            async with method.open() as stream:

                async def one(_: int) -> None:
                    await stream.send_message(_BODY)
                    await stream.recv_message()

                timed = await by_callers(one, 1, limit_s)
                await stream.end()
                return timed
        finally:
            channel.close()


class PyqwestEcho(EchoClient):
    """pyqwest: hyper, in Rust, with the frames of gRPC written here."""

    _frame = struct.pack(">BI", 0, BODY_BYTES) + _BODY
    _headers = (("content-type", "application/grpc"), ("te", "trailers"))

    def unary_blocking(self, limit_s: float) -> Timed:
        pyqwest: Any = importlib.import_module("pyqwest")
        transport = pyqwest.SyncHTTPTransport(http_version=pyqwest.HTTPVersion.HTTP2)
        client = pyqwest.SyncClient(transport=transport)

        def one() -> None:
            answer = client.post(f"http://{self._address}{UNARY}", self._headers, self._frame)
            _check(answer)

        return one_at_a_time(one, limit_s)

    async def _unary(self, callers: int, limit_s: float) -> Timed:
        pyqwest: Any = importlib.import_module("pyqwest")
        transport = pyqwest.HTTPTransport(http_version=pyqwest.HTTPVersion.HTTP2)
        client = pyqwest.Client(transport=transport)

        async def one(_: int) -> None:
            url = f"http://{self._address}{UNARY}"
            _check(await client.post(url, self._headers, self._frame))

        return await by_callers(one, callers, limit_s)


def _check(answer: Any) -> None:  # noqa: ANN401 - the library may be absent
    if len(answer.content) != 5 + BODY_BYTES or answer.trailers["grpc-status"] != "0":
        raise RuntimeError(f"{answer.status}: {answer.headers} {answer.trailers}")


class TcpEcho(EchoClient):
    """A socket with a length before each message. A stream and a single call are the same here."""

    _message = BODY_BYTES.to_bytes(PREFIX_BYTES, "big") + _BODY

    def unary_blocking(self, limit_s: float) -> Timed:
        host, _, port = self._address.rpartition(":")
        with socket.create_connection((host, int(port))) as one:
            one.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

            def call() -> None:
                one.sendall(self._message)
                left = len(self._message)
                while left:
                    left -= len(one.recv(left))

            return one_at_a_time(call, limit_s)

    async def _unary(self, callers: int, limit_s: float) -> Timed:
        """One connection for all callers: answers come in the order of the calls."""
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        waiting: list[asyncio.Future[None]] = []

        async def read() -> None:
            while True:
                await reader.readexactly(len(self._message))
                waiting.pop(0).set_result(None)

        async def call(_: int) -> None:
            answered = self._loop.create_future()
            waiting.append(answered)
            writer.write(self._message)
            await answered

        reading = asyncio.ensure_future(read())
        try:
            return await by_callers(call, callers, limit_s)
        finally:
            reading.cancel()
            writer.close()
            await writer.wait_closed()
