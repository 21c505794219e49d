"""What processes use: processor time, memory, disk. All processes of a system are counted."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Self

import psutil

from kvcq_bench.disk import disk_bytes
from kvcq_client.transport.grpc_environment import ENVIRONMENT

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

_STOP_S = 120.0
_PSS = re.compile(r"^Pss:\s+(\d+) kB", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Used:
    """Of some processes, at one moment."""

    cpu_s: float
    resident_bytes: int
    #: Resident bytes with shared pages divided among those that share them.
    pss_bytes: int


def used_by(pids: Iterable[int]) -> Used:
    """Of the processes and all their children."""
    cpu_s, resident, pss = 0.0, 0, 0
    for process in _with_children(pids):
        # A child may end meanwhile, such as that in which Redis writes its log anew.
        with suppress(psutil.NoSuchProcess, ProcessLookupError, FileNotFoundError):
            times = process.cpu_times()
            # Of children that have ended as well: a snapshot, a rewrite of a log.
            cpu_s += times.user + times.system + times.children_user + times.children_system
            resident += process.memory_info().rss
            pss += _pss_bytes(process.pid)
    return Used(cpu_s, resident, pss)


def machine_cpu_s() -> float:
    """What all cores have worked since the machine began."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def stored_bytes(directory: Path) -> int:
    """Allocated bytes of what a server keeps in `directory`/store."""
    return sum(disk_bytes(directory).values())


def _with_children(pids: Iterable[int]) -> list[psutil.Process]:
    found = {}
    for pid in pids:
        process = psutil.Process(pid)
        for one in (process, *process.children(recursive=True)):
            found[one.pid] = one
    return list(found.values())


def _pss_bytes(pid: int) -> int:
    match = _PSS.search(Path(f"/proc/{pid}/smaps_rollup").read_text(encoding="utf-8"))
    return int(match[1]) * 1024 if match else 0


def plain_environment() -> dict[str, str]:
    """That of this process without what our client told gRPC: a peer's gRPC is as it comes."""
    return {name: value for name, value in os.environ.items() if name not in ENVIRONMENT}


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


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def connects(port: int) -> bool:
    """Something listens there. Raises OSError otherwise."""
    with socket.create_connection(("127.0.0.1", port), 1):
        return True


def wait_until(ready: Callable[[], object], process: ServerProcess, limit_s: float = 120.0) -> None:
    """Until `ready()` is true; a refused connection is a no. Raises RuntimeError, TimeoutError."""
    end_s = time.monotonic() + limit_s
    while True:
        process.check()
        try:
            if ready():
                return
        except OSError:
            pass
        if time.monotonic() > end_s:
            raise TimeoutError(f"not ready after {limit_s:g} s:\n{process.log_end()}")
        time.sleep(0.005)
