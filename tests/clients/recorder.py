"""Writes down what a client of RocketMQ and a server say to each other, byte by byte.

It stands between the two as a server that knows no message: each call is passed on as it comes.
"""

from __future__ import annotations

import asyncio
import threading
from typing import TYPE_CHECKING, Any

import grpc

from server.rocketmq import SERVICE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

#: Headers that say who calls and how, and not when.
_KEPT = ("x-mq-client-id", "x-mq-language", "x-mq-protocol", "x-mq-client-version")


class Recorder:
    """Passes calls on to `target` until it is closed.

    `calls` has them in the order in which they were answered, so that each comes behind what its
    answer needed; streams of telemetry in the order in which they began."""

    def __init__(self, target: str) -> None:
        self.calls: list[dict[str, Any]] = []
        self.port = 0
        self._target = target
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._stop = asyncio.Event()
        self._thread = threading.Thread(target=self._loop.run_until_complete, args=(self._run(),))
        self._thread.start()
        self._is_up.wait()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join()

    async def _run(self) -> None:
        server = grpc.aio.server()
        async with grpc.aio.insecure_channel(self._target) as channel:
            handlers = {
                name: grpc.stream_stream_rpc_method_handler(self._passing(channel, name))
                for name in SERVICE.methods_by_name
            }
            server.add_generic_rpc_handlers(
                (grpc.method_handlers_generic_handler(SERVICE.full_name, handlers),)
            )
            self.port = server.add_insecure_port("127.0.0.1:0")
            await server.start()
            self._is_up.set()
            await self._stop.wait()
            await server.stop(1)

    def _passing(self, channel: grpc.aio.Channel, name: str) -> Any:  # noqa: ANN401 - a handler
        method: Any = channel.stream_stream(f"/{SERVICE.full_name}/{name}", None, None)

        async def passed(requests: AsyncIterator[bytes], context: Any) -> AsyncIterator[bytes]:  # noqa: ANN401
            metadata = [
                (key, value)
                for key, value in context.invocation_metadata()
                if key.startswith("x-mq-") or key == "authorization"
            ]
            call: dict[str, Any] = {
                "rpc": name,
                "metadata": {key: value for key, value in metadata if key in _KEPT},
                "requests": [],
                "responses": [],
            }
            if name == "Telemetry":
                self.calls.append(call)

            async def asked() -> AsyncIterator[bytes]:
                async for request in requests:
                    call["requests"].append(request.hex())
                    yield request

            remaining_s = context.time_remaining()
            answers = method(asked(), metadata=metadata, timeout=remaining_s)
            async for answer in answers:
                call["responses"].append(answer.hex())
                yield answer
            if name != "Telemetry":
                self.calls.append(call)

        return passed
