"""A real server whose event loop is watched: how long, of processor time, a call keeps it busy.

The server runs in the test's loop, the standard one; the client blocks in threads, where what it
does is not counted. Each callback of the loop is timed by its thread's processor time; what
the garbage collector takes of it is left out, since whose call meets the collector is chance.
"""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import asynccontextmanager
from dataclasses import dataclass
from time import thread_time
from typing import TYPE_CHECKING, Any

import grpc
import pytest

from kvcq_client.pb.v1 import (
    kvcq_pb2_grpc,
    lite_topics_pb2_grpc,
    shared_groups_pb2_grpc,
    timers_pb2_grpc,
    transactions_pb2_grpc,
)
from tests.support.serving import Served, serving

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

#: As long as a call may keep the loop busy.
LONGEST_STOP_S = 0.020
#: What `_reference_s` takes on the machine that the limit was measured on.
_REFERENCE_S = 0.0205
#: A stop that another process made longer is shorter the next time.
_ATTEMPTS = 4

_OPTIONS = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))


class LoopWatch:
    """The longest callback of one loop so far. Owned by the loop's thread."""

    def __init__(self) -> None:
        self.longest_s = 0.0
        self._collected_s = 0.0
        self._began_s = 0.0

    def run(self, handle: asyncio.Handle, run: Callable[[asyncio.Handle], None]) -> None:
        began_s, collected_s = thread_time(), self._collected_s
        run(handle)
        busy_s = thread_time() - began_s - (self._collected_s - collected_s)
        self.longest_s = max(self.longest_s, busy_s)

    def collecting(self, phase: str, _info: dict[str, int]) -> None:
        """For gc.callbacks."""
        if phase == "start":
            self._began_s = thread_time()
        else:
            self._collected_s += thread_time() - self._began_s


@dataclass(frozen=True)
class Watched:
    """A running server, and a client that blocks: its calls are made in threads."""

    served: Served
    watch: LoopWatch
    messages: Any  # stubs of the blocking kind
    topics: Any
    groups: Any
    calls: Any
    shared: Any
    timers: Any
    transactions: Any
    lite: Any

    async def longest_stop_s(self, call: Callable[[], object]) -> float:
        """Processor time of the longest callback while the call runs, and what it leaves behind.

        `call` runs in a thread.
        """
        await _let_it_rest()
        self.watch.longest_s = 0.0
        await asyncio.to_thread(call)
        await _let_it_rest()
        return self.watch.longest_s

    async def shortest_stop_s(self, call: Callable[[], object]) -> float:
        """The same, as it is on the machine that the limit was measured on: of several calls,
        unless the first is within LONGEST_STOP_S."""
        shortest_s = float("inf")
        for _ in range(_ATTEMPTS):
            slowness = max(1.0, _reference_s() / _REFERENCE_S)
            shortest_s = min(shortest_s, await self.longest_stop_s(call) / slowness)
            if shortest_s <= LONGEST_STOP_S:
                break
        return shortest_s


def _reference_s() -> float:
    """Processor time of a fixed piece of work."""
    began_s = thread_time()
    found: dict[int, tuple[int, str]] = {}
    for number in range(60_000):
        found[number & 1023] = (number, str(number))
    return thread_time() - began_s


async def _let_it_rest() -> None:
    """Callbacks that are due have run, and those that they made due."""
    for _ in range(10):
        await asyncio.sleep(0)


@asynccontextmanager
async def watched_server(
    directory: Path,
    **settings: Any,  # noqa: ANN401
) -> AsyncIterator[Watched]:
    """A server in this loop, watched until the end of the block."""
    watch = LoopWatch()
    plain_run = asyncio.Handle._run
    thread = threading.get_ident()

    def timed_run(handle: asyncio.Handle) -> None:
        watch.run(handle, plain_run)

    def collecting(phase: str, info: dict[str, int]) -> None:
        if threading.get_ident() == thread:
            watch.collecting(phase, info)

    async with serving(directory, **settings) as served:
        with (
            grpc.insecure_channel(served.target, options=_OPTIONS) as channel,
            pytest.MonkeyPatch.context() as patch,
        ):
            patch.setattr(asyncio.Handle, "_run", timed_run)
            gc.callbacks.append(collecting)
            try:
                yield Watched(
                    served,
                    watch,
                    kvcq_pb2_grpc.MessageServiceStub(channel),
                    kvcq_pb2_grpc.TopicServiceStub(channel),
                    kvcq_pb2_grpc.GroupServiceStub(channel),
                    kvcq_pb2_grpc.CallServiceStub(channel),
                    shared_groups_pb2_grpc.SharedGroupServiceStub(channel),
                    timers_pb2_grpc.TimerServiceStub(channel),
                    transactions_pb2_grpc.TransactionServiceStub(channel),
                    lite_topics_pb2_grpc.LiteTopicServiceStub(channel),
                )
            finally:
                gc.callbacks.remove(collecting)
