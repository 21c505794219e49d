"""`python -m tests.benchmarks.idle_clients`: clients of RocketMQ that are connected and do nothing.

Each has a connection and a telemetry stream, tells its settings, and sends a heartbeat in ten
seconds, as the official clients do; with `--receive` each is a push consumer whose receive waits.
What is told, a line each: memory of the server before and with them; its processor time; the most
processor time that its event loop took at once: as they came, when all were there, when all went.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

import grpc
import uvloop

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.pb import values_pb2 as v2
from tests.benchmarks.lite_topics import tell
from tests.server.rocketmq.client import Client
from tests.support.private_memory import private_mib
from tests.support.server_process import ServerProcess

_BEAT_S = 10.0
_POLL_S = 20.0
#: Clients that connect at the same time.
_TOGETHER = 50
_OWN_CONNECTION = (("grpc.use_local_subchannel_pool", 1),)
_ORDERS = v2.Resource(name="orders")


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.idle_clients", description=__doc__
    )
    parser.add_argument("--clients", type=int, default=10_000)
    parser.add_argument("--seconds", type=int, default=60, help="that all of them are watched")
    parser.add_argument("--receive", action="store_true", help="each waits for messages")
    options = parser.parse_args()
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (files, files))
    with tempfile.TemporaryDirectory() as directory:
        rounds = Path(directory, "rounds")
        rounds.touch()
        os.environ["KVCQ_TEST_ROUNDS"] = str(rounds)
        store = Path(directory, "store")
        with ServerProcess(store, module="tests.support.timed_server") as server:
            server.wait_for("ready")
            uvloop.run(_measure(server, rounds, options))


async def _measure(server: ServerProcess, rounds: Path, options: argparse.Namespace) -> None:
    tell("memory, nobody connected", f"{private_mib(server.pid)} MiB")
    began, cpu_s = time.perf_counter(), _cpu_s(server.pid)
    group = v2.Resource(name="idle") if options.receive else None
    idle = [
        _Idle(server.target, f"host@{number}@0@idle", group) for number in range(options.clients)
    ]
    places = asyncio.Semaphore(_TOGETHER)
    beating = await asyncio.gather(*(each.begin(places) for each in idle))
    took_s = time.perf_counter() - began
    tell(
        "connected",
        f"{options.clients:,} in {took_s:.0f} s, {_cpu_s(server.pid) - cpu_s:.0f} s of a core",
    )
    seen = _tell_longest("the loop at once, as they came", rounds, 0)
    await asyncio.sleep(_BEAT_S)
    began, cpu_s = time.perf_counter(), _cpu_s(server.pid)
    before = sum(each.beats for each in idle)
    await asyncio.sleep(options.seconds)
    cores = (_cpu_s(server.pid) - cpu_s) / (time.perf_counter() - began)
    tell("memory, all connected", f"{private_mib(server.pid)} MiB")
    tell("processor", f"{cores:.2f} of a core")
    seen = _tell_longest("the loop at once, all connected", rounds, seen)
    beats = sum(each.beats for each in idle) - before
    tell("heartbeats answered", f"{beats:,}")
    for task in beating:
        task.cancel()
    ended = await asyncio.gather(*beating, return_exceptions=True)
    failed = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
    assert not failed, f"{len(failed)} clients ended early; the first: {failed[0]}"
    await asyncio.gather(*(each.close() for each in idle))
    await asyncio.sleep(_BEAT_S)
    _tell_longest("the loop at once, all of them gone together", rounds, seen)
    tell("memory, nobody connected again", f"{private_mib(server.pid)} MiB")


def _tell_longest(what: str, rounds: Path, behind: int) -> int:
    """Of the lines behind that many; how many there are."""
    lines = rounds.read_text("ascii").split()
    tell(what, f"{max(map(float, lines[behind:])) * 1e3:.1f} ms")
    return len(lines)


def _cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


class _Idle:
    """One client. A heartbeat that fails, or a stream that ends, ends the program."""

    def __init__(self, target: str, client_id: str, group: v2.Resource | None) -> None:
        """`group`: of a push consumer; None: a producer."""
        self._channel = grpc.aio.insecure_channel(target, options=_OWN_CONNECTION)
        self._client = Client(self._channel, client_id)
        self._group = group
        self._stream: Any = None
        self.beats = 0

    async def begin(self, places: asyncio.Semaphore) -> asyncio.Task[None]:
        """Connect; the task that stays. It beats while others connect: of whom the server hears
        nothing for two minutes, it forgets the settings."""
        async with places:
            self._stream = self._client.telemetry()
            answer = await self._client.settle(self._stream, self._settings())
            assert answer.status.code == v2.OK, answer.status
            await self._client.route("orders")
        return asyncio.create_task(self._stay())

    def _settings(self) -> v2.Settings:
        if self._group is None:
            publishing = v2.Publishing(topics=[_ORDERS])
            return v2.Settings(client_type=v2.PRODUCER, publishing=publishing)
        entry = v2.SubscriptionEntry(topic=_ORDERS, expression=v2.FilterExpression(expression="*"))
        subscription = v2.Subscription(group=self._group, subscriptions=[entry])
        return v2.Settings(client_type=v2.PUSH_CONSUMER, subscription=subscription)

    async def _stay(self) -> None:
        waits = [self._beat(), self._listen()]
        if self._group is not None:
            waits.append(self._receive())
        await asyncio.gather(*waits)

    async def close(self) -> None:
        self._stream.cancel()
        await self._channel.close(None)

    async def _beat(self) -> None:
        # Spread over the ten seconds, as programs that began at other times.
        await asyncio.sleep(hash(self._client.metadata) % 1000 / 1000 * _BEAT_S)
        request = pb.HeartbeatRequest(group=self._group)
        while True:
            answer = await self._client.call.Heartbeat(request, metadata=self._client.metadata)
            assert answer.status.code == v2.OK, answer.status
            self.beats += 1
            await asyncio.sleep(_BEAT_S)

    async def _listen(self) -> None:
        raise AssertionError(f"the stream has ended, or said {await self._stream.read()}")

    async def _receive(self) -> None:
        assert self._group is not None
        while True:
            status, _ = await self._client.receive(
                self._group.name, "orders", poll_s=_POLL_S, auto_renew=True, invisible_s=0
            )
            assert status.code == v2.MESSAGE_NOT_FOUND, status


if __name__ == "__main__":
    main()
