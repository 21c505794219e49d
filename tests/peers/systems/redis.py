"""Redis Streams: Debian's redis-server with an append-only file; redis-py with hiredis."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_client.transport.loop_thread import new_event_loop
from tests.peers.client import command_of
from tests.peers.processes import ServerProcess, free_port, wait_until
from tests.peers.systems.calls import batches, by_callers, in_pulls, one_at_a_time
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
    from collections.abc import Sequence
    from pathlib import Path

_FSYNC = {Durability.BEFORE_FSYNC: "everysec", Durability.AFTER_FSYNC: "always"}
_READ = 512


class RedisServer:
    def __init__(self, directory: Path, durability: Durability) -> None:
        self._directory = directory
        self._fsync = _FSYNC[durability]
        self.settings = f"appendonly yes, appendfsync {self._fsync}, no snapshots"
        self._port = free_port()
        self._process: ServerProcess | None = None

    def start(self) -> None:
        import redis

        data = self._directory / "store"
        data.mkdir(parents=True, exist_ok=True)
        self._process = ServerProcess(
            [
                *("redis-server", "--port", str(self._port), "--bind", "127.0.0.1"),
                *("--dir", str(data), "--save", "", "--daemonize", "no"),
                *("--appendonly", "yes", "--appendfsync", self._fsync),
            ],
            self._directory / "server.log",
        )
        with redis.Redis(port=self._port) as client:

            def ready() -> object:
                try:
                    return client.ping()
                except (redis.ConnectionError, redis.BusyLoadingError):
                    return False

            wait_until(ready, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def address(self) -> str:
        return str(self._port)

    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]


class RedisClient:
    def __init__(self, address: str, durability: Durability) -> None:
        import redis

        self._port = int(address)
        self._redis = redis.Redis(port=self._port)
        self._body = os.urandom(BODY_BYTES)
        # Only waiting for the disk leaves room for a second connection: one thread of Python fills
        # a core.
        self._at_once = AT_ONCE if durability is Durability.AFTER_FSYNC else 1

    def put_one(self, limit_s: float) -> Timed:
        fields = {"b": self._body}
        return one_at_a_time(lambda: self._redis.xadd("one", fields), limit_s)

    def put_one_asyncio(self, limit_s: float) -> Timed:
        return self._by_callers(1, limit_s)

    def put_by_callers(self, limit_s: float) -> Timed:
        return self._by_callers(CALLERS, limit_s)

    def _by_callers(self, callers: int, limit_s: float) -> Timed:
        import redis.asyncio

        async def run() -> Timed:
            clients = [redis.asyncio.Redis(port=self._port) for _ in range(callers)]
            for client in clients:
                await client.ping()
            fields = {"b": self._body}
            try:
                return await by_callers(
                    lambda number: clients[number].xadd("callers", fields), callers, limit_s
                )
            finally:
                for client in clients:
                    await client.aclose()

        loop = new_event_loop()
        try:
            return loop.run_until_complete(run())
        finally:
            loop.close()

    def put_each(self, queue: str, count: int) -> Timed:
        raise NotOfferedError("the client does not batch by itself")

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        parts = [[queue] * len(part) for part in batches(range(count), BATCH)]
        return self._pipelines(parts, perf_counter() + limit_s)

    def new_queues(self, count: int, limit_s: float) -> Timed:
        parts = batches(range(count), BATCH)
        names = [[f"queue-{number:07d}" for number in part] for part in parts]
        return self._pipelines(names, perf_counter() + limit_s)

    def _pipelines(self, queues: Sequence[Sequence[str]], end_s: float) -> Timed:
        fields = {"b": self._body}
        began_s = perf_counter()

        def work(first: int) -> int:
            done = 0
            for names in queues[first :: self._at_once]:
                pipeline = self._redis.pipeline(transaction=False)
                for name in names:
                    pipeline.xadd(name, fields)
                done += len(pipeline.execute())
                if perf_counter() > end_s:
                    break
            return done

        if self._at_once == 1:
            done = work(0)
        else:
            with ThreadPoolExecutor(self._at_once) as threads:
                done = sum(threads.map(work, range(self._at_once)))
        return Timed(done, perf_counter() - began_s)

    def read_back(self, queue: str, count: int) -> Timed:
        timed = self.pull(queue, _READ, count // _READ * _READ)
        return Timed(timed.count, timed.seconds)

    def pull(self, queue: str, each: int, count: int) -> Timed:
        at: Any = "0"

        def pull(_: int) -> int:
            nonlocal at
            [[_name, entries]] = self._redis.xread({queue: at}, count=each)
            for _id, fields in entries:
                _ = fields[b"b"]
            at = entries[-1][0]
            return len(entries)

        return in_pulls(pull, each, count)

    def light_queues(self, queues: int, each: int, count: int, limit_s: float) -> Timed:
        raise NotOfferedError("a message stands in one stream")

    def close(self) -> None:
        self._redis.close()


def _missing() -> str | None:
    if shutil.which("redis-server") is None:
        return "apt-get install redis-server"
    if find_spec("redis") is None or find_spec("hiredis") is None:
        return "pip install '.[peers]'"
    return None


def _version() -> str:
    words = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=True
    ).stdout.split()
    return next(word.removeprefix("v=") for word in words if word.startswith("v="))


SYSTEM = System(
    "redis",
    "Redis Streams",
    _missing,
    RedisServer,
    lambda address, durability: command_of(RedisClient, address, durability),
    _version,
)
