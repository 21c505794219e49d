"""Our own service over gRPC, with the Python client."""

from __future__ import annotations

import os
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.targets.remote import OwnServer
from kvcq_client import LIGHT_PREFIX, AsyncClient, Client, Message, Queue
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.loop_thread import new_event_loop
from server.version import VERSION
from tests.peers.client import command_of
from tests.peers.systems.calls import (
    batches,
    by_callers,
    in_pulls,
    in_tenths,
    one_at_a_time,
)
from tests.peers.systems.protocol import System
from tests.peers.values import AT_ONCE, BATCH, BODY_BYTES, CALLERS, OURS, Durability, Timed

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable, Iterator
    from pathlib import Path

_MODES = {Durability.BEFORE_FSYNC: "async", Durability.AFTER_FSYNC: "sync"}


class KvcqServer:
    def __init__(self, directory: Path, durability: Durability) -> None:
        self._directory = directory
        self._mode = _MODES[durability]
        self.settings = f"store.flush_mode={self._mode}"
        self._server: OwnServer | None = None

    def start(self) -> None:
        self._server = OwnServer(self._directory, {"flush_mode": self._mode}, "server")

    def stop(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None

    @property
    def address(self) -> str:
        assert self._server is not None
        return self._server.address

    def pids(self) -> list[int]:
        assert self._server is not None
        return [self._server._process.pid]


class KvcqClient:
    def __init__(self, address: str, durability: Durability) -> None:
        self._address = address
        self._blocking: Client | None = None
        self._body = os.urandom(BODY_BYTES)

    @property
    def _client(self) -> Client:
        if self._blocking is None:
            self._blocking = Client(self._address, timeout_s=120.0)
        return self._blocking

    def put_one(self, limit_s: float) -> Timed:
        message = Message("one", self._body, 0)
        return one_at_a_time(lambda: self._client.put(message), limit_s)

    def put_one_asyncio(self, limit_s: float) -> Timed:
        return self._by_callers(1, limit_s)

    def put_by_callers(self, limit_s: float) -> Timed:
        return self._by_callers(CALLERS, limit_s)

    def _by_callers(self, callers: int, limit_s: float) -> Timed:
        self.close()  # as nobody else has a second client, which gRPC tells of all that comes
        message = Message("callers", self._body, 0)

        async def run() -> Timed:
            async with AsyncClient(self._address) as client:
                return await by_callers(lambda _: client.put(message), callers, limit_s)

        return _in_a_loop(run())

    def put_unary(self, limit_s: float) -> Timed:
        """As clients in other languages do, that have nothing but what gRPC makes of the proto."""
        import grpc  # behind our client, which has a say in how it is imported

        body = pb.Message(topic="callers", queue_id=0, body=self._body)
        request = pb.PutRequest(message=body)
        self.close()

        async def run() -> Timed:
            async with grpc.aio.insecure_channel(self._address) as channel:
                stub = kvcq_pb2_grpc.MessageServiceStub(channel)

                async def one(_: int) -> None:
                    await stub.Put(request)

                return await by_callers(one, CALLERS, limit_s)

        return _in_a_loop(run())

    def put_each(self, queue: str, count: int) -> Timed:
        body = self._body
        began_s = perf_counter()
        with self._client.producer() as producer:
            send = producer.send
            for _ in range(count):
                send(queue, body, queue_id=0)
        return Timed(count, perf_counter() - began_s)

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        message = Message(queue, self._body, 0)
        return self._send(
            ([message] * len(part) for part in batches(range(count), BATCH)),
            perf_counter() + limit_s,
        )

    def _send(self, lists: Iterable[list[Message]], end_s: float) -> Timed:
        count = 0
        began_s = perf_counter()
        with self._client.producer(batch_messages=BATCH, window=AT_ONCE) as producer:
            for messages in lists:
                producer.send_many(messages)
                count += len(messages)
                if perf_counter() > end_s:
                    break
        return Timed(count, perf_counter() - began_s)

    def read_back(self, queue: str, count: int) -> Timed:
        seen = 0
        began_s = perf_counter()
        with self._client.consumer({Queue(queue, 0): 0}) as consumer:
            for message in consumer.to_end():
                _ = message.body
                seen += 1
        if seen != count:
            raise RuntimeError(f"{seen} messages, not {count}")
        return Timed(seen, perf_counter() - began_s)

    def pull(self, queue: str, each: int, count: int) -> Timed:
        def pull(offset: int) -> int:
            messages = self._client.pull(queue, 0, offset, max_messages=each).messages
            for message in messages:
                _ = message.body
            return len(messages)

        return in_pulls(pull, each, count)

    def new_queues(self, count: int, limit_s: float) -> Timed:
        return self._send(self._to_new("queue", range(count)), perf_counter() + limit_s)

    def many_new_queues(self, count: int, limit_s: float) -> Timed:
        def put(numbers: range, limit_s: float) -> Timed:
            return self._send(self._to_new("one-of-many", numbers), perf_counter() + limit_s)

        return in_tenths(put, count, limit_s)

    def _to_new(self, prefix: str, numbers: range) -> Iterator[list[Message]]:
        body = self._body
        return (
            [Message(f"{prefix}-{number:07d}", body, 0) for number in part]
            for part in batches(numbers, BATCH)
        )

    def light_queues(self, queues: int, each: int, count: int, limit_s: float) -> Timed:
        names = [f"{LIGHT_PREFIX}light-{number:07d}" for number in range(queues)]
        body = self._body

        def message(number: int) -> Message:
            first = number * each % queues
            return Message("light", body, 0, "", (), tuple(names[first : first + each]))

        timed = self._send(
            ([message(number) for number in part] for part in batches(range(count), BATCH)),
            perf_counter() + limit_s,
        )
        return Timed(timed.count * each, timed.seconds)

    def close(self) -> None:
        if self._blocking is not None:
            self._blocking.close()
            self._blocking = None


def _in_a_loop(work: Coroutine[Any, Any, Timed]) -> Timed:
    loop = new_event_loop()
    try:
        return loop.run_until_complete(work)
    finally:
        loop.close()


SYSTEM = System(
    OURS,
    "kvcq",
    lambda: None,
    KvcqServer,
    lambda address, durability: command_of(KvcqClient, address, durability),
    lambda: VERSION,
)
