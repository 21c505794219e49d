"""Frames: the messages between a front and the owner of the store on a Unix socket.

| at | size | type | field | meaning                                    |
|---:|-----:|------|-------|--------------------------------------------|
|  0 |    4 | u32  | size  | bytes of the body                          |
|  4 |    1 | u8   | kind  | one of the constants below                 |
|  5 |    4 | u32  | call  | the front's number of the call; 0: none    |
|  9 | size |      | body  |                                            |

Little-endian. Both ends have the same version, since the owner starts the fronts. So frames have no
version, and only these two can write to the socket, a pair that the front inherits.
"""

from __future__ import annotations

import asyncio
import struct
from typing import TYPE_CHECKING, NamedTuple, cast

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sized

_HEADER = struct.Struct("<IBI")
_HEADER_SIZE = _HEADER.size

# About a call, from the front.
OPEN = 1  # a call began: see `Opening`, then its first request if it has arrived
HALF_CLOSED = 2  # its client sends no more requests
WRITTEN = 3  # u32: the connection has taken responses of this many bytes, by `weight_of`
ENDED = 4  # answered, its answer sent, or cancelled by the client. The last frame of a call
# u32: size of a request that is too large for its method; the request is not passed on.
TOO_LARGE = 16
# About a call, in both directions.
MESSAGE = 5  # one request, or one of many responses
# About a call, from the owner.
READ = 6  # one more request may be read
HEADERS = 7  # send the initial metadata, which is empty
RESULT = 8  # the only response; the call went well
STATUS = 9  # the end of a call that did not, or had many responses: see `Ending`
# About the front itself, from the owner.
HELLO = 10  # JSON: what to listen on, and the methods; see fleet.py
STOP = 11  # f64: accept no new calls; running ones may take this many seconds
# About the front itself, from the front.
LISTENING = 12  # u16: the port
LOG = 13  # u8 level, then logger and text, with a line feed between them
# Either way.
CERTIFICATE = 14  # requested with an empty body; JSON, or empty if the last one is still current
ALIVE = 15  # asked by the owner, and answered

#: A socket is read in pieces of this size; a frame that is larger gets a buffer of its own.
BUFFER_BYTES = 256 << 10
#: More is not copied into one piece to be written.
_JOINED_BYTES = 256 << 10
#: Bytes of responses of one call that the owner may have sent and the front has not passed on; plus
#: one response. The edge does not count these bytes either.
WINDOW_BYTES = 64 << 10
_WEIGHT_OF_FRAME = 64


class Metadatum(NamedTuple):
    """An entry of gRPC metadata."""

    key: str
    value: str | bytes


Metadata = tuple[Metadatum, ...]

_OPENING = struct.Struct("<HdBIB")  # method, deadline, bytes of peer and metadata, has request
_ENDING = struct.Struct("<BI")  # code, bytes of the details
_ENTRY = struct.Struct("<HIB")  # bytes of the name, bytes of the value, whether the value is bytes
NUMBER = struct.Struct("<I")
PORT = struct.Struct("<H")
SECONDS = struct.Struct("<d")
#: The deadline of a call without one.
NEVER = float("inf")


class Opening(NamedTuple):
    """How a call begins."""

    method: int  # its place in the list of HELLO
    deadline_s: float  # by time.monotonic, which all processes of a machine share; or NEVER
    peer: str
    metadata: bytes  # made by `pack_metadata`; decoded only when it is needed
    request: bytes | None


class Ending(NamedTuple):
    """How a call ends."""

    code: int
    details: str
    metadata: Metadata


def weight_of(message: Sized) -> int:
    """The response's weight in the window; empty ones count as well."""
    return len(message) + _WEIGHT_OF_FRAME


def pack_opening(
    method: int,
    deadline_s: float,
    peer: str,
    metadata: Iterable[tuple[str, str | bytes]],
    request: bytes | None,
) -> bytes:
    """`metadata`: pairs of a name and a str or bytes."""
    name, pairs = peer.encode()[:255], pack_metadata(metadata)
    sizes = _OPENING.pack(method, deadline_s, len(name), len(pairs), request is not None)
    return b"".join((sizes, name, pairs, request or b""))


def unpack_opening(body: bytes) -> Opening:
    """Inverse of `pack_opening`, except for the metadata."""
    method, deadline_s, peer_size, metadata_size, has_request = _OPENING.unpack_from(body)
    at = _OPENING.size + peer_size
    end = at + metadata_size
    peer = body[_OPENING.size : at].decode(errors="replace")
    return Opening(method, deadline_s, peer, body[at:end], body[end:] if has_request else None)


def pack_ending(ending: Ending) -> bytes:
    details = ending.details.encode()
    return _ENDING.pack(ending.code, len(details)) + details + pack_metadata(ending.metadata)


def unpack_ending(body: bytes) -> Ending:
    """Inverse of `pack_ending`."""
    code, size = _ENDING.unpack_from(body)
    end = _ENDING.size + size
    return Ending(code, body[_ENDING.size : end].decode(), unpack_metadata(body[end:]))


def pack_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> bytes:
    """Pairs of a name and a str or bytes."""
    parts: list[bytes] = []
    for name, value in metadata:
        key = name.encode()
        data = value if isinstance(value, bytes) else value.encode()
        parts += (_ENTRY.pack(len(key), len(data), isinstance(value, bytes)), key, data)
    return b"".join(parts)


def unpack_metadata(data: bytes) -> Metadata:
    """Inverse of `pack_metadata`."""
    found: list[Metadatum] = []
    at = 0
    while at < len(data):
        name_size, value_size, is_bytes = _ENTRY.unpack_from(data, at)
        begin = at + _ENTRY.size + name_size
        name, value = data[at + _ENTRY.size : begin].decode(), data[begin : begin + value_size]
        found.append(Metadatum(name, value if is_bytes else value.decode(errors="replace")))
        at = begin + value_size
    return tuple(found)


class Link(asyncio.BufferedProtocol):
    """One end of the socket. Owned by the event loop's thread.

    Frames sent within one turn of the loop are one write. Nothing is held back here: the calls
    limit what they send, with READ, WRITTEN and the number of places.
    """

    def __init__(
        self,
        taken: Callable[[int, int, bytes], None],
        lost: Callable[[], None],
        *,
        gives_views: bool = False,
    ) -> None:
        """`taken` is called with kind, call and body of each frame; `lost` is called once, at the
        end.

        `gives_views`: a body larger than BUFFER_BYTES is a memoryview of bytes that nothing else
        refers to; gRPC accepts none.
        """
        self._gives_views = gives_views
        self._taken = taken
        self._lost = lost
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._buffer = bytearray(BUFFER_BYTES)
        self._view = memoryview(self._buffer)
        self._held = 0  # bytes of incomplete frames in the buffer
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0

    def send(self, kind: int, call: int = 0, body: bytes = b"") -> None:
        """Send it with the other frames of this turn; ignored once the other end is gone."""
        waiting = self._waiting
        if not waiting:
            self._loop.call_soon(self._flush)
        waiting.append(_HEADER.pack(len(body), kind, call))
        if body:
            waiting.append(body)
            self._waiting_bytes += len(body)

    def close(self) -> None:
        """Flush, then close. `lost` follows."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Close at once. `lost` follows."""
        if self._transport is not None:
            self._transport.abort()

    def _flush(self) -> None:
        waiting, size = self._waiting, self._waiting_bytes
        self._waiting, self._waiting_bytes = [], 0
        if not waiting or self._transport is None or self._transport.is_closing():
            return
        if size <= _JOINED_BYTES:
            self._transport.write(b"".join(waiting))
        else:
            self._transport.writelines(waiting)

    # --- as asyncio calls it ---------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, _: Exception | None) -> None:
        self._lost()

    def get_buffer(self, _: int) -> memoryview:
        return self._view[self._held :]

    def buffer_updated(self, read: int) -> None:
        end, at = self._held + read, 0
        view, taken = self._view, self._taken
        capacity = BUFFER_BYTES
        while end - at >= _HEADER_SIZE:
            size, kind, call = _HEADER.unpack_from(view, at)
            begin = at + _HEADER_SIZE
            if end - begin < size:
                capacity = max(capacity, _HEADER_SIZE + size)
                break
            at = begin + size
            body = view[begin:at]
            # A large one has the buffer for itself, and keeps it: to copy 60 MB takes 30 ms.
            is_large = size > BUFFER_BYTES and self._gives_views
            taken(kind, call, cast("bytes", body) if is_large else bytes(body))
        self._keep(at, end, capacity)

    def _keep(self, at: int, end: int, capacity: int) -> None:
        """Move an incomplete frame to the front of a buffer that has room for all of it."""
        rest = end - at
        if capacity != len(self._buffer):
            buffer = bytearray(capacity)
            buffer[:rest] = self._view[at:end]
            self._buffer, self._view = buffer, memoryview(buffer)
        elif at and rest:
            self._buffer[:rest] = self._buffer[at:end]
        self._held = rest
