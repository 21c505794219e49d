"""A server in a process of its own: `python -m server serve --json`, on a free port."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.support.forked import Forked, run_forked

if TYPE_CHECKING:
    import signal

ROOT = Path(__file__).parents[2]
#: Opening replays at most what a test wrote; a machine under load may still take its time.
TIMEOUT_S = 60.0


class ServerProcess:
    """Started at once; use it in a `with` block, which kills it if it still runs."""

    def __init__(
        self,
        data_dir: Path,
        *flags: str,
        port: int = 0,
        module: str = "server",
        is_forked: bool = True,
    ) -> None:
        """`module` is what is run: one that changes something and then runs the server. Where
        memory is measured it must not be forked: it would have that of the tests."""
        arguments = [
            *(module, "serve", "--json", "--port", str(port), "--data", str(data_dir)),
            *("--set", "store.segment_bytes=4194304"),
            *flags,
        ]
        self._process: Forked | subprocess.Popen[bytes]
        if is_forked:
            self._process = Forked(*arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        else:
            self._process = subprocess.Popen(
                [sys.executable, "-m", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        self.events: list[dict[str, Any]] = []
        self.errors: list[str] = []
        self._lines: queue.Queue[bytes | None] = queue.Queue()
        self._readers = [
            threading.Thread(target=self._read_events),
            threading.Thread(target=self._read_errors),
        ]
        for reader in self._readers:
            reader.start()

    @property
    def target(self) -> str:
        """Where it listens; wait for `listening` first."""
        [event] = [event for event in self.events if event["event"] == "listening"]
        return f"{event['host']}:{event['port']}"

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def fronts(self) -> list[int]:
        """Its processes that speak gRPC."""
        children = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        found = []
        for pid in map(int, children.split()):
            with suppress(OSError):  # it has just ended
                if b"server.fronts.front" in Path(f"/proc/{pid}/cmdline").read_bytes():
                    found.append(pid)
        return found

    def wait_for(self, name: str) -> dict[str, Any]:
        """The next event of that name. Raises AssertionError when the process ends instead."""
        while True:
            line = self._lines.get(timeout=TIMEOUT_S)
            if line is None:
                raise AssertionError(f"no {name!r}: {self.events} {''.join(self.errors)}")
            event: dict[str, Any] = json.loads(line)
            self.events.append(event)
            if event["event"] == name:
                return event

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def wait(self) -> int:
        """The exit code; every event is in `events` then."""
        code = self._process.wait(TIMEOUT_S)
        for reader in self._readers:
            reader.join()
        while (line := self._lines.get()) is not None:
            self.events.append(json.loads(line))
        return code

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for reader in self._readers:
            reader.join()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def _read_events(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        self.errors.extend(line.decode() for line in self._process.stderr)


def run_kvcq(
    *arguments: str, stdin: bytes = b"", environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """`kvcq` with these arguments, to its end; `environment` is added to that of the tests.

    With one the process is not forked: an interpreter reads its own at its start.
    """
    if environment is None:
        return run_forked("server", *arguments, stdin=stdin, timeout=TIMEOUT_S)
    return subprocess.run(
        [sys.executable, "-m", "server", *arguments],
        env={**os.environ, **environment},
        input=stdin,
        capture_output=True,
        timeout=TIMEOUT_S,
        check=False,
    )
