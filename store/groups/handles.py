"""Handles: texts that each name one delivery of one message.

Only the nonce of a handle is stored, in the lease, so handles stay valid after a restart.
The nonce is 63 random bits, so other receivers' handles cannot be guessed. The checksum includes
the group, so a damaged handle, or one of another group, is not mistaken for an expired one.

A handle is URL-safe Base64 of a head, which is the same for all messages of a lease, and a tail.
Head: u8 form 1, i64 physical offset where the topic begins (0 for a light queue), i32 queue id, i64
nonce, the topic in UTF-8, zero bytes up to a multiple of three (so Base64 needs no padding). Tail:
i64 queue offset, u32 CRC-32 of the group in UTF-8, a zero byte, the head, and the queue offset.
"""

from __future__ import annotations

import struct
from binascii import Error, a2b_base64, b2a_base64
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple
from zlib import crc32

from store.errors import InvalidArgumentError
from store.groups.limits import MOST_HANDLES
from store.state import NOBODY

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

_FORM = 1
_HEAD = struct.Struct(">Bqiq")
_TAIL = struct.Struct(">qI")
_TAIL_CHARACTERS = 16
_OFFSET = struct.Struct(">q")
_MOST_CHARACTERS = 512
#: Translate between the two Base64 alphabets. `!` makes characters of the wrong one invalid.
_TO_URL = bytes.maketrans(b"+/", b"-_")
_FROM_URL = bytes.maketrans(b"-_+/", b"+/!!")


class Head(NamedTuple):
    """The common part of the handles of one lease."""

    topic: str  # or a light queue
    begins: int  # physical offset from which records are the topic's; 0 for a light queue
    queue_id: int
    nonce: int  # of the lease


class Handles(NamedTuple):
    """The handles of a call that belong to one lease."""

    head: Head
    places: list[int]  # indices among the handles of the call, ascending
    queue_offsets: list[int]  # one for each place


def pack_handles(group: str, head: Head, queue_offsets: Iterable[int]) -> list[str]:
    """Returns a handle for each of the messages."""
    start, seed = _head_text(group, head)
    tail, offset_of = _TAIL.pack, _OFFSET.pack
    tails = b"".join([tail(offset, crc32(offset_of(offset), seed)) for offset in queue_offsets])
    text = b2a_base64(tails, newline=False).translate(_TO_URL).decode()
    size = _TAIL_CHARACTERS
    return [start + text[at : at + size] for at in range(0, len(text), size)]


def unpack_handles(group: str, texts: Sequence[str], field: str) -> list[Handles]:
    """Decode 1 to MOST_HANDLES handles, grouped by head. Raises InvalidArgumentError, naming the
    field and the position, for a handle that was not made for this group."""
    if not 0 < len(texts) <= MOST_HANDLES:
        raise InvalidArgumentError(field, f"{len(texts)} handles, not 1 to {MOST_HANDLES}")
    found: dict[str, Handles] = {}
    tails: dict[str, list[str]] = {}
    for place, text in enumerate(texts):
        is_text = isinstance(text, str) and len(text) <= _MOST_CHARACTERS
        start = text[:-_TAIL_CHARACTERS] if is_text else ""
        handles = found.get(start)
        if handles is None:
            head = _head(group, start)
            if head is None:
                raise _refusal(group, texts, place, field)
            handles = found[start] = Handles(head[0], [], [])
            tails[start] = []
        handles.places.append(place)
        tails[start].append(text[-_TAIL_CHARACTERS:])
    for start, handles in found.items():
        head = _head(group, start)
        assert head is not None, "it was read"
        handles.queue_offsets.extend(_offsets(tails[start], head[1]))
        if len(handles.queue_offsets) < len(handles.places):
            bad = next(at for at, tail in enumerate(tails[start]) if not _offsets([tail], head[1]))
            raise _refusal(group, texts, handles.places[bad], field)
    return list(found.values())


def _offsets(tails: Sequence[str], seed: int) -> list[int]:
    """The queue offsets in the tails; fewer if one is invalid."""
    data = _decoded("".join(tails))
    offset_of = _OFFSET.pack
    if len(data) != len(tails) * _TAIL.size:
        return []
    return [
        offset
        for offset, checksum in _TAIL.iter_unpack(data)
        if offset >= 0 and crc32(offset_of(offset), seed) == checksum
    ]


def _refusal(group: str, texts: Sequence[str], place: int, field: str) -> InvalidArgumentError:
    said = f"{texts[place]!r:.80} is no handle of a message that group {group!r} received"
    return InvalidArgumentError(f"{field}[{place}]", said)


@lru_cache(256)
def _head_text(group: str, head: Head) -> tuple[str, int]:
    """The head as text, and the checksum of everything before the offset."""
    topic, begins, queue_id, nonce = head
    data = _HEAD.pack(_FORM, begins, queue_id, nonce) + topic.encode()
    data += bytes(-len(data) % 3)
    return b2a_base64(data, newline=False).translate(_TO_URL).decode(), _seed(group, data)


@lru_cache(256)
def _head(group: str, text: str) -> tuple[Head, int] | None:
    """The decoded head, and the checksum of everything before the offset; None if it is invalid.
    Does not check that it belongs to the group: the tails do."""
    data = _decoded(text)
    if len(data) < _HEAD.size or data[0] != _FORM:
        return None
    _, begins, queue_id, nonce = _HEAD.unpack_from(data)
    try:
        topic = data[_HEAD.size :].rstrip(b"\0").decode()
    except UnicodeDecodeError:
        return None
    if nonce == NOBODY or queue_id < 0:
        return None
    return Head(topic, begins, queue_id, nonce), _seed(group, data)


def is_handle(group: str, text: str) -> bool:
    """Whether the handle was made for this group. It may have expired."""
    try:
        unpack_handles(group, [text], "handle")
    except InvalidArgumentError:
        return False
    return True


def _decoded(text: str) -> bytes:
    """Decode URL-safe Base64 without padding; empty if it is invalid."""
    if not text.isascii():
        return b""
    try:
        return a2b_base64(text.encode().translate(_FROM_URL), strict_mode=True)
    except Error:
        return b""


def _seed(group: str, head: bytes) -> int:
    return crc32(head, crc32(group.encode() + b"\0"))
