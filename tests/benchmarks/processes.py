"""Processes of servers: started, awaited, stopped."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

_STOP_S = 120.0


def plain_environment() -> dict[str, str]:
    """That of this process without what our client told gRPC: a peer's gRPC is as it comes."""
    return {name: value for name, value in os.environ.items() if not name.startswith("GRPC_")}


class ServerProcess:
    """A process with its output in a file. Stop it, or use it in a `with` block."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=plain_environment() if environment is None else environment,
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def check(self) -> None:
        """Raises RuntimeError when it has ended."""
        if self._process.poll() is not None:
            raise RuntimeError(
                f"{self._process.args!r} ended with {self._process.returncode}:\n{self.log_end()}"
            )

    def log_end(self) -> str:
        return self._log.read_text("utf-8", errors="replace")[-3000:]

    def stop(self) -> None:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            try:
                self._process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self.kill()
                raise TimeoutError(f"{self._process.args!r} did not end: killed") from None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


class OneProcess:
    """A system that is one process, on a port of its own."""

    def __init__(self) -> None:
        self._port = free_port()
        self._process: ServerProcess | None = None

    def _begin(self, command: Sequence[str], log: Path, is_ready: Callable[[], object]) -> None:
        self._process = ServerProcess(command, log)
        wait_until(is_ready, self._process)

    def stop(self) -> None:
        if self._process is not None:
            self._process.stop()
            self._process = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self._port}"

    def pids(self) -> list[int]:
        assert self._process is not None
        return [self._process.pid]


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def connects(port: int) -> bool:
    """Whether something listens there."""
    with suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
        return True
    return False


def wait_until(ready: Callable[[], object], process: ServerProcess, limit_s: float = 120.0) -> None:
    """Until `ready()` is true; a refused connection is a no. Raises RuntimeError, TimeoutError."""
    end_s = time.monotonic() + limit_s
    while True:
        process.check()
        with suppress(OSError):
            if ready():
                return
        if time.monotonic() > end_s:
            raise TimeoutError(f"not ready after {limit_s:g} s:\n{process.log_end()}")
        time.sleep(0.005)
