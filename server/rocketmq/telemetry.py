"""The stream on which a client sends its settings, and the server sends it commands.

Every settings message is answered, repeated ones too, because the client waits for the answer. The
stream is open as long as the client runs. The call ends with OK when the client ends it, or when
the server drains; after a drain the client opens another stream.

Answers and commands go through the stream's outbox, in order, so there is a single writer. If a
client does not read, its outbox fills up; then the server reads no more of its settings, and drops
commands to it.
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

#: Most commands in the outbox of one stream.
MOST_WAITING = 16


class Outbox:
    """Commands that wait to be written on one stream. Owned by the event loop's thread."""

    __slots__ = ("_changed", "_is_ended", "_waiting")

    def __init__(self) -> None:
        self._waiting: deque[pb.TelemetryCommand] = deque()
        self._changed = asyncio.Event()
        self._is_ended = False

    def say(self, command: pb.TelemetryCommand) -> bool:
        """Queue the command; False if the stream has ended or the outbox is full."""
        if self._is_ended or len(self._waiting) >= MOST_WAITING:
            return False
        self._waiting.append(command)
        self._changed.set()
        return True

    async def answer(self, command: pb.TelemetryCommand) -> None:
        """Like `say`, but waits until the outbox has room."""
        while not self.say(command):
            self._changed.clear()
            await self._changed.wait()

    async def hand_over(self, command: pb.TelemetryCommand) -> bool:
        """Queue the command, and wait until the stream's writer takes it. False if it was not
        queued, or the stream ended meanwhile."""
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
        self._changed.set()  # the outbox has room
        return command


class Streams:
    """The open stream of each client. Owned by the event loop's thread."""

    def __init__(self) -> None:
        self._outboxes: dict[ClientKey, Outbox] = {}

    def tell(self, client: ClientKey, command: pb.TelemetryCommand) -> bool:
        """Send the command to the client; False if it has no stream, or its outbox is full."""
        outbox = self._outboxes.get(client)
        return outbox is not None and outbox.say(command)

    async def tell_each(self, client: ClientKey, commands: Iterable[pb.TelemetryCommand]) -> None:
        """Send the commands one after the other, each once the stream's writer took the previous
        one. Stops at the first that is not taken."""
        outbox = self._outboxes.get(client)
        for command in commands:
            if outbox is None or not await outbox.hand_over(command):
                return

    @contextmanager
    def open(self, client: ClientKey) -> Iterator[Outbox]:
        """Register a stream of the client until the end of the block. A later one replaces it."""
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
    """Yield the commands to write. `settle` returns the answer to settings; what it raises is
    raised. Other messages of the client are ignored: the server does not request them."""

    async def read() -> None:
        async for command in commands:
            if command.HasField("settings"):
                settled = await settle(command.settings)
                await outbox.answer(pb.TelemetryCommand(status=OK, settings=settled))

    reader = asyncio.create_task(read(), name="telemetry")
    # Not in `read`: a task that is cancelled before its first step would not reach it.
    reader.add_done_callback(lambda _: outbox.end())

    def changed() -> None:
        if stage.is_draining:
            reader.cancel()

    stop_listening = stage.on_change(changed)
    changed()
    try:
        while (command := await outbox.take()) is not None:
            yield command
        if not reader.cancelled():  # it is done: it is what ends the outbox
            reader.result()
    finally:
        stop_listening()
        if not reader.done():  # thousands may leave at once: no turn of the loop for nothing
            reader.cancel()
            await asyncio.wait({reader})
