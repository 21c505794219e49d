"""A front in the event loop of the test: real gRPC and a real pair of sockets, and no process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.fronts.front import Front

if TYPE_CHECKING:
    import socket


class FrontHere:
    """What stands for its process."""

    pid = 0

    def __init__(self, pair: socket.socket) -> None:
        self.front = Front(self.kill)
        self._task = asyncio.create_task(self.front.run(pair))

    @classmethod
    async def start(cls, pair: socket.socket) -> FrontHere:
        """As server.fronts.fleet.start_process."""
        return cls(pair.dup())

    async def wait(self) -> int:
        await asyncio.wait({self._task})
        return 0

    def kill(self) -> None:
        self._task.cancel()
