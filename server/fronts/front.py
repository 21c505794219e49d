"""A front: the process that serves gRPC to clients and passes each call unchanged to the owner.

python -m server.fronts.front DESCRIPTOR

The descriptor is one end of a socket pair. The process imports gRPC and little else, starts in a
quarter of a second, and knows only the names of methods.

Requests that may be large, and later requests of a stream, are read when the owner asks for them,
and responses are sent as fast as their connection takes them. A front holds no acknowledged data:
when it dies, its connections break, and clients reconnect. It exits when the owner tells it to, and
at once if the owner is gone. It ignores all signals but SIGKILL, since a terminal, or systemd,
sends them to all processes of a service.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import socket
import sys
import threading
from collections import deque
from concurrent.futures import Future
from functools import partial
from time import monotonic
from typing import TYPE_CHECKING, Any, cast

import grpc

from server.fronts import frames
from server.fronts.frames import Link
from server.process import (
    calm_collector,
    fast_loop,
    give_back,
    tune_allocator,
    until_quiet,
)
from server.receiving import EOF, receive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    Context = grpc.aio.ServicerContext[Any, Any]

logger = logging.getLogger("server.fronts.front")  # the module is also a program, of another name

_CODES: Mapping[int, grpc.StatusCode] = {code.value[0]: code for code in grpc.StatusCode}
#: A handshake that waits longer for the owner continues with the current certificate.
_CERTIFICATE_S = 5.0
#: If a call's request arrives this soon and is not larger, it goes to the owner with the call: one
#: frame instead of two, and no second wait. Otherwise the call is announced first.
_SOON_S = 0.02
_SMALL_BYTES = 64 << 10
#: After a larger request or response the allocator returns free memory.
_LARGE_BYTES = 1 << 20
_TRIM_AFTER_S = 1.0
#: After a much larger one at once, since gRPC's pieces of it take as much again.
_HUGE_BYTES = 16 << 20
_TRIM_HUGE_AFTER_S = 0.05
#: How the process ends when the owner is gone.
_OWNER_IS_GONE = 3


class _Call:
    """One running call: unprocessed frames, and the waiter for the next."""

    __slots__ = (
        "_waiter",
        "came",
        "is_ended",
        "most_bytes",
        "number",
        "opening",
        "reading",
        "reads",
    )

    def __init__(
        self,
        number: int,
        opening: Callable[[bytes | None], bytes],
        reads: asyncio.Event | None,
        most_bytes: int,
    ) -> None:
        self.number = number
        self.most_bytes = most_bytes
        #: Makes the first frame, with the request if it is here; None: the owner knows of the call.
        self.opening: Callable[[bytes | None], bytes] | None = opening
        #: Set by each READ if requests are read elsewhere; None: READ is a frame like others.
        self.reads = reads
        self.came: deque[tuple[int, bytes]] = deque()
        self._waiter: asyncio.Future[None] | None = None
        #: The task that reads the only request, while it does: its end does not wait for that.
        self.reading: asyncio.Task[Any] | None = None
        self.is_ended = False

    def take(self, kind: int, body: bytes) -> None:
        if kind == frames.READ and self.reads is not None:
            self.reads.set()
            return
        self.came.append((kind, body))
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)
        if self.reading is not None and kind != frames.READ:
            self.is_ended = True
            self.reading.cancel()

    async def frame(self) -> tuple[int, bytes]:
        while not self.came:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self.came.popleft()


class Front:
    """A grpc.GenericRpcHandler for all methods.

    Owned by the event loop's thread, except `_certificate`.
    """

    def __init__(self, lost: Callable[[], None]) -> None:
        """`lost` is called when the owner is gone without having stopped the front."""
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._link = Link(self._taken, self._link_lost)
        self._hello: asyncio.Future[dict[str, Any]] = self._loop.create_future()
        self._stop: asyncio.Future[float] = self._loop.create_future()
        self._is_ending = False
        self._closed: asyncio.Future[None] = self._loop.create_future()
        self._handlers: dict[str, grpc.RpcMethodHandler[Any, Any]] = {}
        self._most_bytes: list[int] = []
        self._calls: dict[int, _Call] = {}
        # Calls that may not have been announced: those that began before the last look, and after
        # it.
        self._untold: tuple[list[_Call], list[_Call]] = [], []
        self._look: asyncio.TimerHandle | None = None
        self._last = 0
        self._trim: asyncio.TimerHandle | None = None
        self._asking = threading.Lock()
        self._asked: Future[None] | None = None
        # The owner's last certificate, until it is taken; it may arrive when no handshake waits for
        # it.
        self._renewed: deque[bytes] = deque(maxlen=1)

    async def run(self, pair: socket.socket) -> None:
        """Serve until the owner stops it, or is gone."""
        await self._loop.create_unix_connection(lambda: self._link, sock=pair)
        try:
            hello = await self._hello
            server = grpc.aio.server(options=[(name, value) for name, value in hello["options"]])
            self._add_methods(hello["methods"])
            handler = cast("grpc.GenericRpcHandler[Any, Any]", self)
            server.add_generic_rpc_handlers((handler,))
            ports = [
                self._listen(server, address, hello["certificate"] if is_secured else None)
                for address, is_secured in hello["addresses"]
            ]
            await server.start()
            self._link.send(frames.LISTENING, body=frames.PORT.pack(ports[-1]))
            try:
                await self._serve_until_stopped(server)
            finally:
                await server.stop(None)
        except RuntimeError as error:  # so gRPC says that it cannot listen
            logger.error("a front cannot listen: %s", error)
        finally:
            self._is_ending = True
            self._link.close()
            await self._closed

    def log_to_owner(self) -> logging.Handler:
        """A log handler that sends lines to the owner's log."""
        return _LogToOwner(self._link, self._loop)

    async def _serve_until_stopped(self, server: grpc.aio.Server) -> None:
        """The owner may repeat it, with less time for running calls."""
        stops: set[asyncio.Future[Any]] = set()
        while not any(stop.done() for stop in stops):
            await asyncio.wait({self._stop, *stops}, return_when=asyncio.FIRST_COMPLETED)
            if self._stop.done():
                grace_s = self._stop.result()
                self._stop = self._loop.create_future()
                stops.add(asyncio.create_task(self._stop_server(server, grace_s)))
        await asyncio.gather(*stops)

    async def _stop_server(self, server: grpc.aio.Server, grace_s: float) -> None:
        if grace_s:
            await until_quiet(lambda: self._last)  # as the owner does
        await server.stop(grace_s or None)

    def _listen(self, server: grpc.aio.Server, address: str, certificate: str | None) -> int:
        if certificate is None:
            return server.add_insecure_port(address)
        configuration, needs_one = _configuration_of(certificate)
        return server.add_secure_port(
            address,
            grpc.dynamic_ssl_server_credentials(
                configuration,
                self._certificate,  # type: ignore[arg-type] # as in server/access/tls.py
                needs_one,
            ),
        )

    # --- what the owner says ---------------------------------------------------------------

    def _taken(self, kind: int, number: int, body: bytes) -> None:
        if number:
            call = self._calls.get(number)
            if call is not None:  # otherwise its client has given it up meanwhile
                call.take(kind, body)
        elif kind == frames.HELLO:
            self._hello.set_result(json.loads(body))
        elif kind == frames.STOP:
            if not self._stop.done():
                self._stop.set_result(frames.SECONDS.unpack(body)[0])
        elif kind == frames.ALIVE:
            self._link.send(frames.ALIVE)
        else:
            assert kind == frames.CERTIFICATE, kind
            if body:
                self._renewed.append(body)
            if self._asked is not None and not self._asked.done():
                self._asked.set_result(None)

    def _link_lost(self) -> None:
        self._closed.set_result(None)
        if not self._is_ending:
            self._lost()

    # --- calls -----------------------------------------------------------------------------

    def service(
        self, handler_call_details: grpc.HandlerCallDetails
    ) -> grpc.RpcMethodHandler[Any, Any] | None:
        return self._handlers.get(handler_call_details.method)

    def _add_methods(self, methods: list[tuple[str, bool, bool, bool, int]]) -> None:
        for at, (path, _, many_responses, waits, most_bytes) in enumerate(methods):
            self._most_bytes.append(most_bytes)
            if many_responses:
                handler = grpc.stream_stream_rpc_method_handler(partial(self._stream, at, waits))
            else:
                handler = grpc.stream_unary_rpc_method_handler(partial(self._unary, at, waits))
            self._handlers[path] = handler

    async def _unary(self, method: int, waits: bool, _: object, context: Context) -> bytes:  # noqa: FBT001
        call = self._open(method, context, None)
        if waits:
            self._tell(call)
        else:
            self._tell_soon(call)
            await self._read(call, context)
        while True:
            kind, body = await call.frame()
            if kind == frames.RESULT:
                self._passed(body)
                return body
            if kind == frames.STATUS:
                await self._end(context, body)
            else:
                await self._read(call, context)

    async def _stream(self, method: int, waits: bool, _: object, context: Context) -> None:  # noqa: FBT001
        reads = asyncio.Event()
        if not waits:
            reads.set()
        call = self._open(method, context, reads)
        self._tell(call)
        reading = asyncio.create_task(self._read_on(call, context, reads))
        written = 0
        try:
            while True:
                kind, body = await call.frame()
                if kind == frames.MESSAGE:
                    await context.write(body)
                    self._passed(body)
                    written += frames.weight_of(body)
                    if written >= frames.WINDOW_BYTES // 2:
                        self._link.send(frames.WRITTEN, call.number, frames.NUMBER.pack(written))
                        written = 0
                elif kind == frames.HEADERS:
                    await context.send_initial_metadata(())
                else:
                    assert kind == frames.STATUS, kind
                    await self._end(context, body)
                    return
        finally:
            reading.cancel()

    def _open(self, method: int, context: Context, reads: asyncio.Event | None) -> _Call:
        """Open a call that `_tell` reports to the owner."""
        number = self._last % 0xFFFF_FFFF + 1
        while number in self._calls:  # a stream of long ago
            number = number % 0xFFFF_FFFF + 1
        self._last = number
        remaining_s = context.time_remaining()
        deadline_s = frames.NEVER if remaining_s is None else monotonic() + remaining_s
        metadata = context.invocation_metadata() or ()
        opening = partial(frames.pack_opening, method, deadline_s, context.peer(), metadata)
        call = self._calls[number] = _Call(number, opening, reads, self._most_bytes[method])

        def ended(_: object) -> None:
            del self._calls[number]
            if call.opening is None:
                self._link.send(frames.ENDED, number)
            call.opening = None

        context.add_done_callback(ended)  # type: ignore[arg-type] # the stubs ask for two values
        return call

    def _tell(self, call: _Call, request: bytes | None = None) -> None:
        """Report the call, and its request if it has arrived. Repeatable."""
        if call.opening is not None:
            self._link.send(frames.OPEN, call.number, call.opening(request))
            call.opening = None

    def _tell_soon(self, call: _Call) -> None:
        self._untold[1].append(call)
        if self._look is None:
            self._look = self._loop.call_later(_SOON_S, self._tell_late)

    def _tell_late(self) -> None:
        late, begun = self._untold
        for call in late:
            self._tell(call)
        self._untold = begun, []
        self._look = self._loop.call_later(_SOON_S, self._tell_late) if begun else None

    async def _read(self, call: _Call, context: Context) -> None:
        """Pass on the only request. The owner may end the call before it arrives."""
        call.reading = asyncio.current_task()
        try:
            request = await receive(context)
        except asyncio.CancelledError:
            self._give_back_in(_TRIM_HUGE_AFTER_S)  # for the bytes that had arrived
            if not call.is_ended:
                raise
            assert call.reading is not None
            call.reading.uncancel()
            return
        finally:
            call.reading = None
        self._pass(call, request)

    async def _read_on(self, call: _Call, context: Context, reads: asyncio.Event) -> None:
        """Pass on requests as the owner asks for them, until the end."""
        request: object = None
        while request is not EOF:
            await reads.wait()
            reads.clear()
            try:
                request = await receive(context)
            except grpc.aio.BaseError:
                return  # the call is over
            self._pass(call, request)

    def _pass(self, call: _Call, request: object) -> None:
        if isinstance(request, bytes):
            if call.opening is not None and len(request) <= _SMALL_BYTES:
                self._tell(call, request)
                return
            self._tell(call)
            if len(request) <= call.most_bytes:
                self._link.send(frames.MESSAGE, call.number, request)
            else:
                body = frames.NUMBER.pack(len(request))
                self._link.send(frames.TOO_LARGE, call.number, body)
            self._passed(request)
        else:
            self._tell(call)
            self._link.send(frames.HALF_CLOSED, call.number)

    @staticmethod
    async def _end(context: Context, body: bytes) -> None:
        """End the call with that status."""
        ending = frames.unpack_ending(body)
        if ending.code:
            await context.abort(_CODES[ending.code], ending.details, ending.metadata)

    def _passed(self, message: bytes) -> None:
        if len(message) <= _LARGE_BYTES:
            return
        self._give_back_in(_TRIM_HUGE_AFTER_S if len(message) > _HUGE_BYTES else _TRIM_AFTER_S)

    def _give_back_in(self, after_s: float) -> None:
        if self._trim is not None:
            if self._trim.when() <= self._loop.time() + after_s:
                return
            self._trim.cancel()
        self._trim = self._loop.call_later(after_s, self._give_back)

    def _give_back(self) -> None:
        self._trim = None
        self._loop.run_in_executor(None, give_back)

    # --- TLS -------------------------------------------------------------------------------

    def _certificate(self) -> grpc.ServerCertificateConfiguration | None:
        """The owner's certificate, if it has changed. On threads of gRPC, one at each handshake."""
        with self._asking:
            asked = self._asked = Future()
            try:
                self._loop.call_soon_threadsafe(self._link.send, frames.CERTIFICATE)
                asked.result(_CERTIFICATE_S)
            except (RuntimeError, TimeoutError):
                pass  # the front ends, or the owner has other work
            self._asked = None
            return _configuration_of(self._renewed.pop())[0] if self._renewed else None


class _LogToOwner(logging.Handler):
    """Sends log lines of this process to the owner's log."""

    def __init__(self, link: Link, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__()
        self._link = link
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        text = self.format(record)
        body = bytes([record.levelno]) + f"{record.name}\n{text}".encode()
        self._loop.call_soon_threadsafe(self._link.send, frames.LOG, 0, body)


def _configuration_of(told: str | bytes) -> tuple[grpc.ServerCertificateConfiguration, bool]:
    """Also returns whether clients must present a certificate."""
    key, chain, *ca = (text.encode("latin-1") for text in json.loads(told) if text is not None)
    return grpc.ssl_server_certificate_configuration([(key, chain)], *ca), bool(ca)


def _end_at_once() -> None:
    os._exit(_OWNER_IS_GONE)


async def _run(pair: socket.socket) -> None:
    front = Front(_end_at_once)
    logging.getLogger().addHandler(front.log_to_owner())
    await front.run(pair)


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    pair = socket.socket(fileno=int(sys.argv[1]))
    calm_collector()
    tune_allocator()
    with asyncio.Runner(loop_factory=fast_loop()) as runner:
        runner.run(_run(pair))


if __name__ == "__main__":
    main()
