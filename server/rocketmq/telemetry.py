"""The stream on which a client tells its settings, and that it is there.

Each settings are answered, also when they come again: a client goes on only then. The stream is
open as long as the client is. When the client ends it the call ends well, and so it does when the
server drains: the client opens another one.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from server.rocketmq.pb import messaging_pb2 as pb
from server.rocketmq.statuses import OK

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable

    from server.rocketmq.pb import values_pb2 as v2
    from server.stage import Stage


async def telemetry(
    commands: AsyncIterator[pb.TelemetryCommand],
    stage: Stage,
    settle: Callable[[v2.Settings], Awaitable[v2.Settings]],
) -> AsyncGenerator[pb.TelemetryCommand, None]:
    """The answers; `settle` gives those to settings. What else a client says answers a question of
    the server's, and there is none."""
    task = asyncio.current_task()
    assert task is not None
    is_reading = False

    def changed() -> None:
        if stage.is_draining and is_reading:
            task.cancel()

    stop_listening = stage.on_change(changed)
    try:
        while True:
            is_reading = True
            try:
                command = await anext(commands, None)
            except asyncio.CancelledError:
                if not stage.is_draining:
                    raise
                task.uncancel()
                return
            finally:
                is_reading = False
            if command is None or stage.is_draining:
                return
            if command.HasField("settings"):
                settled = await settle(command.settings)
                yield pb.TelemetryCommand(status=OK, settings=settled)
    finally:
        stop_listening()
