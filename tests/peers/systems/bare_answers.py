"""The server of the bare stack: `python -m tests.peers.systems.bare_answers PORT DURABILITY STORE
BEHIND`. What is behind it is nothing, and answers are made once; or it is the bare store.
"""

from __future__ import annotations

# First: it has a say in how grpc is imported.
from kvcq_client.transport import keep_freed_memory

# isort: split

import os
import struct
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.transport.loop_thread import new_event_loop
from tests.benchmarks.bare_store import BareStore
from tests.peers.values import BODY_BYTES, Durability

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

_SERVICE = "bare.Bare"
UNARY, STREAM, CALLS = (f"/{_SERVICE}/{name}" for name in ("Unary", "Stream", "Calls"))
NOTHING, STORE = "nothing", "store"
#: Of a request: bytes of its answer; messages to put; messages to read, and from which on.
_HEAD = struct.Struct(">iiiq")
_FILE_BYTES = 64 << 20

_bytes = cache(bytes)


def asking(answer: int, filler: bytes, put: int = 0, read: int = 0, first: int = 0) -> bytes:
    """A request as long as `filler`: see `_HEAD`."""
    return _HEAD.pack(answer, put, read, first) + filler[_HEAD.size :]


class Nothing:
    """Behind it there is at most one `fdatasync` for each message of gRPC."""

    def __init__(self, store: Path, durability: Durability) -> None:
        store.mkdir()
        self._at = 0
        self._file = -1
        if durability is Durability.AFTER_FSYNC:
            self._file = os.open(store / "file", os.O_CREAT | os.O_WRONLY, 0o600)
            os.pwrite(self._file, bytes(_FILE_BYTES), 0)
            os.fsync(self._file)

    def put(self, request: bytes, count: int) -> None:
        if self._file < 0:
            return
        size = count * BODY_BYTES
        if self._at + size > _FILE_BYTES:
            self._at = 0
        os.pwrite(self._file, request[:size].ljust(size), self._at)
        os.fdatasync(self._file)
        self._at += size

    def read(self, first: int, count: int, size: int) -> bytes:
        return _bytes(size)


class Store:
    """The raw probe of a store. The first body of a message of gRPC stands for all."""

    def __init__(self, store: Path, durability: Durability) -> None:
        sync_every = 1 if durability is Durability.AFTER_FSYNC else 0
        self._store = BareStore(store, [("bare", 0)], sync_every=sync_every)

    def put(self, request: bytes, count: int) -> None:
        self._store.put(request[:BODY_BYTES], [0] * count)

    def read(self, first: int, count: int, size: int) -> bytes:
        return self._store.read(first, count)


async def serve(port: int, behind: Nothing | Store) -> None:
    """One message of gRPC after the other, in the loop: a thread for it would cost more."""

    def answer(request: bytes) -> bytes:
        size, put, read, first = _HEAD.unpack_from(request)
        if put:
            behind.put(request, put)
        return behind.read(first, read, size) if read else _bytes(size)

    def calls_answer(request: bytes) -> bytes:
        """In the frames of our client, for many calls in one message; they are put together."""
        calls = pb.CallsRequest.FromString(request).calls
        behind.put(calls[0].request, len(calls))
        sizes = [_HEAD.unpack_from(call.request)[0] for call in calls]
        return pb.CallsResponse(
            results=[
                pb.CallResult(id=call.id, response=_bytes(size))
                for call, size in zip(calls, sizes, strict=True)
            ]
        ).SerializeToString()

    async def unary(request: bytes, _: object) -> bytes:
        return answer(request)

    def stream(answer: Callable[[bytes], bytes]) -> Any:  # noqa: ANN401 - a handler, in two kinds
        async def call(requests: AsyncIterator[bytes], _: object) -> AsyncIterator[bytes]:
            async for request in requests:
                yield answer(request)

        return grpc.stream_stream_rpc_method_handler(call)

    server = grpc.aio.server(options=(("grpc.max_receive_message_length", -1),))
    handlers = {
        "Unary": grpc.unary_unary_rpc_method_handler(unary),
        "Stream": stream(answer),
        "Calls": stream(calls_answer),
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(_SERVICE, handlers),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    await server.start()
    await server.wait_for_termination()


def main() -> None:
    port, durability, store, behind = sys.argv[1:]
    keep_freed_memory()
    kind = Store if behind == STORE else Nothing
    new_event_loop().run_until_complete(serve(int(port), kind(Path(store), Durability(durability))))


if __name__ == "__main__":
    main()
