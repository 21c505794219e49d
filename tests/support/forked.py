"""Processes that run a module, forked from one that has imported most of it already.

Each is a process like any other, for SIGKILL, limits and files: only its start is cheap, a few
hundredths of a second instead of one or two. Where the start itself is tested, or how much memory a
process takes, `subprocess` starts it.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from types import TracebackType
    from typing import IO


class _Server(NamedTuple):
    process: subprocess.Popen[bytes]
    requests: socket.socket

    def end(self) -> None:
        self.requests.close()
        self.process.wait()


@cache
def _server() -> _Server:
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with its:
        command = [sys.executable, "-m", "tests.support.fork_server", str(its.fileno())]
        server = _Server(subprocess.Popen(command, pass_fds=[its.fileno()]), ours)
    atexit.register(server.end)
    return server


def _ends(
    given: int | IO[bytes] | None, standard: int, stack: ExitStack
) -> tuple[int, IO[bytes] | None]:
    """What the process gets as its standard descriptor of that number, closed here with the stack;
    and our end of it, if it is a pipe."""
    if given is None:
        return standard, None
    if given == subprocess.PIPE:
        read, write = os.pipe()
        its, ours = (read, write) if standard == 0 else (write, read)
        stack.callback(os.close, its)
        return its, os.fdopen(ours, "wb" if standard == 0 else "rb")
    if given == subprocess.DEVNULL:
        null = os.open(os.devnull, os.O_RDWR)
        stack.callback(os.close, null)
        return null, None
    return given if isinstance(given, int) else given.fileno(), None


class Forked:
    """As `subprocess.Popen`: a process that runs `module`, as `python -m` does."""

    def __init__(
        self,
        module: str,
        *arguments: object,
        stdin: int | IO[bytes] = subprocess.DEVNULL,
        stdout: int | IO[bytes] | None = None,
        stderr: int | IO[bytes] | None = None,
        environment: dict[str, str] | None = None,
    ) -> None:
        """`environment` is added to that of the tests."""
        self.returncode: int | None = None
        wanted = {
            "module": module,
            "arguments": [*map(str, arguments)],
            "hears_no_hangup": signal.getsignal(signal.SIGHUP) is signal.SIG_IGN,
            "directory": str(Path.cwd()),
            "environment": {**os.environ, **(environment or {})},
        }
        self._reply, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with ExitStack() as stack:
            stack.enter_context(its)
            its_stdin, self.stdin = _ends(stdin, 0, stack)
            its_stdout, self.stdout = _ends(stdout, 1, stack)
            its_stderr, self.stderr = _ends(stderr, 2, stack)
            descriptors = [its_stdin, its_stdout, its_stderr, its.fileno()]
            socket.send_fds(_server().requests, [json.dumps(wanted).encode()], descriptors)
        self.pid = self._said()

    def _said(self) -> int:
        said = self._reply.recv(64)
        assert said, "the process that forks others has ended"
        return int(said)

    def poll(self) -> int | None:
        """The exit code, a negative signal's number as with Popen; None while it runs."""
        try:
            return self.wait(0)
        except subprocess.TimeoutExpired:
            return None

    def wait(self, timeout: float | None = None) -> int:
        """The exit code. Raises subprocess.TimeoutExpired."""
        if self.returncode is None:
            self._reply.settimeout(timeout)
            try:
                self.returncode = self._said()
            except (TimeoutError, BlockingIOError):
                raise subprocess.TimeoutExpired("a forked process", timeout or 0) from None
            self._reply.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):  # ended, and its code is on the way
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def __enter__(self) -> Forked:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """As `child_process`: a block that fails kills it."""
        for pipe in (self.stdin, self.stdout, self.stderr):
            if pipe is not None:
                pipe.close()
        if kind is not None:
            self.kill()
        self.wait()


def run_forked(
    module: str,
    *arguments: object,
    stdin: bytes = b"",
    environment: dict[str, str] | None = None,
    timeout: float = 100.0,
) -> subprocess.CompletedProcess[bytes]:
    """As `subprocess.run` of the module with its output captured. Raises TimeoutExpired."""
    with ExitStack() as stack:
        files = [stack.enter_context(tempfile.TemporaryFile()) for _ in range(3)]
        files[0].write(stdin)
        files[0].seek(0)
        process = Forked(
            module,
            *arguments,
            stdin=files[0],
            stdout=files[1],
            stderr=files[2],
            environment=environment,
        )
        try:
            code = process.wait(timeout)
        except BaseException:
            process.kill()
            raise
        said = []
        for file in files[1:]:
            file.seek(0)
            said.append(file.read())
        return subprocess.CompletedProcess([module, *map(str, arguments)], code, *said)
