"""A client process as the measuring side sees it."""

from __future__ import annotations

import json
import subprocess
from typing import TYPE_CHECKING, Any, Self

from tests.peers.processes import plain_environment
from tests.peers.values import NotOfferedError, Timed

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path


class ClientFailedError(Exception):
    """A client said that its work failed, or ended."""


class Child:
    """Started at once, ready when the constructor returns; see `client` for what is spoken."""

    def __init__(
        self, command: Sequence[str], log: Path, environment: Mapping[str, str] | None = None
    ) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=plain_environment() if environment is None else environment,
            )
        self._answer()

    @property
    def pid(self) -> int:
        return self._process.pid

    def run(self, work: str, **arguments: object) -> Timed:
        """Raises NotOfferedError, ClientFailedError."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"work": work, **arguments}) + "\n")
        self._process.stdin.flush()
        found = self._answer()
        if "not_offered" in found:
            raise NotOfferedError(found["not_offered"])
        if "error" in found:
            raise ClientFailedError(f"{work}: {found['error']}")
        return Timed(**found)

    def close(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        try:
            self._process.wait(30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            self._process.wait()
            end = self._log.read_text("utf-8", errors="replace")[-3000:]
            raise ClientFailedError(f"the client ended with {self._process.returncode}:\n{end}")
        found: dict[str, Any] = json.loads(line)
        return found

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
