"""What passes between the server and a reader process, over a pair of sockets.

    to the reader     u32 length, Order, pickled: it is our own parent that writes it
    from the reader   READY, once; then for each order i32 messages, i64 cost, i64 length, bytes

A front of the caller gets the same orders, see server/fronts/frames.py.

An order that cannot be done whole is answered with -1 messages and no bytes. One order is under
way at a time. Numbers are big-endian.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import NamedTuple, Protocol

from kvcq_client.pb.v1 import kvcq_pb2 as pb
from server.encoded import Encoded
from store.reads import PullPlan  # noqa: TC001 - pickle finds it by name

READY = b"\1"
_LENGTH = struct.Struct(">I")
_HEAD = struct.Struct(">iqq")
_REFUSED = -1


#: More than this is read and encoded in a thread: the loop must not stand still for so long.
#: A decoded message takes about 15 microseconds, a whole record a tenth of one.
INLINE_BYTES = 4 << 20
INLINE_WHOLE_MESSAGES = 2048
INLINE_DECODED_MESSAGES = 256
#: Of all their properties, and topics. One property may have 4 bytes; it takes 0.5 us to decode.
INLINE_PROPERTIES_BYTES = 48 << 10


class LogPlace(NamedTuple):
    """Where the files of the log are."""

    directory: str
    segment_bytes: int


class Order(NamedTuple):
    """One answer to be made."""

    log: LogPlace
    plan: PullPlan
    form: pb.RecordForm
    in_stream: bool  # as a response of a subscription, not of a pull

    @property
    def takes_long(self) -> bool:
        """Whether it may keep a loop for long; of what records hold, the most is assumed."""
        count, size = len(self.plan.places), self.plan.size_bytes
        if self.form == pb.RECORD_FORM_WHOLE:
            return count > INLINE_WHOLE_MESSAGES or size > INLINE_BYTES
        return count > INLINE_DECODED_MESSAGES or size > INLINE_PROPERTIES_BYTES


class FrontReads(Protocol):
    """The front of a caller, as what reads for it: server.fronts has it."""

    async def carry_out(self, order: Order) -> Encoded | None:
        """The answer, which the front holds until it is sent; None: it cannot make it."""


def front_of(context: object) -> FrontReads | None:
    """Of the call with that context. None: it came to this process itself."""
    front: FrontReads | None = getattr(context, "front", None)
    return front


class LinkEndedError(Exception):
    """The other side is gone, or silent for too long."""


def set_patience(link: socket.socket, seconds: float) -> None:
    """Nothing is waited for longer. Not `settimeout`: that would make each call a poll as well."""
    limit = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
    link.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
    link.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)


def send_order(link: socket.socket, order: Order) -> None:
    """Raises OSError."""
    data = pickle.dumps(order, pickle.HIGHEST_PROTOCOL)
    link.sendall(_LENGTH.pack(len(data)) + data)


def receive_order(link: socket.socket) -> Order:
    """Raises LinkEndedError, OSError."""
    [size] = _LENGTH.unpack(_exactly(link, _LENGTH.size))
    order: Order = pickle.loads(_exactly(link, size))
    return order


def send_answer(link: socket.socket, answer: Encoded | None) -> None:
    """None: refused. Raises OSError."""
    if answer is None:
        link.sendall(_HEAD.pack(_REFUSED, 0, 0))
        return
    assert isinstance(answer.data, bytes), "it was made here"
    link.sendall(_HEAD.pack(answer.message_count, answer.cost_bytes, len(answer.data)))
    link.sendall(answer.data)


def receive_answer(link: socket.socket) -> Encoded | None:
    """None: refused. Raises LinkEndedError, OSError."""
    count, cost_bytes, size = _HEAD.unpack(_exactly(link, _HEAD.size))
    if count == _REFUSED:
        return None
    return Encoded(count, cost_bytes, _exactly(link, size))


def is_ready(link: socket.socket) -> bool:
    """Whether the reader takes orders by now. Does not wait. Raises LinkEndedError, OSError."""
    try:
        if link.recv(1, socket.MSG_DONTWAIT):
            return True
    except BlockingIOError:
        return False
    raise LinkEndedError


def _exactly(link: socket.socket, size: int) -> bytes:
    """In one call as a rule, without the interpreter while the other side writes."""
    data = link.recv(size, socket.MSG_WAITALL) if size else b""
    while len(data) < size:
        more = link.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise LinkEndedError
        data += more
    return data
