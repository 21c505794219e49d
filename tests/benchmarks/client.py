"""The process of a client: takes a line of JSON for each piece of work, and answers one.

| line in | line out |
|---|---|
| `{"work": "put_one", "limit_s": 2.0}` | `{"count": …, "seconds": …, "p50_us": …, "p99_us": …}` |
| the same | `{"not_offered": "why"}`, or `{"error": "what"}` |
| end of input | |

A client of any language that does the same can stand here.
"""

from __future__ import annotations

import importlib
import json
import subprocess
import sys
import traceback
from typing import TYPE_CHECKING, Any, Self

from tests.benchmarks.processes import plain_environment
from tests.benchmarks.timing import NotOfferedError, Timed
from tests.benchmarks.work import all_works

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path


class ClientFailedError(Exception):
    """A client said that its work failed, or ended."""


class Child:
    """The process as the measuring side sees it: ready when the constructor returns."""

    def __init__(self, command: Sequence[str], log: Path) -> None:
        self._log = log
        with log.open("ab") as errors:
            self._process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
                env=plain_environment(),
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


def answer(client: object, system: str, line: str) -> dict[str, Any]:
    """What the process answers to a line."""
    request = json.loads(line)
    method = request.pop("work")
    loops = (work.loops.get(system) for work in all_works() if work.method == method)
    try:
        loop = next(loop for loop in loops if loop is not None)
        return loop(client, **request).document()
    except NotOfferedError as error:
        return {"not_offered": str(error)}
    except Exception:  # noqa: BLE001 - whatever it is, the other side reports it
        return {"error": traceback.format_exc()}


def main() -> None:
    place, system, address, durable = sys.argv[1:]
    module, _, name = place.partition(":")
    client: Any = getattr(importlib.import_module(module), name)(address, durable=durable == "1")
    all_works()
    sys.stdout.write("{}\n")
    sys.stdout.flush()
    for line in sys.stdin:
        sys.stdout.write(json.dumps(answer(client, system, line)) + "\n")
        sys.stdout.flush()
    client.close()


if __name__ == "__main__":
    main()
