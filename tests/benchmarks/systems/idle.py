"""Ours with its event loop watched, and thousands of clients of RocketMQ that do nothing.

Each has a connection and a telemetry stream, tells its settings, and sends a heartbeat in ten
seconds, as the official clients do; a push consumer also has a receive that waits.
"""

from __future__ import annotations

import asyncio
import resource
import sys
import threading
from contextlib import contextmanager
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import grpc

from kvcq_bench.machine import used_by
from server.process import prepare_to_open_stores
from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from tests.benchmarks.system import IDLE, System
from tests.benchmarks.systems.ours import KvcqServer
from tests.benchmarks.timing import NotOfferedError, Timed, new_loop
from tests.server.rocketmq.client import Client
from tests.support.until import wait_until

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterator
    from pathlib import Path

    from tests.benchmarks.system import More

T = TypeVar("T")

_BEAT_S = 10.0
_POLL_S = 20.0
#: Clients that connect at the same time.
_TOGETHER = 50
#: Open files of a process beside its connections.
_OTHER_FILES = 200
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
_ORDERS = v2.Resource(name="orders")


class IdleClients:
    """Clients that stay from one work to the next, in a loop with a thread of its own."""

    def __init__(self, address: str, *, durable: bool) -> None:
        prepare_to_open_stores()
        self._address = address
        self._loop = new_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._clients: list[_Idle] = []

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def connect(self, count: int, group: str) -> Timed:
        """`group`: of push consumers; "": they are producers."""
        files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        if files < count + _OTHER_FILES:
            raise NotOfferedError(f"a process may have {files} open files: ulimit -Hn")
        names = [f"host@{number}@0@idle" for number in range(count)]
        self._clients = [_Idle(self._address, name, group) for name in names]
        places = asyncio.Semaphore(_TOGETHER)
        began_s = perf_counter()
        calls = await asyncio.gather(*(each.begin(places) for each in self._clients))
        return Timed.of_calls(calls, perf_counter() - began_s)

    async def stay(self, seconds: float) -> Timed:
        """Count the heartbeats of that time."""
        self._check()
        began_s, before = perf_counter(), sum(each.beats for each in self._clients)
        await asyncio.sleep(seconds)
        self._check()
        beats = sum(each.beats for each in self._clients) - before
        return Timed(beats, perf_counter() - began_s)

    async def leave(self) -> Timed:
        """All end their streams and connections together."""
        self._check()
        began_s = perf_counter()
        clients, self._clients = self._clients, []
        await asyncio.gather(*(each.close() for each in clients))
        return Timed(len(clients), perf_counter() - began_s)

    def close(self) -> None:
        if self._clients:
            self.run(self.leave())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _check(self) -> None:
        """Raises NotOfferedError, or the error of a client that ended early."""
        if not self._clients:
            raise NotOfferedError("nobody is connected")
        for each in self._clients:
            each.check()


class _Idle:
    """One client. A heartbeat that fails, or a stream that ends, ends it."""

    def __init__(self, address: str, client_id: str, group: str) -> None:
        self._channel = grpc.aio.insecure_channel(address, options=_OWN_CONNECTION)
        self._client = Client(self._channel, client_id)
        self._group = v2.Resource(name=group) if group else None
        self._stream: Any = None
        self._staying: asyncio.Future[Any] | None = None
        self.beats = 0

    async def begin(self, places: asyncio.Semaphore) -> float:
        """Connect; returns how long it took. It beats while others connect: of whom the server
        hears nothing for two minutes, it forgets the settings."""
        async with places:
            began_s = perf_counter()
            self._stream = self._client.telemetry()
            answer = await self._client.settle(self._stream, self._settings())
            _check(answer.status, v2.OK)
            await self._client.route("orders")
            took_s = perf_counter() - began_s
        waits = [self._beat(), self._listen()]
        if self._group is not None:
            waits.append(self._receive(self._group.name))
        self._staying = asyncio.gather(*waits)
        return took_s

    def check(self) -> None:
        """Raises what has ended it."""
        if self._staying is not None and self._staying.done():
            self._staying.result()

    async def close(self) -> None:
        if self._staying is not None:
            self._staying.cancel()
            self._stream.cancel()
        await self._channel.close(None)

    def _settings(self) -> v2.Settings:
        if self._group is None:
            publishing = v2.Publishing(topics=[_ORDERS])
            return v2.Settings(client_type=v2.PRODUCER, publishing=publishing)
        entry = v2.SubscriptionEntry(topic=_ORDERS, expression=v2.FilterExpression(expression="*"))
        subscription = v2.Subscription(group=self._group, subscriptions=[entry])
        return v2.Settings(client_type=v2.PUSH_CONSUMER, subscription=subscription)

    async def _beat(self) -> None:
        # Spread over the ten seconds, as programs that began at other times.
        await asyncio.sleep(hash(self._client.metadata) % 1000 / 1000 * _BEAT_S)
        request = pb.HeartbeatRequest(group=self._group)
        while True:
            answer = await self._client.call.Heartbeat(request, metadata=self._client.metadata)
            _check(answer.status, v2.OK)
            self.beats += 1
            await asyncio.sleep(_BEAT_S)

    async def _listen(self) -> None:
        raise RuntimeError(f"the stream has ended, or said {await self._stream.read()}")

    async def _receive(self, group: str) -> None:
        while True:
            status, _ = await self._client.receive(
                group, "orders", poll_s=_POLL_S, auto_renew=True, invisible_s=0
            )
            _check(status, v2.MESSAGE_NOT_FOUND)


def _check(status: v2.Status, wanted: v2.Code) -> None:
    if status.code != wanted:
        raise RuntimeError(f"{status.code}: {status.message}")


class _WatchedServer(KvcqServer):
    """It writes down how long its event loop was held, see `tests.support.timed_server`."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        self._holds = directory / "holds"
        self._holds.touch()
        program = (sys.executable, "-m", "tests.support.timed_server")
        super().__init__(
            directory, durable=durable, program=("env", f"KVCQ_TEST_ROUNDS={self._holds}", *program)
        )

    def holds_s(self) -> list[float]:
        """The longest of each second."""
        return [float(line) for line in self._holds.read_text("ascii").split()]

    def settle(self) -> None:
        """Wait until its connections stay as they are, and what was before that is in `holds_s`."""
        before, files = -1, 0
        while files != before:
            before, seconds = files, len(self.holds_s())
            wait_until(lambda: len(self.holds_s()) >= seconds + 2)  # noqa: B023 - called at once
            files = used_by(self.pids()).open_files


@contextmanager
def _watched(server: _WatchedServer) -> Iterator[More]:
    more: More = {}
    first, began_s, before = len(server.holds_s()), perf_counter(), used_by(server.pids())
    yield more
    cores = (used_by(server.pids()).cpu_s - before.cpu_s) / (perf_counter() - began_s)
    server.settle()
    more["processor"] = (cores, "cores")
    more["private memory"] = (used_by(server.pids()).private_bytes / 1e6, "MB")
    more["loop held at once, most"] = (max(server.holds_s()[first:]) * 1e3, "ms")


SYSTEM = System(
    IDLE,
    "ours, its loop watched",
    _WatchedServer,
    f"{__name__}:IdleClients",
    beside=_watched,
)
