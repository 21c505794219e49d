"""Messages to the wire form of kvcq.v1.Message, without an object for each.

A producer makes one message a microsecond or so. Building a protobuf object for each costs
several times that, so the few fields are written here by hand; tests hold the bytes to what the
generated code reads. A message of a batch is `tag 1, length, fields`; fields may come in any
order. Numbers of the fields are those of kvcq.proto:

| field | name         | written as                          |
|------:|--------------|-------------------------------------|
|     1 | topic        | length and UTF-8                    |
|     2 | queue_id     | varint                              |
|     3 | body         | length and bytes                    |
|     4 | tag          | length and UTF-8                    |
|     5 | keys         | length and UTF-8, each              |
|     6 | light_queues | length and UTF-8, each              |
|     7 | properties   | length and (1: name, 2: value), each |
|     8 | flag         | varint                              |
|     9 | born_time_ms | varint                              |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

_BODY = b"\x1a"
_MESSAGE = b"\x0a"
#: Entries of each cache. A head is about 100 bytes.
_CACHE_LIMIT = 8192
_I32_MAX = (1 << 31) - 1
_U64 = (1 << 64) - 1


def varint(value: int) -> bytes:
    """Base 128, low bits first; a negative number as 64-bit two's complement."""
    if 0 <= value < 0x80:
        return bytes((value,))
    value &= _U64
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _text(number: int, value: str) -> bytes:
    """A text, or bytes, field of the number (below 16)."""
    data = value.encode()
    return bytes((number << 3 | 2,)) + varint(len(data)) + data


def as_bytes(body: object) -> bytes:
    """The body, frozen. Raises TypeError on text: only its owner knows the encoding."""
    if isinstance(body, bytes):
        return body
    if isinstance(body, bytearray | memoryview):
        return bytes(body)
    raise TypeError(f"a body is bytes, not {type(body).__name__}; encode text first")


class MessageEncoder:
    """Makes the bytes around a body. Remembers what repeats: topics, tags and sizes.

    Thread: any; the caches are plain dicts of pure values, so a race costs one more encoding.
    """

    def __init__(self) -> None:
        #: (topic, queue_id, tag, body size) to the bytes before the body, for messages that
        #: have nothing else. A sender may look here first.
        self.heads: dict[tuple[str, int | None, str, int], bytes] = {}
        self._fields: dict[tuple[str, int | None, str], bytes] = {}

    def head(self, topic: str, queue_id: int | None, tag: str, body_bytes: int) -> bytes:
        """Everything before the body of a message that has no further fields."""
        key = (topic, queue_id, tag, body_bytes)
        head = self.heads.get(key)
        if head is None:
            head = self._head(topic, queue_id, tag, body_bytes, 0)
            if len(self.heads) >= _CACHE_LIMIT:
                self.heads.clear()
            self.heads[key] = head
        return head

    def head_and_tail(
        self,
        topic: str,
        queue_id: int | None,
        tag: str,
        body_bytes: int,
        keys: Iterable[str],
        light_queues: Iterable[str],
        properties: Mapping[str, str] | None,
        flag: int,
        born_time_ms: int,
    ) -> tuple[bytes, bytes]:
        """What stands before and behind the body. Raises ValueError, TypeError."""
        tail = _tail(keys, light_queues, properties, flag, born_time_ms)
        return self._head(topic, queue_id, tag, body_bytes, len(tail)), tail

    def _head(
        self, topic: str, queue_id: int | None, tag: str, body_bytes: int, tail_bytes: int
    ) -> bytes:
        key = (topic, queue_id, tag)
        fields = self._fields.get(key)
        if fields is None:
            fields = _text(1, topic)
            if queue_id is not None:
                if not 0 <= queue_id <= _I32_MAX:
                    raise ValueError(f"queue_id {queue_id} is not from 0 to {_I32_MAX}")
                fields += b"\x10" + varint(queue_id)
            if tag:
                fields += _text(4, tag)
            if len(self._fields) >= _CACHE_LIMIT:
                self._fields.clear()
            self._fields[key] = fields
        length = varint(body_bytes)
        size = len(fields) + 1 + len(length) + body_bytes + tail_bytes
        return b"".join((_MESSAGE, varint(size), fields, _BODY, length))


def _tail(
    keys: Iterable[str],
    light_queues: Iterable[str],
    properties: Mapping[str, str] | None,
    flag: int,
    born_time_ms: int,
) -> bytes:
    if isinstance(keys, str) or isinstance(light_queues, str):
        raise TypeError("keys and light_queues are sequences of texts, not one text")
    parts = [_text(5, key) for key in keys]
    for name in light_queues:
        data = name.encode()
        size = len(data)
        # Fan-out writes a hundred of these a message: the short form is spelled out.
        parts.append((b"2%c" % size if size < 0x80 else b"2" + varint(size)) + data)
    for name, value in (properties or {}).items():
        entry = _text(1, name) + _text(2, value)
        parts.append(b"\x3a" + varint(len(entry)) + entry)
    if flag:
        parts.append(b"\x40" + varint(flag))
    if born_time_ms:
        parts.append(b"\x48" + varint(born_time_ms))
    return b"".join(parts)


def put_stream_request(request_id: int, messages: bytes, producer_id: str, sequence: int) -> bytes:
    """A PutStreamRequest around messages that are encoded already."""
    producer = _text(1, producer_id) + (b"\x10" + varint(sequence) if sequence else b"")
    suffix = b"\x12" + varint(len(producer)) + producer
    return b"".join(
        (
            b"\x08" + varint(request_id) if request_id else b"",
            b"\x12" + varint(len(messages) + len(suffix)),
            messages,
            suffix,
        )
    )
