"""The protocol between the server and a reader process, over a socket pair.

to the reader     u32 length, Order, pickled by our own parent process
    from the reader   READY, once; then for each order an Encoded: bool news, i64 next offset,
                      i64 max offset, i64 given at, i32 messages, i64 cost, i64 length, bytes

An order that cannot be completed is answered with -1 messages and no bytes. One order at a time.
Numbers are big-endian.
"""

from __future__ import annotations

import pickle
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from server.wire import Encoded

if TYPE_CHECKING:
    from kvcq_client.pb.v1 import kvcq_pb2 as pb
    from store.reads import PullPlan

READY = b"\1"
_LENGTH = struct.Struct(">I")
_HEAD = struct.Struct(">?qqqiqq")
_REFUSED = -1  # messages


class LogPlace(NamedTuple):
    """Location of the log's files."""

    directory: str
    segment_bytes: int


class Order(NamedTuple):
    """A response to build."""

    log: LogPlace
    plan: PullPlan
    form: pb.RecordForm
    in_stream: bool  # as a response of a subscription, not of a pull


class LinkEndedError(Exception):
    """The other side is gone, or silent for too long."""


def set_patience(link: socket.socket, seconds: float) -> None:
    """Set a timeout for all reads and writes. `settimeout` is not used, since it would add a poll
    to each call."""
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
    """None if the reader rejected it. Raises OSError."""
    if answer is None:
        link.sendall(_HEAD.pack(False, 0, 0, 0, _REFUSED, 0, 0))  # noqa: FBT003 - a field
        return
    link.sendall(_HEAD.pack(*answer[:-1], len(answer.data)))
    link.sendall(answer.data)


def receive_answer(link: socket.socket) -> Encoded | None:
    """The encoded response; None if the reader rejected the order. Raises LinkEndedError,
    OSError."""
    news, next_offset, max_offset, given_at, count, cost, size = _HEAD.unpack(
        _exactly(link, _HEAD.size)
    )
    if count == _REFUSED:
        return None
    return Encoded(news, next_offset, max_offset, given_at, count, cost, _exactly(link, size))


def is_ready(link: socket.socket) -> bool:
    """Whether the reader accepts orders by now. Does not wait. Raises LinkEndedError, OSError."""
    try:
        if link.recv(1, socket.MSG_DONTWAIT):
            return True
    except BlockingIOError:
        return False
    raise LinkEndedError


def _exactly(link: socket.socket, size: int) -> bytes:
    """Usually one call, which releases the interpreter while the other side writes."""
    data = link.recv(size, socket.MSG_WAITALL) if size else b""
    while len(data) < size:
        more = link.recv(size - len(data), socket.MSG_WAITALL)
        if not more:
            raise LinkEndedError
        data += more
    return data
