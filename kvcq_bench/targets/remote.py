"""A server as target, used through the client: already running, or started by the run."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from kvcq_bench.errors import BenchError, CheckFailedError, NotPossibleHereError
from kvcq_bench.machine import Used, disk_bytes, used_by
from kvcq_client import Client, NotPossibleError, Queue, keep_freed_memory

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from pathlib import Path

    from kvcq_client import (
        TLS,
        Bounds,
        Credentials,
        Message,
        Producer,
        Pulled,
        SendingMany,
        StoredMessage,
    )

_TIMEOUT_S = 120.0
#: Subscribing to a million queues takes a while.
_IDLE_TIMEOUT_S = 120.0


class RemoteWriter:
    """A producer of the client. Thread: one."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer

    def write(
        self, messages: Sequence[Message], on_done: Callable[[Mapping[int, Exception]], None]
    ) -> None:
        sendings: SendingMany = self._producer.send_many(messages)
        sendings.add_done_callback(lambda done: on_done(done.errors(0)))

    def flush(self) -> None:
        self._producer.flush()

    def close(self) -> None:
        self._producer.close()


class RemoteTarget:
    """A server that is already running."""

    def __init__(
        self, address: str, *, tls: TLS | None = None, credentials: Credentials | None = None
    ) -> None:
        self.name = f"server {address}"
        keep_freed_memory()
        self._client = Client(address, timeout_s=_TIMEOUT_S, tls=tls, credentials=credentials)
        self.directory: Path | None = None

    @property
    def client(self) -> Client:
        """The client; valid until the target is reopened."""
        return self._client

    def writer(self) -> RemoteWriter:
        return RemoteWriter(self._client.producer(linger_ms=2.0, buffer_bytes=16 << 20))

    def put_later(self, messages: Sequence[Message], due_ms: Sequence[int]) -> None:
        times = [datetime.fromtimestamp(each / 1000, UTC) for each in due_ms]
        self._client.put_delayed_many(messages, times)

    def create_topics(self, topics: Mapping[str, int]) -> None:
        """Create topics. Raises CheckFailedError if a topic already has messages, which would be
        mistaken for those of the run."""
        self._client.create_topics(topics)
        if self.directory is not None:  # the run's own store is new
            return
        queues = [Queue(name, at) for name, count in topics.items() for at in range(count)]
        for queue, bounds in self._client.offsets(queues).items():
            if bounds.max_offset:
                raise CheckFailedError(
                    f"topic {queue.topic} has messages, perhaps of an earlier run: delete it first"
                )

    def bounds(self, queues: Sequence[Queue]) -> dict[Queue, Bounds]:
        return self._client.offsets(queues)

    def pull(self, queue: Queue, offset: int, max_messages: int) -> Pulled:
        return self._client.pull(*queue, offset, max_messages=max_messages)

    def read_to_end(
        self, starts: Mapping[Queue, int]
    ) -> Iterator[tuple[Queue, list[StoredMessage]]]:
        with self._client.consumer(starts) as consumer:
            for batch in consumer.batches_to_end(_IDLE_TIMEOUT_S):
                queue = consumer.queue
                assert queue is not None, "a batch is of a queue"
                yield queue, batch

    def statistics(self) -> dict[str, float]:
        try:
            return self._client.statistics()
        except NotPossibleError as error:
            if error.reason != "SERVED_ELSEWHERE":
                raise
            return {}  # administration calls use another port

    def used(self) -> Used | None:
        return None

    def disk_bytes(self) -> dict[str, int]:
        return {}

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        raise NotPossibleHereError(
            "this scenario restarts its server: let it start one, with --data instead of --server"
        )

    def close(self) -> None:
        self._client.close()


class OwnServer(RemoteTarget):
    """A server process that the run starts, on one of its own directories."""

    def __init__(self, directory: Path, settings: Mapping[str, Any], program: str) -> None:
        """`settings`: of the store, or of the server with its table, such as
        `server.worker_threads`.

        `program`: the module that is run as `python -m … serve`.
        """
        self._root = directory
        self._settings = dict(settings)
        self._program = program
        self._process, self.address = self._start()
        super().__init__(self.address)
        self.name = "own server process"
        self.directory = directory

    @property
    def pid(self) -> int:
        return self._process.pid

    def used(self) -> Used | None:
        return used_by([self.pid])

    def disk_bytes(self) -> dict[str, int]:
        return disk_bytes(self._root)

    def reopen(
        self,
        settings: Mapping[str, Any] | None = None,
        *,
        kill: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
    ) -> float:
        self._settings.update(settings or {})
        if kill:
            # At the same address, so that the client reconnects.
            self._stop(kill=True)
            meanwhile()
            started = perf_counter()
            self._process, self.address = self._start(self.address.rpartition(":")[2])
            return perf_counter() - started
        self._client.close()
        self._stop(kill=False)
        meanwhile()
        started = perf_counter()
        self._process, self.address = self._start()
        seconds = perf_counter() - started
        keep_freed_memory()
        self._client = Client(self.address, timeout_s=_TIMEOUT_S)
        return seconds

    def close(self) -> None:
        super().close()
        self._stop(kill=False)

    def _start(self, port: str = "0") -> tuple[subprocess.Popen[str], str]:
        """Start the process. Returns it and its address, once it is ready."""
        arguments = [sys.executable, "-m", self._program, "serve", "--json", "--port", port]
        arguments += ["--data", str(self._root / "store")]
        for name, value in self._settings.items():
            text = ",".join(map(str, value)) if isinstance(value, list) else str(value)
            arguments += ["--set", f"{name if '.' in name else f'store.{name}'}={text}"]
        self._root.mkdir(parents=True, exist_ok=True)
        with (self._root / "server.log").open("a", encoding="utf-8") as log:
            process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            event = json.loads(line)
            if event["event"] == "ready":
                # Keep reading, or a full pipe would block the server.
                threading.Thread(target=process.stdout.read, daemon=True).start()
                return process, f"{event['host']}:{event['port']}"
        process.wait()
        raise BenchError(f"the server did not start; see {self._root / 'server.log'}")

    def _stop(self, *, kill: bool) -> None:
        if kill:
            self._process.kill()
        else:
            self._process.terminate()
        self._process.wait()
        if self._process.stdout is not None:
            self._process.stdout.close()
