"""Ids of transactions: texts that each name one half.

URL-safe Base64 without padding: u8 form 1, i64 half, i64 nonce, the topic in UTF-8, u32 CRC-32 of
all that. The nonce is 63 random bits, also in the half's row, so ids of other callers' transactions
cannot be guessed. With the topic, rights can be checked before the row is read; the row's topic
must be the same.
"""

from __future__ import annotations

import struct
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error
from typing import NamedTuple
from zlib import crc32

from store.errors import InvalidArgumentError

_FORM = 1
_HEAD = struct.Struct(">Bqq")
_CRC = struct.Struct(">I")
_MOST_CHARACTERS = 512


class Named(NamedTuple):
    """The decoded content of an id."""

    half: int
    nonce: int
    topic: str  # where a commit puts the message


def pack_transaction_id(half: int, nonce: int, topic: str) -> str:
    data = _HEAD.pack(_FORM, half, nonce) + topic.encode()
    return urlsafe_b64encode(data + _CRC.pack(crc32(data))).rstrip(b"=").decode()


def unpack_transaction_id(text: str, field: str = "transaction_id") -> Named:
    """Decode an id. Raises InvalidArgumentError if it is malformed or damaged."""
    try:
        if not text or len(text) > _MOST_CHARACTERS:
            raise ValueError
        data = urlsafe_b64decode(text.encode("ascii") + b"=" * (-len(text) % 4))
        body, (checksum,) = data[: -_CRC.size], _CRC.unpack(data[-_CRC.size :])
        form, half, nonce = _HEAD.unpack_from(body)
        named = Named(half, nonce, body[_HEAD.size :].decode())
        if form != _FORM or half < 0 or crc32(body) != checksum:
            raise ValueError
        if pack_transaction_id(*named) != text:
            raise ValueError
    except (ValueError, Error, struct.error):
        raise InvalidArgumentError(field, f"{text!r:.80} is not the id of a transaction") from None
    return named
