"""A client that speaks HTTP/2 by hand: it may begin calls and never send them, send and never read,
and take back what it began, all of which a gRPC client does not do."""

from __future__ import annotations

import asyncio
import struct
from contextlib import suppress
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
_DATA, _HEADERS, _RESET, _SETTINGS, _PING, _GOAWAY, _WINDOW = 0, 1, 3, 4, 6, 7, 8
_END_STREAM, _END_HEADERS, _ACK = 1, 4, 1
_CANCEL = 8
_FRAME_BYTES = 16_384
_FIRST_WINDOW = 65_535


def grpc_message(data: bytes) -> bytes:
    """As gRPC frames it."""
    return b"\0" + len(data).to_bytes(4, "big") + data


class RawHttp2:
    """One connection. It sends as the server's windows allow, and never opens one of its own."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._next = 1
        self._first_window = _FIRST_WINDOW
        self._window = _FIRST_WINDOW
        self._windows: dict[int, int] = {}
        self._waiting: dict[int, asyncio.Event] = {}  # for a window, by stream
        self._settings = asyncio.Event()
        #: Status of calls that ended, by stream; "reset" of one that the server took back.
        self.ended: dict[int, str] = {}
        self.is_closed = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    @classmethod
    async def open(cls, target: str) -> RawHttp2:
        """Connected, and greeted."""
        host, port = target.rsplit(":", 1)
        connection = cls(*await asyncio.open_connection(host, int(port)))
        connection._writer.write(_PREFACE)
        connection._frame(_SETTINGS, 0, 0)
        await asyncio.wait_for(connection._settings.wait(), 30)
        return connection

    async def close(self) -> None:
        self._reading.cancel()
        self._writer.transport.abort()
        with suppress(OSError):
            await self._writer.wait_closed()

    def begin(self, path: str, metadata: Sequence[tuple[str, str]] = ()) -> int:
        """A call of which nothing is sent yet; its number."""
        number = self._next
        self._next += 2
        headers = [
            *((":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")),
            *(("te", "trailers"), ("content-type", "application/grpc"), *metadata),
        ]
        block = b"".join(b"\0" + _text(name) + _text(value) for name, value in headers)
        self._windows[number] = self._first_window
        self._frame(_HEADERS, _END_HEADERS, number, block)
        return number

    def reset(self, number: int) -> None:
        """The call is given up."""
        self._frame(_RESET, 0, number, struct.pack(">I", _CANCEL))

    def send_at_once(self, number: int, data: bytes) -> None:
        """All of it, whatever the windows say, and the end of the requests."""
        self._frame(_DATA, _END_STREAM, number, data)

    async def send(self, number: int, data: bytes, *, within_s: float) -> int:
        """As much of it as the server takes in that time; how much."""
        sent = 0
        loop = asyncio.get_running_loop()
        until_s = loop.time() + within_s
        while sent < len(data) and number not in self.ended and not self.is_closed.is_set():
            size = min(self._windows[number], self._window, _FRAME_BYTES, len(data) - sent)
            if size > 0:
                self._frame(_DATA, 0, number, data[sent : sent + size])
                self._windows[number] -= size
                self._window -= size
                sent += size
                if self._writer.transport.get_write_buffer_size() > 1 << 20:
                    await self._writer.drain()
                continue
            opened = self._waiting[number] = asyncio.Event()
            try:
                await asyncio.wait_for(opened.wait(), until_s - loop.time())
            except TimeoutError:
                break
            finally:
                del self._waiting[number]
        return sent

    async def flush(self) -> None:
        await self._writer.drain()

    def _frame(self, kind: int, flags: int, number: int, body: bytes = b"") -> None:
        head = len(body).to_bytes(3, "big") + bytes([kind, flags]) + number.to_bytes(4, "big")
        self._writer.write(head + body)

    async def _read(self) -> None:
        try:
            while True:
                head = await self._reader.readexactly(9)
                size, kind, flags = int.from_bytes(head[:3], "big"), head[3], head[4]
                number = int.from_bytes(head[5:], "big") & 0x7FFF_FFFF
                self._took(kind, flags, number, await self._reader.readexactly(size))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self.is_closed.set()
            self._wake(0)

    def _took(self, kind: int, flags: int, number: int, body: bytes) -> None:
        if kind == _SETTINGS and not flags & _ACK:
            for at in range(0, len(body), 6):
                name, value = struct.unpack_from(">HI", body, at)
                if name == 4:
                    for each in self._windows:
                        self._windows[each] += value - self._first_window
                    self._first_window = value
            self._frame(_SETTINGS, _ACK, 0)
            self._settings.set()
        elif kind == _PING and not flags & _ACK:
            self._frame(_PING, _ACK, 0, body)
        elif kind == _WINDOW:
            [more] = struct.unpack(">I", body)
            if number == 0:
                self._window += more
            elif number in self._windows:
                self._windows[number] += more
            self._wake(number)
        elif kind == _RESET:
            self.ended[number] = "reset"
            self._wake(number)
        elif kind == _HEADERS and flags & _END_STREAM:
            self.ended[number] = "ended"
            self._wake(number)

    def _wake(self, number: int) -> None:
        """Who waits for a window of that stream; 0: for any."""
        for stream, opened in self._waiting.items():
            if number in (0, stream):
                opened.set()


def _text(text: str) -> bytes:
    """A literal of HPACK, not compressed."""
    data = text.encode()
    if len(data) < 127:
        return bytes([len(data)]) + data
    rest, more = len(data) - 127, b""
    while rest >= 128:
        more += bytes([rest & 127 | 128])
        rest >>= 7
    return b"\x7f" + more + bytes([rest]) + data
