"""A program that uses a client of RocketMQ, in a process of its own: told what to do by lines."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

ANSWER_S = 120.0
#: Begins a program with these arguments.
Start = Callable[..., "Program"]


class Program:
    """The client's process, command by command; what it is pushed stands apart."""

    def __init__(
        self, command: Sequence[str | Path], home: Path, lacks: frozenset[str] = frozenset()
    ) -> None:
        """`lacks`: the commands that the client cannot do."""
        self.lacks = lacks
        self.pushed: queue.Queue[dict[str, Any]] = queue.Queue()
        self._answers: queue.Queue[dict[str, Any]] = queue.Queue()
        self._process = subprocess.Popen(
            list(map(str, command)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            cwd=home,
            # Clients write logs below the home directory.
            env={"PATH": os.environ["PATH"], "HOME": str(home)},
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            mark, _, text = line.partition(" ")
            if mark == "ANSWER":
                answer = json.loads(text)
                (self.pushed if "pushed" in answer else self._answers).put(answer)

    def try_(self, name: str, **given: object) -> dict[str, Any]:
        """The answer, whatever it is."""
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps([name, given]) + "\n")
        self._process.stdin.flush()
        answer = self._answers.get(timeout=ANSWER_S)
        assert answer.pop("done") == name
        return answer

    def do(self, name: str, **given: object) -> dict[str, Any]:
        answer = self.try_(name, **given)
        assert "error" not in answer, answer
        return answer

    def do_when_served(self, name: str, **given: object) -> None:
        """The client says at once that it is not connected, and connects again by itself."""
        end_s = time.monotonic() + ANSWER_S
        while "error" in (answer := self.try_(name, **given)):
            assert time.monotonic() < end_s, answer

    def send(self, topic: str, *bodies: str, **given: object) -> list[str]:
        ids: list[str] = self.do("send", topic=topic, bodies=bodies, **given)["ids"]
        return ids

    def until_pushed(self, *bodies: str) -> list[dict[str, Any]]:
        """All that was pushed until each of these was taken well."""
        left, seen = set(bodies), []
        while left:
            one = self.pushed.get(timeout=ANSWER_S)
            seen.append(one)
            if not one["failed"]:
                left.discard(one["pushed"]["body"])
        return seen

    def receive_all(self, count: int) -> list[dict[str, Any]]:
        """That many messages, in as many receives as it takes."""
        end_s = time.monotonic() + ANSWER_S
        found: list[dict[str, Any]] = []
        while len(found) < count:
            assert time.monotonic() < end_s, found
            found += self.try_("receive").get("messages", [])  # it fails while nobody serves
        return found

    def kill(self) -> None:
        """At once, as a machine that fails."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(20)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._reader.join()
        assert self._process.stdout is not None
        self._process.stdout.close()


@contextmanager
def starting(
    command: Sequence[str | Path], home: Path, lacks: frozenset[str] = frozenset()
) -> Iterator[Start]:
    """Programs of this command until the end of the block."""
    programs: list[Program] = []

    def start(*arguments: str) -> Program:
        programs.append(Program((*command, *arguments), home, lacks))
        return programs[-1]

    try:
        yield start
    finally:
        for each in programs:
            each.close()
