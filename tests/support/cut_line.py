"""A TCP line to a server that a test can cut, at any byte of either direction."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


class CutLine:
    """Passes bytes on. `cut()` breaks all connections; new ones are taken again."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._peer = (host, int(port))
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        #: Cut when so many more bytes of answers have passed; None: never.
        self.cut_after_answer_bytes: int | None = None
        self.cuts = 0
        self._accepting = True
        self._connections = 0
        self._held: int | None = None
        self._released = asyncio.Event()
        #: Set when an answer is held.
        self.holds = asyncio.Event()

    @property
    def target(self) -> str:
        assert self._server is not None
        port = self._server.sockets[0].getsockname()[1]
        return f"127.0.0.1:{port}"

    def stop_accepting(self) -> None:
        """New connections are broken at once; those that are there go on."""
        self._accepting = False

    def accept_again(self) -> None:
        """New connections are taken."""
        self._accepting = True

    def hold_newest(self) -> None:
        """The answers on the newest connection wait, until `release`."""
        self._held = self._connections
        self.holds.clear()
        self._released.clear()

    def release(self) -> None:
        """What was held goes on."""
        self._held = None
        self._released.set()

    def cut(self) -> None:
        """Break every connection, without a word."""
        self.cuts += 1
        for writer in tuple(self._writers):
            writer.transport.abort()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if not self._accepting:
            writer.transport.abort()
            return
        try:
            peer_reader, peer_writer = await asyncio.open_connection(*self._peer)
        except OSError:
            writer.transport.abort()
            return
        self._writers |= {writer, peer_writer}
        self._connections += 1
        number = self._connections
        for source, sink, is_answer in (
            (reader, peer_writer, False),
            (peer_reader, writer, True),
        ):
            task = asyncio.create_task(self._pass_on(number, source, sink, is_answer=is_answer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pass_on(
        self,
        number: int,
        source: asyncio.StreamReader,
        sink: asyncio.StreamWriter,
        *,
        is_answer: bool,
    ) -> None:
        with suppress(OSError):
            while data := await source.read(1 << 14):
                if is_answer and number == self._held:
                    self.holds.set()
                    await self._released.wait()
                if is_answer and self.cut_after_answer_bytes is not None:
                    self.cut_after_answer_bytes -= len(data)
                    if self.cut_after_answer_bytes < 0:
                        self.cut_after_answer_bytes = None
                        self.cut()
                        return
                sink.write(data)
                await sink.drain()
        sink.transport.abort()
        self._writers.discard(sink)

    async def __aenter__(self) -> CutLine:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()
        self.release()
        self.cut()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()
