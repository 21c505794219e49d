"""The server of the bare stack: `python -m tests.peers.systems.bare_answers PORT DURABILITY STORE
BEHIND`. What is behind it is nothing, and answers are made once; or it is the bare store.
"""

from __future__ import annotations

# First: it has a say in how grpc is imported.
from kvcq_client.transport import cygrpc, keep_freed_memory, send_and_receive

# isort: split

import asyncio
import os
import struct
import sys
from functools import cache
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.loop_thread import new_event_loop
from server.receiving import call_below
from tests.benchmarks.bare_store import BareStore
from tests.peers.values import BODY_BYTES, Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Sequence

_SERVICE = "bare.Bare"
UNARY, LONE, STREAM, GROUPED, CALLS = (
    f"/{_SERVICE}/{name}" for name in ("Unary", "Lone", "Stream", "Grouped", "Calls")
)
NOTHING, STORE = "nothing", "store"
#: Of a request: bytes of its answer; messages to put, and whether to a new queue each; messages to
#: read, and from which on.
_HEAD = struct.Struct(">ii?iq")
_FILE_BYTES = 64 << 20

_bytes = cache(bytes)


def asking(
    answer: int,
    filler: bytes,
    put: int = 0,
    read: int = 0,
    first: int = 0,
    *,
    to_new: bool = False,
) -> bytes:
    """A request as long as `filler`: see `_HEAD`."""
    return _HEAD.pack(answer, put, to_new, read, first) + filler[_HEAD.size :]


class Nothing:
    """Behind it there is at most a file that is written when messages are to be on disk."""

    def __init__(self, store: Path, durability: Durability) -> None:
        store.mkdir()
        self._at = 0
        self._file = -1
        if durability is Durability.AFTER_FSYNC:
            self._file = os.open(store / "file", os.O_CREAT | os.O_WRONLY, 0o600)
            os.pwrite(self._file, bytes(_FILE_BYTES), 0)
            os.fsync(self._file)

    def put(self, request: bytes, count: int, *, to_new: bool = False) -> None:
        if self._file < 0:
            return
        size = count * BODY_BYTES
        if self._at + size > _FILE_BYTES:
            self._at = 0
        os.pwrite(self._file, request[:size].ljust(size), self._at)
        self._at += size

    def sync(self) -> None:
        os.fdatasync(self._file)

    def read(self, first: int, count: int, size: int) -> bytes:
        return _bytes(size)


class Store:
    """The raw probe of a store. The first body of a message of gRPC stands for all."""

    def __init__(self, store: Path) -> None:
        self._store = BareStore(store, [("bare", 0)])
        self._numbers = count()
        self.sync = self._store.sync

    def put(self, request: bytes, count: int, *, to_new: bool = False) -> None:
        queues: Sequence[int] = [0] * count
        if to_new:
            numbers = islice(self._numbers, count)
            queues = self._store.add_queues([(f"queue-{number:07d}", 0) for number in numbers])
        self._store.put(request[:BODY_BYTES], queues)

    def read(self, first: int, count: int, size: int) -> bytes:
        return self._store.read(first, count)


async def serve(port: int, behind: Nothing | Store, durability: Durability) -> None:
    """One message of gRPC after the other, in the loop: a thread for it would cost more."""
    is_durable = durability is Durability.AFTER_FSYNC

    def answer(request: bytes) -> bytes:
        size, put, to_new, read, first = _HEAD.unpack_from(request)
        if put:
            behind.put(request, put, to_new=to_new)
        return behind.read(first, read, size) if read else _bytes(size)

    def calls_answer(request: bytes) -> bytes:
        """In the frames of our client, for many calls in one message; they are put together."""
        calls = pb.CallsRequest.FromString(request).calls
        behind.put(calls[0].request, len(calls))
        if is_durable:
            behind.sync()
        sizes = [_HEAD.unpack_from(call.request)[0] for call in calls]
        return pb.CallsResponse(
            results=[
                pb.CallResult(id=call.id, response=_bytes(size))
                for call, size in zip(calls, sizes, strict=True)
            ]
        ).SerializeToString()

    def lone_answer(request: bytes) -> bytes:
        found = answer(request)
        if is_durable:
            behind.sync()
        return found

    async def unary(request: bytes, _: object) -> bytes:
        return lone_answer(request)

    async def lone(_: object, context: Any) -> None:  # noqa: ANN401 - the stubs ask for serializers
        """As our server answers who makes one call after the other."""
        await context.send_initial_metadata(())
        below = call_below(context)
        request = await context.read()
        while isinstance(request, bytes):
            request = await send_and_receive(below, lone_answer(request))

    async def grouped(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
        """What comes while the disk is waited for shares the next wait."""
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
            await asyncio.to_thread(behind.sync)
            for one in group:
                yield one

    def stream(answer: Callable[[bytes], bytes]) -> Any:  # noqa: ANN401 - a handler, in two kinds
        async def call(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
            async for request in requests:
                yield answer(request)

        return grpc.stream_stream_rpc_method_handler(call)

    server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Lone": stream(lone_answer)
        if cygrpc is None
        else grpc.stream_stream_rpc_method_handler(lone),
        "Stream": stream(lone_answer),
        "Grouped": grpc.stream_stream_rpc_method_handler(grouped),
        "Calls": stream(calls_answer),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    port, durability, store, behind = sys.argv[1:]
    keep_freed_memory()
    when, place = Durability(durability), Path(store)
    kept = Store(place) if behind == STORE else Nothing(place, when)
    new_event_loop().run_until_complete(serve(int(port), kept, when))


if __name__ == "__main__":
    main()
