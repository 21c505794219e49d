"""The limits: the writing of a store with no stack before it, and a bare stack over that.

The bare store packs the same bytes and writes the same rows with nothing around them, in the
client's own process. The bare stack is grpc.aio on uvloop with that store behind it, and messages
as long as ours; its client checks each body. That leaves out only what makes a service of it. Both
use public calls of gRPC only.
"""

from __future__ import annotations

import asyncio
import os
import struct
import sys
from importlib.metadata import version
from itertools import count, islice
from math import inf
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import kvcq_client  # noqa: F401 - first: it has a say in how gRPC waits for sockets
from tests.benchmarks.processes import OneProcess, connects
from tests.benchmarks.system import NoServer, System
from tests.benchmarks.systems.bare_store import BareStore, bodies_of
from tests.benchmarks.timing import AT_ONCE, BATCH, BODY_BYTES, Timed, batches, new_loop

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence

T = TypeVar("T")

_SERVICE = "bare.Bare"
UNARY, STREAM, GROUPED = (f"/{_SERVICE}/{name}" for name in ("Unary", "Stream", "Grouped"))
#: Of a request: bytes of its answer; messages to put, and whether to a new queue each; messages to
#: read, and from which on.
_HEAD = struct.Struct(">ii?iq")
_OPTIONS = (("grpc.max_receive_message_length", -1),)
#: Bytes of our messages: what a put and its answer have around a body, a batch and its answer, and
#: a record with its queue offset in the answer of a pull.
PUT_BYTES, PUT_ANSWER_BYTES = BODY_BYTES + 40, 60
BATCH_BYTES, BATCH_ANSWER_BYTES = BATCH * (BODY_BYTES + 4) + 60, 1050
_PULL_BYTES, _RECORD_BYTES = 40, 1143


class BareStoreClient:
    """Each piece of work has a store of its own."""

    def __init__(self, address: str, *, durable: bool) -> None:
        self._root = Path(address)
        self._durable = durable
        self.body = os.urandom(BODY_BYTES)
        self._stores = count()

    def store(self, queues: Sequence[str], light: Sequence[str] = ()) -> BareStore:
        root = self._root / str(next(self._stores))
        return BareStore(root, [(name, 0) for name in queues], light)

    def put(
        self,
        store: BareStore,
        batch: Callable[[range], tuple[Any, ...]],
        numbers: range,
        limit_s: float,
    ) -> Timed:
        """Batches of messages with these numbers; `batch` gives the arguments of each."""
        done = 0
        began_s = perf_counter()
        for number, part in enumerate(batches(numbers, BATCH), 1):
            store.put(*batch(part))
            if self._durable and number % AT_ONCE == 0:
                store.sync()
            done += len(part)
            if perf_counter() - began_s > limit_s:
                break
        return Timed(done, perf_counter() - began_s)

    def close(self) -> None:
        pass


class BareStackServer(OneProcess):
    """This module as a process, see `main`."""

    def __init__(self, directory: Path, *, durable: bool) -> None:
        super().__init__()
        self._directory = directory
        self._durable = durable
        self.settings = "grpc.aio on uvloop, the bare store behind it"
        if durable:
            self.settings += ", one fdatasync for all that came meanwhile"

    def start(self) -> None:
        words = (str(self._port), str(int(self._durable)), str(self._directory / "store"))
        command = [sys.executable, "-m", __name__, *words]
        self._begin(command, self._directory / "server.log", lambda: connects(self._port))


def asking(
    answer: int, filler: bytes, put: int = 0, read: int = 0, first: int = 0, *, to_new: bool = False
) -> bytes:
    """A request as long as `filler`: see `_HEAD`."""
    return _HEAD.pack(answer, put, to_new, read, first) + filler[_HEAD.size :]


class BareStackClient:
    """Streams and unary calls of that server."""

    def __init__(self, address: str, *, durable: bool) -> None:
        self._address = address
        self._loop = new_loop()
        #: Requests that wait for the disk share its next wait.
        self.path = GROUPED if durable else STREAM
        self.put = asking(PUT_ANSWER_BYTES, os.urandom(PUT_BYTES), put=1)
        self.batch = asking(BATCH_ANSWER_BYTES, os.urandom(BATCH_BYTES), put=BATCH)
        self.to_new = asking(BATCH_ANSWER_BYTES, self.batch, put=BATCH, to_new=True)

    def run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        """`work` gets a channel."""
        import grpc

        async def run() -> T:
            async with grpc.aio.insecure_channel(self._address, options=_OPTIONS) as channel:
                return await work(channel)

        return self._loop.run_until_complete(run())

    def in_flight(
        self,
        request: Callable[[int], bytes],
        count: int,
        each: int,
        window: int = AT_ONCE,
        limit_s: float = inf,
        taken: Callable[[bytes], int] | None = None,
    ) -> Timed:
        """Requests for `each` messages on one stream, this many of them in flight; `taken` says
        how many messages an answer stands for."""

        async def work(channel: Any) -> Timed:  # noqa: ANN401 - the stubs ask for serializers
            stream = channel.stream_stream(self.path)()
            calls: list[float] = []
            due: list[float] = []
            began_s = perf_counter()
            sent = done = 0
            while True:
                is_due = sent * each < count and perf_counter() - began_s < limit_s
                if is_due and len(due) < window:
                    due.append(perf_counter())
                    await stream.write(request(sent))
                    sent += 1
                elif due:
                    answer = await stream.read()
                    if not isinstance(answer, bytes):
                        raise RuntimeError("the stream ended")
                    done += each if taken is None else taken(answer)
                    calls.append(perf_counter() - due.pop(0))
                else:
                    break
            seconds = perf_counter() - began_s
            await stream.done_writing()
            return Timed.of_calls(calls, seconds, done)

        return self.run(work)

    def close(self) -> None:
        self._loop.close()


def pulling(each: int) -> Callable[[int], bytes]:
    """Requests for `each` messages, one behind the other."""
    return lambda number: asking(
        each * _RECORD_BYTES, bytes(_PULL_BYTES), read=each, first=number * each
    )


def read(answer: bytes) -> int:
    """How many messages it has, each body checked."""
    return len(bodies_of(answer))


class JoinedCalls:
    """Puts that wait at the same time leave in one message, as our client's do."""

    def __init__(self, stream: Any, put: bytes) -> None:  # noqa: ANN401 - as above
        self._stream = stream
        self._put = put
        self._waiting: list[asyncio.Future[None]] = []
        self._sent: list[list[asyncio.Future[None]]] = []
        self._is_due = asyncio.Event()
        self._tasks = [asyncio.ensure_future(one) for one in (self._write(), self._read())]

    def call(self) -> asyncio.Future[None]:
        answered: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(answered)
        self._is_due.set()
        return answered

    async def _write(self) -> None:
        while await self._is_due.wait():
            self._is_due.clear()
            joined, self._waiting = self._waiting, []
            self._sent.append(joined)
            size, puts = len(joined) * PUT_ANSWER_BYTES, len(joined)
            await self._stream.write(asking(size, self._put * puts, put=puts))

    async def _read(self) -> None:
        async for _ in self._stream:
            for answered in self._sent.pop(0):
                answered.set_result(None)

    async def close(self) -> None:
        self._stream.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def serve(port: int, store: BareStore, *, durable: bool) -> None:
    """One message of gRPC after the other, in the loop: a thread for it would cost more."""
    import grpc

    numbers = count()

    def answer(request: bytes) -> bytes:
        """The first body of a message of gRPC stands for all."""
        size, put, to_new, read, first = _HEAD.unpack_from(request)
        if put:
            queues: Sequence[int] = [0] * put
            if to_new:
                names = [(f"queue-{number:07d}", 0) for number in islice(numbers, put)]
                queues = store.add_queues(names)
            store.put(request[:BODY_BYTES].ljust(BODY_BYTES), queues)
        return store.read(first, read) if read else bytes(size)

    async def unary(request: bytes, _: object) -> bytes:
        return answer(request)

    async def stream(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        async for request in requests:
            yield answer(request)

    async def grouped(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        waiting: list[bytes] = []
        came = asyncio.Event()

        async def read() -> None:
            async for request in requests:
                waiting.append(answer(request))
                came.set()

        reader = asyncio.ensure_future(read())
        reader.add_done_callback(lambda _: came.set())
        while await came.wait() and (waiting or not reader.done()):
            came.clear()
            group = waiting[:]
            waiting.clear()
            await asyncio.to_thread(store.sync)
            for one in group:
                yield one

    server = grpc.aio.server(options=_OPTIONS)
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": grpc.stream_stream_rpc_method_handler(stream),
        "Grouped": grpc.stream_stream_rpc_method_handler(grouped),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    """`python -m tests.benchmarks.systems.bare PORT DURABLE STORE`."""
    port, durable, place = sys.argv[1:]
    store = BareStore(Path(place), [("bare", 0)])
    new_loop().run_until_complete(serve(int(port), store, durable=durable == "1"))


SYSTEMS = [
    System("bare-store", "bare store", NoServer, f"{__name__}:BareStoreClient", is_limit=True),
    System(
        "bare-stack",
        "bare stack over it",
        BareStackServer,
        f"{__name__}:BareStackClient",
        version=lambda: version("grpcio"),
        is_limit=True,
    ),
]

if __name__ == "__main__":
    main()
