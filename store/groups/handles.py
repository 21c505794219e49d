"""Handles: which delivery of which message somebody speaks of, as text.

Nothing of a handle is kept but its nonce, in the lease: so it is good after a restart as before.
The nonce is of 63 random bits: nobody guesses that of another receiver. The checksum is over the
group as well: a handle of another group, or a damaged one, is told from one that came too late.

Base64 for URLs, without padding, of: u8 form 1, i64 physical offset where the topic begins (0 for
a light queue), i32 queue id, i64 queue offset, i64 nonce, the topic in UTF-8, u32 CRC-32 of the
group in UTF-8, a zero byte, and what is before.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64
from functools import lru_cache
from typing import NamedTuple
from zlib import crc32

from store.errors import InvalidArgumentError
from store.state import NOBODY

_FORM = 1
_HEAD = struct.Struct(">Bqiqq")
_CHECKSUM = struct.Struct(">I")
_MOST_CHARACTERS = 512
#: Between the two alphabets of Base64; a character of the other one is of neither.
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


class Handle(NamedTuple):
    """One delivery."""

    topic: str  # or a light queue
    begins: int  # physical offset from which records are the topic's; 0 for a light queue
    queue_id: int
    queue_offset: int
    nonce: int  # of its lease


def pack_handle(group: str, handle: Handle) -> str:
    topic, *numbers = handle
    data = _HEAD.pack(_FORM, *numbers) + topic.encode()
    text = b2a_base64(data + _checksum(group, data), newline=False)
    return text.translate(_TO_URL).rstrip(b"=").decode()


def unpack_handle(group: str, text: str, field: str) -> Handle:
    """Raises InvalidArgumentError with that field for what was not made for this group."""
    data = _decoded(text)
    checksum = data[-_CHECKSUM.size :]
    data = data[: -_CHECKSUM.size]
    if len(data) < _HEAD.size or checksum != _checksum(group, data) or data[0] != _FORM:
        raise InvalidArgumentError(
            field, f"{text[:80]!r} is no handle of a message that group {group!r} received"
        )
    _, begins, queue_id, offset, nonce = _HEAD.unpack_from(data)
    if nonce == NOBODY or offset < 0 or queue_id < 0:
        raise InvalidArgumentError(field, f"{text[:80]!r} names no delivery")
    return Handle(data[_HEAD.size :].decode(), begins, queue_id, offset, nonce)


def _decoded(text: str) -> bytes:
    """What the text stands for; nothing, where it is no Base64 for URLs."""
    if not isinstance(text, str) or len(text) > _MOST_CHARACTERS or not text.isascii():
        return b""
    padded = text.encode().translate(_FROM_URL) + b"=" * (-len(text) % 4)
    try:
        return a2b_base64(padded, strict_mode=True)
    except Error:
        return b""


def _checksum(group: str, data: bytes) -> bytes:
    return _CHECKSUM.pack(crc32(data, _seed(group)))


@lru_cache(256)
def _seed(group: str) -> int:
    return crc32(group.encode() + b"\0")
