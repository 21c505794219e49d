"""Handles: texts that each name one delayed message.

URL-safe Base64 of: u8 form 1, i64 due ms, i64 timer, i64 nonce, the producer's message id in UTF-8,
u32 CRC-32 of the topic in UTF-8, a zero byte, and everything before. The nonce is 63 random bits,
also in the timer's row, so the handle of a message lost in a power loss matches no other. With the
checksum, a damaged handle, or one of another topic, is not mistaken for one that no longer waits.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64encode
from binascii import Error, a2b_base64
from typing import NamedTuple
from zlib import crc32

from store.errors import InvalidArgumentError

_FORM = 1
_HEAD = struct.Struct(">Bqqq")
_CHECKSUM = struct.Struct(">I")
_MOST_CHARACTERS = 1024
_MOST_ID_BYTES = 255
#: Makes `+` and `/`, which only standard Base64 has, invalid.
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


class TimerHandle(NamedTuple):
    """The decoded content of a handle."""

    due_ms: int  # ms since 1970
    timer: int  # its first place, which names it
    nonce: int
    message_id: str  # UNIQ_KEY of the message, or ""


def pack_handle(topic: str, handle: TimerHandle) -> str:
    head = _HEAD.pack(_FORM, *handle[:3])
    data = head + handle.message_id.encode()[:_MOST_ID_BYTES]
    text = urlsafe_b64encode(data + _CHECKSUM.pack(_checksum(topic, data)))
    return text.rstrip(b"=").decode()


def unpack_handle(topic: str, text: str, field: str) -> TimerHandle:
    """Decode a handle. Raises InvalidArgumentError, naming the field, if it was not made for this
    topic."""
    data = _decoded(text) if len(text) <= _MOST_CHARACTERS else b""
    body, checksum = data[: -_CHECKSUM.size], data[-_CHECKSUM.size :]
    if (
        len(body) < _HEAD.size
        or body[0] != _FORM
        or _CHECKSUM.unpack(checksum)[0] != _checksum(topic, body)
    ):
        raise InvalidArgumentError(
            field, f"{text!r:.80} is not the handle of a delayed message of topic {topic!r}"
        )
    _, due_ms, timer, nonce = _HEAD.unpack_from(body)
    return TimerHandle(due_ms, timer, nonce, body[_HEAD.size :].decode(errors="replace"))


def _decoded(text: str) -> bytes:
    """Decode URL-safe Base64; empty if it is invalid."""
    if not text.isascii():
        return b""
    padded = text.encode().translate(_FROM_URL) + b"=" * (-len(text) % 4)
    try:
        return a2b_base64(padded, strict_mode=True)
    except Error:
        return b""


def _checksum(topic: str, data: bytes) -> int:
    return crc32(data, crc32(topic.encode() + b"\0"))
