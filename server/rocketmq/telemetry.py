"""The stream on which a client sends its settings, and on which the server sends it commands.

All settings are answered, also repeated ones, because a client only continues then. The stream is
open as long as the client is. When the client ends it, or the server drains, the call ends with OK;
in the second case the client opens another one.

Everything sent on a stream goes through its outbox, in order: answers to settings, and the server's
own commands. So there is a single writer, and a client that does not read only affects itself: its
outbox fills up, its settings are not read any more, and it gets no commands.
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
        """Queue the command; False if the stream has ended, or too much is waiting."""
        if self._is_ended or len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append(command)
        self._changed.set()
        return True

    async def answer(self, command: pb.TelemetryCommand) -> None:
        """Like `say`, but wait for room."""
        while not self.say(command):
            self._changed.clear()
            await self._changed.wait()

    async def hand_over(self, command: pb.TelemetryCommand) -> bool:
        """Whether the stream's writer took the command. False immediately, or later if the stream
        ended meanwhile."""
        if not self.say(command):
            return False
        while any(each is command for each in self._waiting):
            if self._is_ended:
                return False
            self._changed.clear()
            await self._changed.wait()
        return True

    def end(self) -> None:
        """No more commands follow."""
        self._is_ended = True
        self._changed.set()

    async def take(self) -> pb.TelemetryCommand | None:
        """The next command to write; None at the end."""
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
        """Send it to the client; False if it has no stream, or does not read it."""
        outbox = self._outboxes.get(client)
        return outbox is not None and outbox.say(command)

    async def tell_each(self, client: ClientKey, commands: Iterable[pb.TelemetryCommand]) -> None:
        """Send the commands to the client, each after it took the one before; stops at the first
        that it does not take."""
        outbox = self._outboxes.get(client)
        for command in commands:
            if outbox is None or not await outbox.hand_over(command):
                return

    @contextmanager
    def open(self, client: ClientKey) -> Iterator[Outbox]:
        """Open a stream for the client until the end of the block; a later one replaces it."""
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
    """Yield what to write; `settle` returns the answer to settings. Raises what it raises. Other
    messages of a client answer questions that the server never asks."""

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
