"""Client and server processes on this machine, against echo calls on the same server."""

from __future__ import annotations

import asyncio
import os
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING

import grpc

from kvcq_bench.targets.remote import OwnServer
from kvcq_client import Client, Message, Queue, split_records
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from kvcq_client.transport.loop_thread import new_event_loop
from tests.benchmarks.measure import BATCH, BODY_BYTES, Bench, Row

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

QUEUES = 4
_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
_STORE = {"reserved_hours": 720.0}


class _Calls:
    """Runs calls of stubs in a loop of its own, so many in flight."""

    def __init__(self, target: str) -> None:
        self.loop = new_event_loop()

        async def connect() -> grpc.aio.Channel:
            return grpc.aio.insecure_channel(target, options=_OPTIONS)

        self._channel = self.loop.run_until_complete(connect())
        self.stub = kvcq_pb2_grpc.MessageServiceStub(self._channel)

    def run(self, call: Callable[[int], Awaitable[object]], count: int, in_flight: int) -> None:
        async def work(first: int) -> None:
            for number in range(first, count, in_flight):
                await call(number)

        async def all_of_it() -> None:
            await asyncio.gather(*(work(first) for first in range(in_flight)))

        self.loop.run_until_complete(all_of_it())

    def close(self) -> None:
        self.loop.run_until_complete(self._channel.close(None))
        self.loop.close()


def put_batches(bench: Bench) -> None:
    """PutBatch of 128 against Echo of the same; then the client's producer."""
    server = OwnServer(bench.fresh("put-grpc"), _STORE, "server")
    try:
        server.create_topics({"bench": QUEUES})
        calls = _Calls(server.address)
        body = os.urandom(BODY_BYTES)
        request = pb.PutBatchRequest(
            messages=[
                pb.Message(topic="bench", queue_id=at % QUEUES, body=body) for at in range(BATCH)
            ]
        )
        echo = pb.EchoRequest(batch=request)
        count = bench.amount(800, 40)

        def put() -> int:
            calls.run(lambda _: calls.stub.PutBatch(request), count, 8)
            return count * BATCH

        def bare() -> int:
            calls.run(lambda _: calls.stub.Echo(echo), count, 8)
            return count * BATCH

        put_rate, echo_rate = bench.in_turn(put, bare)
        calls.close()
        bench.rows.append(
            Row(
                "put 1 KiB in batches of 128 through gRPC, one client process",
                put_rate,
                "messages/s",
                "0.4 of the echo, and 150,000/s",
                put_rate >= max(150_000, 0.4 * echo_rate),
                echo_rate,
                "echo of the same batches",
            )
        )
        _producer(bench, server.address, body, echo_rate)
    finally:
        server.close()


def _producer(bench: Bench, target: str, body: bytes, echo_rate: float) -> None:
    count = bench.amount(200_000, 5_000)
    with Client(target) as client, client.producer() as producer:
        messages = [Message("bench", body, at % QUEUES) for at in range(1000)]

        def one_by_one() -> int:
            send = producer.send
            for number in range(count):
                send("bench", body, queue_id=number % QUEUES)
            producer.flush()
            return count

        def lists() -> int:
            for _ in range(count // 1000):
                producer.send_many(messages)
            producer.flush()
            return count // 1000 * 1000

        single, many = bench.in_turn(one_by_one, lists)
    for work, value, wanted in (
        ("batching producer, one send for each message", single, 100_000),
        ("batching producer, lists of 1,000", many, 200_000),
    ):
        bench.rows.append(
            Row(
                f"{work}, 1 KiB, ASYNC",
                value,
                "messages/s",
                f"{wanted:,}/s",
                value >= wanted,
                echo_rate,
                "echo of batches of 128",
            )
        )


def pull(bench: Bench) -> None:
    """512 a call, whole records: as they are, and decoded; then the consumer."""
    server = OwnServer(bench.fresh("pull"), _STORE, "server")
    try:
        server.create_topics({"bench": 1})
        total = bench.amount(400_000, 10_000)
        body = os.urandom(BODY_BYTES)
        with Client(server.address) as client, client.producer() as producer:
            for _ in range(total // 1000):
                producer.send_many([Message("bench", body, 0)] * 1000)
        calls = _Calls(server.address)
        requests = [
            pb.PullRequest(
                topic="bench", offset=at, max_messages=512, max_bytes=4 << 20,
                form=pb.RECORD_FORM_WHOLE,
            )
            for at in range(0, total - 511, 512)
        ]  # fmt: skip
        count = len(requests)

        async def undecoded(number: int) -> None:
            answer = await calls.stub.Pull(requests[number])
            assert len(answer.queue_offsets) == 512
            assert answer.records

        async def decoded(number: int) -> None:
            answer = await calls.stub.Pull(requests[number])
            for message in split_records(answer.records, answer.queue_offsets):
                _ = (message.body, message.topic, message.queue_offset)

        payload = pb.EchoRequest(payload=os.urandom(512 * (BODY_BYTES + 122)))

        def run_of(call: Callable[[int], Awaitable[object]]) -> Callable[[], int]:
            def run() -> int:
                calls.run(call, count, 4)
                return count * 512

            return run

        raw, whole, echo_rate = bench.in_turn(
            run_of(undecoded),
            run_of(decoded),
            run_of(lambda _: calls.stub.Echo(payload)),
        )
        calls.close()
        consumed = _consume(bench, server.address, total // 1000 * 1000)
        for work, value, wanted in (
            ("pull through gRPC, 512 a call, decoded in the client", whole, 200_000),
            ("pull through gRPC, 512 a call, undecoded", raw, 400_000),
            ("pull through the consumer, decoded", consumed, 250_000),
        ):
            bench.rows.append(
                Row(
                    work,
                    value,
                    "messages/s",
                    f"{wanted:,}/s",
                    value >= wanted,
                    echo_rate,
                    "echo of as many bytes, both ways",
                )
            )
    finally:
        server.close()


def _consume(bench: Bench, target: str, total: int) -> float:
    with Client(target) as client:

        def consume() -> int:
            seen = 0
            with client.consumer({Queue("bench", 0): 0}) as consumer:
                for message in consumer.to_end():
                    _ = (message.body, message.topic, message.queue_offset)
                    seen += 1
            assert seen == total
            return seen

        return bench.in_turn(consume)[0]


def single_put(bench: Bench) -> None:
    """One message a call, 32 callers, against echo with the same payload."""
    server = OwnServer(bench.fresh("single"), _STORE, "server")
    try:
        server.create_topics({"bench": QUEUES})
        calls = _Calls(server.address)
        body = os.urandom(BODY_BYTES)
        request = pb.PutRequest(message=pb.Message(topic="bench", queue_id=0, body=body))
        echo = pb.EchoRequest(payload=body)
        count = bench.amount(10_000, 300)

        def put() -> int:
            calls.run(lambda _: calls.stub.Put(request), count, 32)
            return count

        def bare() -> int:
            calls.run(lambda _: calls.stub.Echo(echo), count, 32)
            return count

        put_rate, echo_rate = bench.in_turn(put, bare)
        calls.close()
        bench.rows.append(
            Row(
                "single put, 32 callers in flight",
                put_rate,
                "calls/s",
                "0.75 of the echo",
                put_rate >= 0.75 * echo_rate,
                echo_rate,
                "echo of 1 KiB",
            )
        )
    finally:
        server.close()


def sync_put(bench: Bench) -> None:
    """64 callers that wait for the disk: puts for each fsync, and how long others wait."""
    server = OwnServer(bench.fresh("sync"), {**_STORE, "flush_mode": "sync"}, "server")
    try:
        server.create_topics({"bench": QUEUES})
        calls = _Calls(server.address)
        put = pb.PutRequest(
            message=pb.Message(topic="bench", queue_id=0, body=os.urandom(BODY_BYTES))
        )
        offsets = pb.GetOffsetsRequest(queues=[pb.Queue(topic="bench", queue_id=1)])
        count = bench.amount(6_000, 500)
        waits: list[float] = []

        async def ask(_: int) -> None:
            began_s = perf_counter()
            await calls.stub.GetOffsets(offsets)
            waits.append(perf_counter() - began_s)

        async def beside() -> None:
            while not done.is_set():
                await ask(0)

        async def both() -> None:
            other = asyncio.ensure_future(beside())

            async def work() -> None:
                for _ in range(count // 64):
                    await calls.stub.Put(put)

            await asyncio.gather(*(work() for _ in range(64)))
            done.set()
            await other

        def echo_load() -> None:
            payload = pb.EchoRequest(payload=bytes(BODY_BYTES))

            async def load() -> None:
                other = asyncio.ensure_future(beside())

                async def work() -> None:
                    for _ in range(count // 64):
                        await calls.stub.Echo(payload)

                await asyncio.gather(*(work() for _ in range(64)))
                done.set()
                await other

            calls.loop.run_until_complete(load())

        done = asyncio.Event()
        echo_load()
        idle_ms = median(waits) * 1e3
        waits.clear()
        done = asyncio.Event()
        before = server.statistics()["store.flush_count"]
        calls.loop.run_until_complete(both())
        fsyncs = server.statistics()["store.flush_count"] - before
        calls.close()
        puts = count // 64 * 64
        bench.rows.append(
            Row(
                "SYNC put, 64 callers: puts for each fsync",
                puts / max(1.0, fsyncs),
                "puts",
                "at least 16",
                puts >= 16 * fsyncs,
            )
        )
        busy_ms = median(waits) * 1e3
        bench.rows.append(
            Row(
                "another call beside 64 SYNC puts, median",
                busy_ms,
                "ms",
                "not held up: at most 3 times",
                busy_ms <= 3 * idle_ms,
                idle_ms,
                "beside 64 echo calls",
            )
        )
    finally:
        server.close()
