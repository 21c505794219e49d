"""NATS JetStream with file storage: the newer server of PyPI's wheel, or Debian's; nats-py."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import urllib.request
from importlib.util import find_spec
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

from tests.benchmarks.processes import OneProcess, free_port
from tests.benchmarks.system import System
from tests.benchmarks.timing import (
    AT_ONCE,
    BATCH,
    BODY_BYTES,
    NotOfferedError,
    Timed,
    batches,
    by_callers,
    new_loop,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

T = TypeVar("T")

#: The first that can acknowledge after fsync.
_WITH_SYNC = (2, 10)
_SUBJECTS = ["callers", "batches.*", "queues.*"]


def _binary() -> str | None:
    """Beside this Python where the wheel was installed; else on the path."""
    beside = Path(sys.executable).parent / "nats-server"
    return str(beside) if beside.exists() else shutil.which("nats-server")


class NatsServer(OneProcess):
    def __init__(self, directory: Path, *, durable: bool) -> None:
        super().__init__()
        self._directory = directory
        self._always = durable
        self.settings = f"file storage, sync_interval {'always' if self._always else '2m'}"
        self._monitor = free_port()

    def start(self) -> None:
        if self._always and tuple(map(int, _version().split(".")[:2])) < _WITH_SYNC:
            raise NotOfferedError("this version cannot fsync before it acknowledges: 2.10 can")
        self._directory.mkdir(parents=True, exist_ok=True)
        settings = self._directory / "server.conf"
        sync = "sync_interval: always" if self._always else ""
        settings.write_text(
            f'listen: "127.0.0.1:{self._port}"\nhttp: "127.0.0.1:{self._monitor}"\n'
            # What waits for a consumer may be all that it is to read: at 64 MB it is cut off.
            "max_pending: 512MB\n"
            f'jetstream {{ store_dir: "{self._directory / "store"}", max_file: 64GB, {sync} }}\n',
            encoding="utf-8",
        )
        binary = _binary()
        assert binary is not None
        self._begin([binary, "-c", str(settings)], self._directory / "server.log", self._ready)

    def _ready(self) -> bool:
        url = f"http://127.0.0.1:{self._monitor}/healthz"
        with urllib.request.urlopen(url, timeout=5) as answer:
            return bool(answer.status == 200)

    @property
    def address(self) -> str:
        return f"nats://127.0.0.1:{self._port}"


class NatsClient:
    def __init__(self, address: str, *, durable: bool) -> None:
        self.body = os.urandom(BODY_BYTES)
        self._loop = new_loop()
        self.run(self._connect(address))

    async def _connect(self, address: str) -> None:
        import nats
        from nats.js.api import StorageType, StreamConfig

        self._nats = await nats.connect(address, pending_size=64 << 20)
        self._stream = self._nats.jetstream(
            timeout=120.0, publish_async_max_pending=AT_ONCE * BATCH
        )
        await self._stream.add_stream(
            StreamConfig(name="bench", subjects=_SUBJECTS, storage=StorageType.FILE)
        )

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        return self._loop.run_until_complete(work)

    def by_callers(self, callers: int, limit_s: float) -> Timed:
        return self.run(
            by_callers(lambda _: self._stream.publish("callers", self.body), callers, limit_s)
        )

    def publish(self, subjects: Iterable[str], limit_s: float) -> Timed:
        """A message to each; as many are in flight as of other systems in 8 batches of 128."""
        return self.run(self._publish(subjects, limit_s))

    async def _publish(self, subjects: Iterable[str], limit_s: float) -> Timed:
        publish = self._stream.publish_async
        futures: list[asyncio.Future[Any]] = []
        done = 0
        began_s = perf_counter()
        for subject in subjects:
            futures.append(await publish(subject, self.body))
            if len(futures) == AT_ONCE * BATCH:
                # The older half has mostly come: raises what went wrong.
                old, futures = futures[: len(futures) // 2], futures[len(futures) // 2 :]
                await asyncio.gather(*old)
                done += len(old)
                if perf_counter() - began_s > limit_s:
                    break
        await asyncio.gather(*futures)
        return Timed(done + len(futures), perf_counter() - began_s)

    async def read_back(self, subject: str, count: int) -> Timed:
        from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

        seen = 0
        everything = self._loop.create_future()

        async def see(message: Any) -> None:  # noqa: ANN401 - the library is not typed
            nonlocal seen
            _ = message.data
            seen += 1
            if seen == count:
                everything.set_result(None)

        began_s = perf_counter()
        subscription = await self._stream.subscribe(
            subject,
            cb=see,
            manual_ack=True,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
            config=ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL),
        )
        await asyncio.wait_for(everything, 120)
        seconds = perf_counter() - began_s
        await subscription.unsubscribe()
        return Timed(seen, seconds)

    async def pull(self, subject: str, each: int, count: int) -> Timed:
        from nats.js.api import AckPolicy, ConsumerConfig

        subscription = await self._stream.pull_subscribe(
            subject, stream="bench", config=ConsumerConfig(ack_policy=AckPolicy.NONE)
        )
        calls: list[float] = []
        began_s = now_s = perf_counter()
        for _ in batches(range(count // each * each), each):
            messages = await subscription.fetch(each, timeout=30)
            if len(messages) != each:
                raise RuntimeError(f"{len(messages)} messages, not {each}")
            before_s, now_s = now_s, perf_counter()
            calls.append(now_s - before_s)
        timed = Timed.of_calls(calls, now_s - began_s, len(calls) * each)
        await subscription.unsubscribe()
        return timed

    async def work(self, subject: str, each: int, count: int) -> Timed:
        """Fetch, acknowledge each, and wait until the server has these: its answers to them are
        none."""
        from nats.js.api import AckPolicy, ConsumerConfig

        subscription = await self._stream.pull_subscribe(
            subject, stream="bench", config=ConsumerConfig(ack_policy=AckPolicy.EXPLICIT)
        )
        calls: list[float] = []
        began_s = now_s = perf_counter()
        for _ in batches(range(count // each * each), each):
            messages = await subscription.fetch(each, timeout=30)
            if len(messages) != each:
                raise RuntimeError(f"{len(messages)} messages, not {each}")
            for message in messages:
                _ = message.data
                await message.ack()
            await self._nats.flush()
            before_s, now_s = now_s, perf_counter()
            calls.append(now_s - before_s)
        timed = Timed.of_calls(calls, now_s - began_s, len(calls) * each)
        await subscription.unsubscribe()
        return timed

    def close(self) -> None:
        self.run(self._nats.close())
        self._loop.close()


def _missing() -> str | None:
    if find_spec("nats") is None:
        return "pip install '.[peers]'"
    if _binary() is None:
        return "pip install '.[peers]', or apt-get install nats-server"
    return None


def _version() -> str:
    binary = _binary()
    assert binary is not None
    text = subprocess.run([binary, "--version"], capture_output=True, text=True, check=True).stdout
    return text.rpartition("v")[2].strip()


SYSTEM = System(
    "nats",
    "NATS JetStream",
    NatsServer,
    f"{__name__}:NatsClient",
    _missing,
    _version,
)
