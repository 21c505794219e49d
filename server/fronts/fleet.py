"""Manages the fronts of a server: starts, configures, monitors and stops them.

HELLO, the first frame that a front receives, is JSON:

| key           | value                                                                       |
|---------------|-----------------------------------------------------------------------------|
| `address`     | the address to listen on, with the port                                     |
| `options`     | options of the gRPC server, as pairs                                        |
| `certificate` | null, or JSON: key, chain and CA in PEM; without a CA clients need none     |
| `methods`     | the methods, each as `FrontMethod`; a call uses the index in this list      |
"""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import subprocess
import sys
from contextlib import suppress
from time import monotonic
from typing import TYPE_CHECKING, Any, Protocol

from server.errors import FrontError
from server.fronts import frames
from server.fronts.address import HeldAddress
from server.fronts.calls import FrontCalls, Handlers
from server.fronts.frames import Link
from server.process import private_bytes
from store.base import import_root

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Sequence

    import grpc

    from server.fronts.calls import FrontMethod

logger = logging.getLogger(__name__)

#: In a wheel it has a longer name: see build_backend.py.
FRONT = f"{__package__}.front"
#: Before a front that ended is started again: doubled each time, up to the most.
_FIRST_PAUSE_S = 0.1
_MOST_PAUSE_S = 10.0
#: After running for this long, a front that ends is restarted after the first pause again.
_CALM_S = 60.0
#: A front that listens is asked this often whether it is alive, and killed when it has not answered
#: this many times in a row, as a service manager does with the owner.
_ASK_S = 5.0
_UNANSWERED = 6
#: Beyond the time that calls have to end; then a front is killed.
_END_S = 5.0
_SOCKET_BYTES = 1 << 20


class Certificates(Protocol):
    """The owner's TLS: server.access.ReloadedTls."""

    def fetch(self) -> object: ...

    @property
    def pem(self) -> tuple[bytes, bytes, bytes | None]: ...


class FrontProcess(Protocol):
    """A started front: asyncio.subprocess.Process."""

    @property
    def pid(self) -> int: ...

    async def wait(self) -> int: ...

    def kill(self) -> None: ...


async def start_process(pair: socket.socket) -> FrontProcess:
    """Start a front process with that end of the socket pair."""
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", FRONT, str(pair.fileno())),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(pair.fileno(),),
        cwd=import_root(FRONT),
    )


class Fronts:
    """Takes the place of a grpc.aio.Server for the composition root. Owned by the event loop's
    thread.

    Durability: a front holds no acknowledged data. When one dies, its calls are cancelled, like
    those of a client that is gone, and another one is started.
    """

    def __init__(
        self,
        count: int,
        options: Sequence[tuple[str, int]],
        methods: Sequence[FrontMethod],
        tls: Certificates | None,
        interceptor: grpc.aio.ServerInterceptor[Any, Any] | None,
    ) -> None:
        self._options = [*options, ("grpc.so_reuseport", 1)]
        self._handlers = Handlers(methods, interceptor)
        self._tls = tls
        self._start: Callable[[socket.socket], Awaitable[FrontProcess]] = start_process
        self._held: list[HeldAddress] = []
        self._addresses: list[tuple[str, bool]] = []  # and whether it takes TLS
        self._fronts: list[_Front | None] = [None] * count
        self._counts = [0] * count  # calls of those that ended
        self._restarts = 0
        self._keepers: list[asyncio.Task[None]] = []
        self._stopping = asyncio.Event()

    def add_generic_rpc_handlers(self, generic_rpc_handlers: Iterable[Any]) -> None:
        self._handlers.add_generic_rpc_handlers(generic_rpc_handlers)

    def hold(self, host: str, port: int, *, secured: bool) -> int:
        """Reserve a port for fronts. Raises ServerBindError."""
        held = HeldAddress(host, port)
        self._held.append(held)
        name = f"[{host}]" if ":" in host else host
        self._addresses.append((f"{name}:{held.port}", secured))
        return held.port

    async def start(self) -> None:
        """Returns once all fronts listen. Raises FrontError if one fails to."""
        firsts = [asyncio.get_running_loop().create_future() for _ in self._fronts]
        self._keepers = [
            asyncio.create_task(self._keep(number, first), name=f"front-{number}")
            for number, first in enumerate(firsts)
        ]
        outcomes = await asyncio.gather(*firsts, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, BaseException):
                await self.stop(None)
                raise outcome

    async def stop(self, grace_s: float | None) -> None:
        """Reject new connections; running calls have `grace_s` seconds, None for none.
        Repeatable."""
        self._stopping.set()
        fronts = [front for front in self._fronts if front is not None]
        for front in fronts:
            front.link.send(frames.STOP, body=frames.SECONDS.pack(grace_s or 0.0))
        if self._keepers:
            _, late = await asyncio.wait(self._keepers, timeout=(grace_s or 0.0) + _END_S)
            if late:
                for front in fronts:
                    front.kill()
                await asyncio.wait(late)
        for held in self._held:
            held.close()

    def private_bytes(self) -> int:
        """Private memory of all fronts, in bytes."""
        pids = [front.pid for front in self._fronts if front is not None]
        return sum(private_bytes(pid) for pid in pids if pid is not None)

    def statistics(self) -> dict[str, float]:
        """Metrics for GetStatistics, by name."""
        running = [front for front in self._fronts if front is not None]
        values: dict[str, float] = {
            "server.fronts.running": len(running),
            "server.fronts.restarts": self._restarts,
            "server.fronts.memory_bytes": self.private_bytes(),
        }
        for number, (front, count) in enumerate(zip(self._fronts, self._counts, strict=True)):
            under_way = 0 if front is None else front.calls.count
            values[f"server.front.{number}.calls"] = count + under_way
        return values

    async def _keep(self, number: int, first: asyncio.Future[None]) -> None:
        """Keep a front with that number running until the server stops."""
        pause_s = _FIRST_PAUSE_S
        while True:
            began_s = monotonic()
            front = _Front(number, self._handlers, self._tls)
            self._fronts[number] = front
            try:
                if await front.begin(self._start, self._hello()) and not first.done():
                    first.set_result(None)
                why = await front.ended()
            except OSError as error:
                why = f"cannot be started: {error}"
            self._fronts[number] = None
            self._counts[number] += front.calls.count
            if self._stopping.is_set():
                break
            if not first.done():
                first.set_exception(FrontError(number, why))
                return
            if monotonic() - began_s >= _CALM_S:
                pause_s = _FIRST_PAUSE_S
            logger.error("front %d %s; starting another one in %g s", number, why, pause_s)
            try:
                await asyncio.wait_for(self._stopping.wait(), pause_s)
                break
            except TimeoutError:
                pause_s = min(2 * pause_s, _MOST_PAUSE_S)
                self._restarts += 1
        if not first.done():
            first.set_result(None)  # the server was told to stop before that

    def _hello(self) -> bytes:
        hello = {
            "addresses": self._addresses,
            "options": self._options,
            "certificate": None if self._tls is None else _packed(self._tls),
            "methods": self._handlers.methods,
        }
        return json.dumps(hello).encode()


class _Front:
    """One front, from start to end."""

    def __init__(self, number: int, handlers: Handlers, tls: Certificates | None) -> None:
        loop = asyncio.get_running_loop()
        self._number = number
        self._tls = tls
        self._told: tuple[bytes, bytes, bytes | None] | None = None if tls is None else tls.pem
        self.link = Link(self._taken, self._link_lost, gives_views=True)
        self.calls = FrontCalls(handlers, self.link)
        self._process: FrontProcess | None = None
        self._listens: asyncio.Future[bool] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._telling: set[asyncio.Task[None]] = set()
        self._unanswered = 0
        self._asking: asyncio.TimerHandle | None = None

    @property
    def pid(self) -> int | None:
        return None if self._process is None else self._process.pid

    async def begin(
        self, start: Callable[[socket.socket], Awaitable[FrontProcess]], hello: bytes
    ) -> bool:
        """Returns whether it listens; otherwise it has ended. Raises OSError."""
        own, its = socket.socketpair()
        with its:
            for one in (own, its):
                one.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, _SOCKET_BYTES)
            own.setblocking(False)  # noqa: FBT003 - as it is called
            loop = asyncio.get_running_loop()
            await loop.create_unix_connection(lambda: self.link, sock=own)
            try:
                self._process = await start(its)
            except BaseException:
                self.link.abort()
                raise
        self.link.send(frames.HELLO, body=hello)
        return await self._listens

    async def ended(self) -> str:
        """How it ended, once it has."""
        await self._lost
        assert self._process is not None
        try:
            code = await asyncio.wait_for(self._process.wait(), _END_S)
        except TimeoutError:
            self.kill()
            code = await self._process.wait()
        return f"(process {self.pid}) ended with {code}"

    def kill(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):  # it has ended
                self._process.kill()
        self.link.abort()

    def _taken(self, kind: int, number: int, body: bytes) -> None:
        if number:
            self.calls.take(kind, number, body)
        elif kind == frames.ALIVE:
            self._unanswered = 0
        elif kind == frames.LISTENING:
            self._listens.set_result(True)
            self._ask_alive()
        elif kind == frames.LOG:
            name, _, text = body[1:].decode(errors="replace").partition("\n")
            logging.getLogger(name).log(body[0], "front %d: %s", self._number, text)
        else:
            assert kind == frames.CERTIFICATE, kind
            task = asyncio.create_task(self._tell_certificate())
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    def _ask_alive(self) -> None:
        if self._unanswered == _UNANSWERED:
            logger.error("front %d (process %s) does not respond", self._number, self.pid)
            self.kill()
            return
        self._unanswered += 1
        self.link.send(frames.ALIVE)
        self._asking = asyncio.get_running_loop().call_later(_ASK_S, self._ask_alive)

    def _link_lost(self) -> None:
        if self._asking is not None:
            self._asking.cancel()
        self.calls.lost()
        if not self._listens.done():
            self._listens.set_result(False)
        self._lost.set_result(None)

    async def _tell_certificate(self) -> None:
        """Send the current certificate; the front asks at each handshake, and `tls` decides about
        reloads."""
        assert self._tls is not None
        await asyncio.to_thread(self._tls.fetch)
        pem = self._tls.pem
        self.link.send(
            frames.CERTIFICATE, body=b"" if pem is self._told else _packed(self._tls).encode()
        )
        self._told = pem


def _packed(tls: Certificates) -> str:
    return json.dumps([None if one is None else one.decode("latin-1") for one in tls.pem])
