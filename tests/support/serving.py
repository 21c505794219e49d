"""A real server in the test's own event loop: real gRPC on a free port, real store on disk."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import grpc

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from kvcq_client.pb.v1 import kvcq_pb2_grpc, shared_groups_pb2_grpc, timers_pb2_grpc
from migration.opening import open_any
from server.app import Server
from server.app import server as server_module
from server.config import ServerConfig
from server.process import private_bytes
from server.settings import RunningSettings, Settings
from tests.support.checked import assert_whole
from tests.support.front_here import FrontHere

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
    from pathlib import Path

    from server.app import StoreOpener
    from server.app.serving import Serving
    from server.errors import SettingsRefusedError
    from server.settings import Change, Sources
    from store.message_store import MessageStore

#: Settings of servers that are given no others: those of a twin, see tests/server/fronts/.
DEFAULTS: dict[str, Any] = {}
#: Segments are really allocated: small ones keep tests fast and disks empty.
SMALL_STORE: dict[str, Any] = {"segment_bytes": 1 << 20, "default_queue_count": 4}


@dataclass(frozen=True)
class Served:
    """A running server, and a client's way to it."""

    server: Server
    target: str
    until_ready: Callable[[], Awaitable[None]]
    channel: grpc.aio.Channel
    messages: kvcq_pb2_grpc.MessageServiceStub
    topics: kvcq_pb2_grpc.TopicServiceStub
    groups: kvcq_pb2_grpc.GroupServiceStub
    admin: kvcq_pb2_grpc.AdminServiceStub
    shared: shared_groups_pb2_grpc.SharedGroupServiceStub
    timers: timers_pb2_grpc.TimerServiceStub

    @property
    def serving(self) -> Serving:
        found = self.server._serving
        assert found is not None
        return found

    @property
    def store(self) -> MessageStore:
        return self.serving.store

    async def first_stored(self, topic: str) -> None:
        """Return once there is a message in queue 0. What the server sends meanwhile need not be
        the answer to its put."""
        pulled = await self.messages.Pull(pb.PullRequest(topic=topic, wait_ms=20_000))
        assert pulled.next_offset


class EventListener:
    """Lets a test wait for what the server tells."""

    def __init__(self) -> None:
        self.target = ""
        self.told: list[str] = []
        self.is_listening = asyncio.Event()
        self.is_ready = asyncio.Event()

    def listening(self, host: str, port: int) -> None:
        self.target = f"{host}:{port}"
        self.told.append("listening")
        self.is_listening.set()

    def opening(self, step: str, fraction: float) -> None:
        self.told.append(f"opening {step}")

    def ready(self, host: str, port: int) -> None:
        self.told.append("ready")
        self.is_ready.set()

    def reloading(self) -> None:
        self.told.append("reloading")

    def reload_refused(self, error: SettingsRefusedError) -> None:
        self.told.append(f"refused {error}")

    def reloaded(self, taken: Sequence[Change], waiting: Sequence[Change]) -> None:
        self.told.append(f"reloaded {len(taken)}, {len(waiting)} wait")

    def draining(self) -> None:
        self.told.append("draining")

    def stopped(self) -> None:
        self.told.append("stopped")


@asynccontextmanager
async def serving(
    directory: Path,
    *,
    store: dict[str, Any] | None = None,
    opener: StoreOpener = open_any,
    wait_ready: bool = True,
    damaged: bool = False,
    sources: Sources | None = None,
    **settings: Any,  # noqa: ANN401 - ServerConfig checks them
) -> AsyncIterator[Served]:
    """A server until the end of the block. It is drained then, its store closed and looked over,
    unless it is one that the test damages on purpose.
    """
    values = {"port": 0, "drain_grace_s": 5.0, **DEFAULTS, **settings}
    config = ServerConfig(data_dir=directory, store={**SMALL_STORE, **(store or {})}, **values)
    listener = EventListener()
    running_settings = RunningSettings(Settings.of(config), sources)
    server = Server(running_settings, opener, [listener])
    if server._fronts is not None:
        server._fronts._start = FrontHere.start
    memory, left = server._edge.memory, private_bytes()
    of_process = memory._private
    memory._private = lambda: max(0, of_process() - left)  # what other tests left is not its own
    running = asyncio.create_task(server.run())

    async def until(event: asyncio.Event) -> None:
        waiter = asyncio.create_task(event.wait())
        await asyncio.wait({waiter, running}, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running

    try:
        await until(listener.is_ready if wait_ready else listener.is_listening)
        options = (("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1))
        async with grpc.aio.insecure_channel(listener.target, options=options) as channel:
            yield Served(
                server,
                listener.target,
                partial(until, listener.is_ready),
                channel,
                kvcq_pb2_grpc.MessageServiceStub(channel),
                kvcq_pb2_grpc.TopicServiceStub(channel),
                kvcq_pb2_grpc.GroupServiceStub(channel),
                kvcq_pb2_grpc.AdminServiceStub(channel),
                shared_groups_pb2_grpc.SharedGroupServiceStub(channel),
                timers_pb2_grpc.TimerServiceStub(channel),
            )
    finally:
        # No call of the test is on its way in any more, so the stop need not wait for one.
        with patch.object(server_module, "DRAIN_NOTICE_S", 0.0):
            server.stop()
            await running
    if not damaged:
        assert_whole(directory)
