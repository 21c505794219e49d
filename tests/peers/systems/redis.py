"""Redis Streams: Debian's redis-server with an append-only file; redis-py with hiredis."""

from __future__ import annotations

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from importlib.util import find_spec
from time import perf_counter
from typing import TYPE_CHECKING, Any

from tests.benchmarks.processes import OneProcess
from tests.benchmarks.system import System
from tests.benchmarks.timing import AT_ONCE, BODY_BYTES, Timed, by_callers, in_pulls, new_loop

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class RedisServer(OneProcess):
    def __init__(self, directory: Path, *, durable: bool) -> None:
        super().__init__()
        self._directory = directory
        self._fsync = "always" if durable else "everysec"
        self.settings = f"appendonly yes, appendfsync {self._fsync}, no snapshots"

    def start(self) -> None:
        import redis

        data = self._directory / "store"
        data.mkdir(parents=True, exist_ok=True)
        command = [
            *("redis-server", "--port", str(self._port), "--bind", "127.0.0.1"),
            *("--dir", str(data), "--save", "", "--daemonize", "no"),
            *("--appendonly", "yes", "--appendfsync", self._fsync),
        ]
        with redis.Redis(port=self._port) as client:

            def ready() -> object:
                try:
                    return client.ping()
                except (redis.ConnectionError, redis.BusyLoadingError):
                    return False

            self._begin(command, self._directory / "server.log", ready)

    @property
    def address(self) -> str:
        return str(self._port)


class RedisClient:
    def __init__(self, address: str, *, durable: bool) -> None:
        import redis

        self._port = int(address)
        self.redis = redis.Redis(port=self._port)
        self.body = os.urandom(BODY_BYTES)
        # Only waiting for the disk leaves room for a second connection: one thread of Python fills
        # a core.
        self._at_once = AT_ONCE if durable else 1

    def by_callers(self, callers: int, limit_s: float) -> Timed:
        import redis.asyncio

        async def run() -> Timed:
            clients = [redis.asyncio.Redis(port=self._port) for _ in range(callers)]
            for client in clients:
                await client.ping()
            fields = {"b": self.body}
            try:
                return await by_callers(
                    lambda number: clients[number].xadd("callers", fields), callers, limit_s
                )
            finally:
                for client in clients:
                    await client.aclose()

        loop = new_loop()
        try:
            return loop.run_until_complete(run())
        finally:
            loop.close()

    def pipelines(self, queues: Sequence[Sequence[str]], limit_s: float) -> Timed:
        """One addition to each of these streams; a pipeline for each list."""
        fields = {"b": self.body}
        began_s = perf_counter()

        def work(first: int) -> int:
            done = 0
            for names in queues[first :: self._at_once]:
                pipeline = self.redis.pipeline(transaction=False)
                for name in names:
                    pipeline.xadd(name, fields)
                done += len(pipeline.execute())
                if perf_counter() - began_s > limit_s:
                    break
            return done

        if self._at_once == 1:
            done = work(0)
        else:
            with ThreadPoolExecutor(self._at_once) as threads:
                done = sum(threads.map(work, range(self._at_once)))
        return Timed(done, perf_counter() - began_s)

    def pull(self, queue: str, each: int, count: int) -> Timed:
        """XREAD from the begin on."""
        at: Any = "0"

        def pull(_: int) -> int:
            nonlocal at
            [[_name, entries]] = self.redis.xread({queue: at}, count=each)
            for _id, fields in entries:
                _ = fields[b"b"]
            at = entries[-1][0]
            return len(entries)

        return in_pulls(pull, each, count)

    def close(self) -> None:
        self.redis.close()


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
    RedisServer,
    f"{__name__}:RedisClient",
    _missing,
    _version,
)
