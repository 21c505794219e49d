"""The topic field of a record: its length, then its bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from store.format import MAGIC_V1, MAGIC_V2

if TYPE_CHECKING:
    from collections.abc import Sequence

#: A topic longer than this needs a V2 record (RocketMQ: autoMessageVersionOnTopicLen).
_V1_TOPIC_BYTES = 127
#: The length field, by the topic's bytes. No topic is longer, see store/format/limits.py.
_LENGTHS = [size.to_bytes(1 if size <= _V1_TOPIC_BYTES else 2, "big") for size in range(256)]


def topic_field(topic: str) -> tuple[int, bytes]:
    """Magic code and encoded topic field."""
    data = topic.encode()
    return _magic_of(len(data)), _LENGTHS[len(data)] + data


def topic_fields(topics: Sequence[str], behind: bytes) -> tuple[int | list[int], list[bytes]]:
    """`topic_field` of each topic, in columns: a single magic code if all are equal; `behind` is
    appended to each field."""
    names = list(map(str.encode, topics))
    sizes = list(map(len, names))
    lengths = _LENGTHS
    fields = [lengths[size] + name + behind for size, name in zip(sizes, names, strict=True)]
    if max(sizes) <= _V1_TOPIC_BYTES:
        return MAGIC_V1, fields
    return list(map(_magic_of, sizes)), fields


def _magic_of(size: int) -> int:
    return MAGIC_V1 if size <= _V1_TOPIC_BYTES else MAGIC_V2
