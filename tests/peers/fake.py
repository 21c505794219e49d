"""A system without a server, whose client says what it is told to say."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from tests.peers.client import command_of
from tests.peers.systems.protocol import System
from tests.peers.values import Durability, NotOfferedError, Timed

if TYPE_CHECKING:
    from collections.abc import Set
    from pathlib import Path


class FakeServer:
    """Stores a file, so that disk can be seen to grow."""

    running: int = 0

    def __init__(self, directory: Path, durability: Durability) -> None:
        self._store = directory / "store"
        self.settings = f"fake {durability}"
        self._is_running = False

    def start(self) -> None:
        assert FakeServer.running == 0, "another system still runs"
        FakeServer.running += 1
        self._is_running = True
        self._store.mkdir(exist_ok=True)

    def stop(self) -> None:
        if self._is_running:
            FakeServer.running -= 1
            self._is_running = False

    @property
    def address(self) -> str:
        return "nowhere"

    def pids(self) -> list[int]:
        return [os.getpid()]


class FakeClient:
    """1,000 messages a second, whatever it is."""

    def __init__(self, address: str, durability: Durability) -> None:
        self._in_queue: dict[str, int] = {}

    def put_one(self, limit_s: float) -> Timed:
        return Timed.of_calls([0.001] * 10, 0.01)

    def put_one_asyncio(self, limit_s: float) -> Timed:
        return self.put_one(limit_s)

    def put_by_callers(self, limit_s: float) -> Timed:
        return self.put_one(limit_s)

    def put_unary(self, limit_s: float) -> Timed:
        return self.put_one(limit_s)

    def put_each(self, queue: str, count: int) -> Timed:
        raise NotOfferedError("no batches of its own")

    def put_batches(self, queue: str, count: int, limit_s: float) -> Timed:
        self._in_queue[queue] = self._in_queue.get(queue, 0) + count
        return Timed(count, count / 1000)

    def read_back(self, queue: str, count: int) -> Timed:
        # What was put before a restart counts as well: another process put it.
        assert count >= self._in_queue.get(queue, 0), f"{count} of {self._in_queue}"
        return Timed(count, count / 1000)

    def pull(self, queue: str, each: int, count: int) -> Timed:
        return Timed.of_calls([each / 1000] * (count // each), count / 1000, each)

    def new_queues(self, count: int, limit_s: float) -> Timed:
        return Timed(count, count / 1000)

    def many_new_queues(self, count: int, limit_s: float) -> Timed:
        return Timed(count, count / 1000, last_tenth=1.0)

    def light_queues(self, queues: int, each: int, count: int, limit_s: float) -> Timed:
        return Timed(count * each, count * each / 1000)

    def close(self) -> None:
        pass


class FailingClient(FakeClient):
    def read_back(self, queue: str, count: int) -> Timed:
        raise RuntimeError("two of them are missing")


def fake_system(
    name: str = "fake",
    missing: str | None = None,
    client: type[FakeClient] = FakeClient,
    limits: Set[str] = frozenset(),
) -> System:
    return System(
        name,
        f"The {name} one",
        lambda: missing,
        FakeServer,
        lambda address, durability: command_of(client, address, durability),
        lambda: "1.0",
        limits,
    )
