"""The limit of the stack: grpc.aio on uvloop with nothing behind it, messages as long as ours.

Its client does nothing with what comes; only the calls of 64 callers are told apart. With the bare
store behind it, it stores and reads what our service does, and its client checks each body: that
leaves out nothing but what makes a service of it.
"""

from __future__ import annotations

# First: it has a say in how grpc is imported.
from kvcq_client.transport import cygrpc, keep_freed_memory, send_and_receive

# isort: split

import asyncio
import os
import sys
from importlib.metadata import version
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, Any, Self, TypeVar

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.grpc_environment import ENVIRONMENT
from kvcq_client.transport.loop_thread import new_event_loop
from tests.benchmarks.bare_store import bodies_of
from tests.peers.client import command_of
from tests.peers.processes import ServerProcess, connects, free_port, plain_environment, wait_until
from tests.peers.systems.bare_answers import (
    CALLS,
    GROUPED,
    LONE,
    NOTHING,
    STORE,
    STREAM,
    UNARY,
    asking,
)
from tests.peers.systems.calls import by_callers, in_pulls, in_tenths, one_at_a_time
from tests.peers.systems.protocol import System
from tests.peers.values import (
    AT_ONCE,
    BATCH,
    BODY_BYTES,
    CALLERS,
    Durability,
    NotOfferedError,
    Timed,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

T = TypeVar("T")

_OPTIONS = (("grpc.max_receive_message_length", -1),)
#: Bytes of our messages: what a put and its answer have around a body, a batch and its answer, and
#: a record with its queue offset in the answer of a pull.
_PUT_BYTES, _PUT_ANSWER_BYTES = BODY_BYTES + 40, 60
_BATCH_BYTES, _BATCH_ANSWER_BYTES = BATCH * (BODY_BYTES + 4) + 60, 1050
_PULL_BYTES, _RECORD_BYTES = 40, 1143
#: Of a consumer: what it reads at once, and the answers that its 32 MiB ahead of it hold.
_CONSUMED, _AHEAD = 512, 56


class BareStackServer:
    behind = NOTHING

    def __init__(self, directory: Path, durability: Durability) -> None:
        self._directory = directory
        self._durability = durability
        self._port = free_port()
        self._process: ServerProcess | None = None
        self.settings = f"grpc.aio on uvloop, {self.behind} behind it"
        if durability is Durability.AFTER_FSYNC:
            self.settings += ", one fdatasync for each message, or all batches that came meanwhile"

    def start(self) -> None:
        module = "tests.peers.systems.bare_answers"
        words = (str(self._port), self._durability, str(self._directory / "store"), self.behind)
        self._process = ServerProcess(
            [sys.executable, "-m", module, *words],
            self._directory / "server.log",
            plain_environment() | ENVIRONMENT,
        )
        wait_until(lambda: connects(self._port), self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]


class BareOverStore(BareStackServer):
    behind = STORE


class BareStackClient:
    #: What is asked of ours is over here before it can be measured.
    times = 4

    def __init__(self, address: str, durability: Durability) -> None:
        keep_freed_memory()
        self._address = address
        self._loop = new_event_loop()
        # Of batches, several wait for the disk together.
        self._batches = GROUPED if durability is Durability.AFTER_FSYNC else STREAM
        self._put = asking(_PUT_ANSWER_BYTES, os.urandom(_PUT_BYTES), put=1)
        self._batch = asking(_BATCH_ANSWER_BYTES, os.urandom(_BATCH_BYTES), put=BATCH)

    def put_one(self, limit_s: float) -> Timed:
        with _LoneStream(self._address) as stream:
            return one_at_a_time(lambda: stream.exchange(self._put), limit_s)

    def put_one_asyncio(self, limit_s: float) -> Timed:
        async def work(channel: Any) -> Timed:  # noqa: ANN401 - the stubs ask for serializers
            _check_measured()
            stream = channel.stream_stream(LONE)()
            await stream.initial_metadata()
            below = stream._cython_call

            async def one(_: int) -> None:
                if await send_and_receive(below, self._put) is None:
                    raise RuntimeError("the stream ended")

            timed = await by_callers(one, 1, limit_s)
            await stream.done_writing()
            return timed

        return self._run(work)

    def put_by_callers(self, limit_s: float) -> Timed:
        async def work(channel: Any) -> Timed:  # noqa: ANN401 - as above
            calls = _ManyCalls(channel.stream_stream(CALLS)())
            timed = await by_callers(lambda _: calls.call(self._put), CALLERS, limit_s)
            await calls.close()
            return timed

        return self._run(work)

    def put_unary(self, limit_s: float) -> Timed:
        async def work(channel: Any) -> Timed:  # noqa: ANN401 - as above
            call = channel.unary_unary(UNARY)

            async def one(_: int) -> None:
                await call(self._put)

            return await by_callers(one, CALLERS, limit_s)

        return self._run(work)

    def put_each(self, queue: str, count: int) -> Timed:
        return self.put_batches(queue, count, inf)

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        return self._put_batch(self._batch, count * self.times, limit_s)

    def _put_batch(self, batch: bytes, count: int, limit_s: float) -> Timed:
        """This one, again and again."""
        return self._under_way(
            self._batches, lambda _: batch, count, BATCH, AT_ONCE, lambda _: BATCH, limit_s
        )

    def read_back(self, queue: str, count: int) -> Timed:
        def request(number: int) -> bytes:
            return _pull(number * _CONSUMED, _CONSUMED)

        count -= count % _CONSUMED
        return self._under_way(STREAM, request, count, _CONSUMED, _AHEAD, self._taken)

    def pull(self, queue: str, each: int, count: int) -> Timed:
        with _LoneStream(self._address) as stream:
            return in_pulls(
                lambda at: self._taken(stream.exchange(_pull(at % count, each))),
                each,
                count * self.times,
            )

    def _taken(self, answer: bytes) -> int:
        """How many messages it has."""
        return len(answer) // _RECORD_BYTES

    def _under_way(
        self,
        path: str,
        request: Callable[[int], bytes],
        count: int,
        each: int,
        window: int,
        taken: Callable[[bytes], int],
        limit_s: float = inf,
    ) -> Timed:
        """Requests for `each` messages on one stream, so many of them under way at once."""

        async def work(channel: Any) -> Timed:  # noqa: ANN401 - as above
            stream = channel.stream_stream(path)()
            began_s = perf_counter()
            sent = answered = done = 0
            while True:
                is_due = sent * each < count and perf_counter() - began_s < limit_s
                if is_due and sent - answered < window:
                    await stream.write(request(sent))
                    sent += 1
                elif answered < sent:
                    answer = await stream.read()
                    if not isinstance(answer, bytes):
                        raise RuntimeError("the stream ended")
                    done += taken(answer)
                    answered += 1
                else:
                    break
            seconds = perf_counter() - began_s
            await stream.done_writing()
            return Timed(done, seconds)

        return self._run(work)

    def _run(self, work: Callable[[Any], Awaitable[T]]) -> T:
        async def run() -> T:
            async with grpc.aio.insecure_channel(self._address, options=_OPTIONS) as channel:
                return await work(channel)

        return self._loop.run_until_complete(run())

    def close(self) -> None:
        self._loop.close()


class BareOverStoreClient(BareStackClient):
    times = 1

    def new_queues(self, count: int, limit_s: float) -> Timed:
        batch = asking(_BATCH_ANSWER_BYTES, self._batch, put=BATCH, to_new=True)
        return self._put_batch(batch, count, limit_s)

    def many_new_queues(self, count: int, limit_s: float) -> Timed:
        return in_tenths(lambda tenth, left_s: self.new_queues(len(tenth), left_s), count, limit_s)

    def _taken(self, answer: bytes) -> int:
        return len(bodies_of(answer))


def _pull(first: int, count: int) -> bytes:
    return asking(count * _RECORD_BYTES, bytes(_PULL_BYTES), read=count, first=first)


def _check_measured() -> None:
    if cygrpc is None:
        raise NotOfferedError("our client does not wait in this way with this release of gRPC")


class _LoneStream:
    """A stream whose caller itself waits for the next event, as our client has it where a thread
    has the client for itself."""

    def __init__(self, address: str) -> None:
        _check_measured()
        self._cygrpc = cygrpc
        self._channel = grpc.insecure_channel(address, options=_OPTIONS)
        operations = (
            self._cygrpc.SendInitialMetadataOperation((), 0),
            self._cygrpc.ReceiveInitialMetadataOperation(0),
            self._cygrpc.ReceiveStatusOnClientOperation(0),
        )
        channel: Any = self._channel
        self._call = channel._channel.segregated_call(
            self._cygrpc.PropagationConstants.GRPC_PROPAGATE_DEFAULTS,
            LONE.encode(), None, None, (), None, [((one,), None) for one in operations],
        )  # fmt: skip
        self._due = len(operations)

    def exchange(self, request: bytes) -> bytes:
        answer: Any = self._cygrpc.ReceiveMessageOperation(0)
        self._call.operate((self._cygrpc.SendMessageOperation(request, 0), answer), answer)
        self._due += 1
        while self._next() is not answer:
            pass
        message: bytes | None = answer.message()
        if message is None:
            raise RuntimeError("the stream ended")
        return message

    def _next(self) -> Any:  # noqa: ANN401 - as above
        self._due -= 1
        return self._call.next_event().tag

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._call.cancel(self._cygrpc.StatusCode.cancelled, "it is over")
        while self._due:
            self._next()
        self._channel.close()


class _ManyCalls:
    """Calls in the frames of our client: those of one turn of the loop in one message."""

    def __init__(self, stream: Any) -> None:  # noqa: ANN401 - as above
        self._stream = stream
        self._loop = asyncio.get_running_loop()
        self._waiting: list[pb.Call] = []
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._next_id = 0
        self._is_due = asyncio.Event()
        self._tasks = [asyncio.ensure_future(one) for one in (self._write(), self._read())]

    def call(self, request: bytes) -> asyncio.Future[bytes]:
        self._next_id += 1
        answer = self._answers[self._next_id] = self._loop.create_future()
        call = pb.Call(id=self._next_id, method="Put", request=request, timeout_ms=30_000)
        self._waiting.append(call)
        self._is_due.set()
        return answer

    async def _write(self) -> None:
        while await self._is_due.wait():
            self._is_due.clear()
            calls, self._waiting = self._waiting, []
            await self._stream.write(pb.CallsRequest(calls=calls).SerializeToString())

    async def _read(self) -> None:
        async for message in self._stream:
            for result in pb.CallsResponse.FromString(message).results:
                self._answers.pop(result.id).set_result(result.response)

    async def close(self) -> None:
        self._stream.cancel()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


def _system(
    name: str,
    title: str,
    server: type[BareStackServer],
    client: type[BareStackClient],
    *more: str,
) -> System:
    return System(
        name,
        title,
        lambda: None,
        server,
        lambda address, durability: command_of(client, address, durability),
        lambda: version("grpcio"),
        limits={
            *("put_one", "put_one_asyncio", "put_by_callers", "put_unary", "put_each"),
            *("put_batches", "read_back", "pull"),
            *more,
        },
    )


SYSTEM = _system("bare-stack", "bare stack, nothing stored", BareStackServer, BareStackClient)
OVER_STORE = _system(
    "bare-stack-and-store",
    "bare stack over bare store",
    BareOverStore,
    BareOverStoreClient,
    "new_queues",
    "many_new_queues",
)
