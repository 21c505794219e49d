"""The stream on which a client tells its settings, and on which it is told things unasked.

Each settings are answered, also when they come again: a client goes on only then. The stream is
open as long as the client is. When the client ends it the call ends well, and so it does when the
server drains: the client opens another one.

Whatever is said on a stream goes through its outbox, in order: answers to settings, and what the
server says by itself. So one writer writes, and who does not read holds up nobody but itself: its
outbox is full soon, its settings are not read any more, and it is told nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.statuses import OK

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Iterable,
        Iterator,
    )

    from server.rocketmq.clients import ClientKey
    from server.rocketmq.pb import values_pb2 as v2
    from server.stage import Stage

#: Commands of one stream that its client has not taken.
MOST_WAITING = 16


class Outbox:
    """What waits to be written on one stream. Owned by the event loop's thread."""

    __slots__ = ("_changed", "_is_ended", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[pb.TelemetryCommand] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False

    def say(self, command: pb.TelemetryCommand) -> bool:
        """Write it soon; False: nothing is taken any more, or too much waits already."""
        if self._is_ended or len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append(command)
        self._changed.set()
        return True

    async def answer(self, command: pb.TelemetryCommand) -> None:
        """The same, once there is room."""
        while not self.say(command):
            self._changed.clear()
            await self._changed.wait()

    async def hand_over(self, command: pb.TelemetryCommand) -> bool:
        """Whether it is on its way: the stream's writer took it. False at once, or later when the
        stream ended meanwhile."""
        if not self.say(command):
            return False
        while any(each is command for each in self._waiting):
            if self._is_ended:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    def end(self) -> None:
        """Nothing more comes."""
        self._is_ended = True
        self._changed.set()

    async def take(self) -> pb.TelemetryCommand | None:
        """The next one to write; None: there will be none."""
        while not self._waiting:
            if self._is_ended:
                return None
            self._changed.clear()
            await self._changed.wait()
        command = self._waiting.popleft()
        self._changed.set()  # there is room
        return command


class Streams:
    """The open stream of each client. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._outboxes: dict[ClientKey, Outbox] = {}

    def tell(self, client: ClientKey, command: pb.TelemetryCommand) -> bool:
        """Say it to the client; False: it has no stream, or does not read it."""
        outbox = self._outboxes.get(client)
        return outbox is not None and outbox.say(command)

    async def tell_each(self, client: ClientKey, commands: Iterable[pb.TelemetryCommand]) -> None:
        """Say them to the client, each when it took the one before; the first that it does not
        take is the last."""
        outbox = self._outboxes.get(client)
        for command in commands:
            if outbox is None or not await outbox.hand_over(command):
                return

    @contextmanager
    def open(self, client: ClientKey) -> Iterator[Outbox]:
        """The client has a stream until the end of the block; a later one takes its place."""
        outbox = self._outboxes[client] = Outbox()
        try:
            yield outbox
        finally:
            if self._outboxes.get(client) is outbox:
                del self._outboxes[client]


async def telemetry(
    commands: AsyncIterator[pb.TelemetryCommand],
    stage: Stage,
    settle: Callable[[v2.Settings], Awaitable[v2.Settings]],
    outbox: Outbox,
) -> AsyncGenerator[pb.TelemetryCommand, None]:
    """What is written; `settle` gives the answer to settings. Raises what it raises. What else a
    client says answers a question of the server's, and none is asked that has one."""

    async def read() -> None:
        async for command in commands:
            if command.HasField("settings"):
                settled = await settle(command.settings)
                await outbox.answer(pb.TelemetryCommand(status=OK, settings=settled))

    reader = asyncio.create_task(read(), name="telemetry")
    # Not at the end of `read`: a task that is cancelled before its first step never gets there.
    reader.add_done_callback(lambda _: outbox.end())

    def changed() -> None:
        if stage.is_draining:
            reader.cancel()

    stop_listening = stage.on_change(changed)
    changed()
    try:
        while (command := await outbox.take()) is not None:
            yield command
        await asyncio.wait({reader})
        if not reader.cancelled():
            reader.result()
    finally:
        stop_listening()
        reader.cancel()
        await asyncio.wait({reader})
