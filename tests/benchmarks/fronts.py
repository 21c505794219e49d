"""Processor time of a call, in the process that has the store and in its fronts: two servers, one
without fronts, in turns."""

from __future__ import annotations

import asyncio
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import grpc

from kvcq_client import AsyncClient, Message, Start
from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc
from tests.benchmarks.measure import BATCH, BODY_BYTES, Row
from tests.support.server_process import ServerProcess

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

    from tests.benchmarks.measure import Bench

    Work = Callable[[str, int], Coroutine[Any, Any, None]]

_IN_FLIGHT = 64
_BODY = bytes(BODY_BYTES)
_LARGE = (("grpc.max_receive_message_length", -1),)


class _Times(NamedTuple):
    """Microseconds for each call or message."""

    owner: float
    fronts: float


def with_fronts(bench: Bench) -> None:
    """Wanted is less work for the owner where gRPC is most of it, and no more elsewhere."""
    directory = bench.fresh("fronts")
    with ExitStack() as servers, asyncio.Runner() as runner:
        alone, fronted = (_server(servers, directory, workers) for workers in (1, 2))
        for words, work, count, wanted in (
            (f"single put, {_IN_FLIGHT} in flight", _singles, bench.amount(8_000, 200), 0.5),
            (f"put on a shared stream, {_IN_FLIGHT}", _shared, bench.amount(30_000, 200), 1.1),
            ("message of a producer", _produced, bench.amount(200_000, 2_000), 1.1),
            ("message pulled, 512 a call", _pulling(512), bench.amount(200_000, 2_000), 1.0),
            ("message pulled, 32 a call", _pulling(32), bench.amount(20_000, 2_000), 0.8),
            ("message of a consumer", _consumed, bench.amount(200_000, 2_000), 1.0),
        ):
            times: dict[ServerProcess, list[_Times]] = {alone: [], fronted: []}
            for _ in range(bench.rounds):
                for server, found in times.items():
                    found.append(_measured(runner, server, work, count))
            # The least: whatever else runs on the machine only adds to it.
            before, owner = (min(one.owner for one in found) for found in times.values())
            fronts = min(one.fronts for one in times[fronted])
            bench.rows += [
                Row(
                    f"processor time of the process with the store, behind a front: {words}",
                    owner,
                    "us",
                    f"at most {wanted} of that without fronts",
                    owner <= wanted * before,
                    before,
                    "without fronts",
                ),
                Row(f"processor time of the front: {words}", fronts, "us", "none", met=True),
            ]


def _server(servers: ExitStack, directory: Path, workers: int) -> ServerProcess:
    flags = ("--workers", str(workers), "--set", "store.segment_bytes=67108864")
    server = servers.enter_context(ServerProcess(directory / str(workers), *flags))
    server.wait_for("ready")
    return server


def _measured(runner: asyncio.Runner, server: ServerProcess, work: Work, count: int) -> _Times:
    pids = (server.pid, *server.fronts)
    before = [_used_us(pid) for pid in pids]
    runner.run(work(server.target, count))
    owner, *fronts = (
        (_used_us(pid) - used) / count for pid, used in zip(pids, before, strict=True)
    )
    return _Times(owner, sum(fronts))


def _used_us(pid: int) -> float:
    """Processor time of all threads of the process."""
    used_ns = 0
    for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with suppress(FileNotFoundError, ProcessLookupError):  # a thread that ended just now
            used_ns += int(task.read_text().split()[0])
    return used_ns / 1000


async def _singles(target: str, count: int) -> None:
    async with grpc.aio.insecure_channel(target) as channel:
        stub = kvcq_pb2_grpc.MessageServiceStub(channel)
        request = pb.PutRequest(message=pb.Message(topic="single", body=_BODY))

        async def puts() -> None:
            for _ in range(count // _IN_FLIGHT):
                await stub.Put(request)

        await asyncio.gather(*(puts() for _ in range(_IN_FLIGHT)))


async def _shared(target: str, count: int) -> None:
    async with AsyncClient(target) as client:

        async def puts() -> None:
            for _ in range(count // _IN_FLIGHT):
                await client.put(Message("shared", _BODY))

        await asyncio.gather(*(puts() for _ in range(_IN_FLIGHT)))


async def _produced(target: str, count: int) -> None:
    async with AsyncClient(target) as client, client.producer() as producer:
        for _ in range(count // BATCH * BATCH):
            await producer.send("produced", _BODY)


def _pulling(each: int) -> Work:
    """What the producer left, from the beginning again when it is at an end."""
    return partial(_pulled, each)


async def _pulled(each: int, target: str, count: int) -> None:
    async with grpc.aio.insecure_channel(target, options=_LARGE) as channel:
        stub = kvcq_pb2_grpc.MessageServiceStub(channel)
        form, offset, read = pb.RECORD_FORM_WHOLE, 0, 0
        while read < count:
            pulled = await stub.Pull(
                pb.PullRequest(
                    topic="produced", offset=offset, max_messages=each, max_bytes=8 << 20, form=form
                )
            )
            read += len(pulled.queue_offsets)
            offset = pulled.next_offset if pulled.next_offset < pulled.max_offset else 0


async def _consumed(target: str, count: int) -> None:
    read = 0
    async with AsyncClient(target) as client:
        while read < count:
            async with await client.consumer("produced", start=Start.EARLIEST) as consumer:
                async for _ in consumer.to_end():
                    read += 1
                    if read == count:
                        break
