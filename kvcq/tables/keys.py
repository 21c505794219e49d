"""Row keys, one table for each family. Packed keys sort by their fields, in table order.

Units (family `default`): 19 + T bytes

| size | type | field        | meaning                              |
|-----:|------|--------------|--------------------------------------|
|    4 | i32  | topic_length | T, bytes                             |
|    1 | 01   |              |                                      |
|    T | text | topic        | a light queue's name for light queues |
|    1 | 01   |              |                                      |
|    4 | i32  | queue_id     | 0 for light queues                   |
|    1 | 01   |              |                                      |
|    8 | i64  | queue_offset |                                      |

Bounds (family `offset`): 14 + T bytes

| size | type | field        | meaning                              |
|-----:|------|--------------|--------------------------------------|
|    4 | i32  | topic_length | T                                    |
|    1 | 01   |              |                                      |
|    T | text | topic        |                                      |
|    1 | 01   |              |                                      |
|    3 | text | marker       | `max`; RocketMQ also writes `min`    |
|    1 | 01   |              |                                      |
|    4 | i32  | queue_id     |                                      |

Two bounds rows are no queue's: topic CHECKPOINT_TOPIC, queue 0 is the dispatch point, queue 1
the number of the last topic deletion. Their values are 8 bytes, a queue's are 16.

Key index (family `index`): 28 + T + K bytes

| size | type | field           | meaning                           |
|-----:|------|-----------------|-----------------------------------|
|    4 | i32  | topic_length    | T                                 |
|    1 | 01   |                 |                                   |
|    T | text | topic           |                                   |
|    1 | 01   |                 |                                   |
|    4 | i32  | key_length      | K                                 |
|    1 | 01   |                 |                                   |
|    K | text | key             | the whole message key, no hash    |
|    1 | 01   |                 |                                   |
|    8 | i64  | store_time_ms   | so that a time range is a key range |
|    8 | i64  | physical_offset |                                   |

The key of a numbered batch (store/format/batch_mark.py) has no topic, T is 0: it outlives all
topics.

Big-endian. Source of the first two: RocketMQ 5, RocksDBConsumeQueueTable and
RocksDBConsumeQueueOffsetTable; the third is ours.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from store.format import ITEM_END, is_mark

if TYPE_CHECKING:
    from collections.abc import Sequence

UNITS = "default"
BOUNDS = "offset"
INDEX = "index"
#: Rows of store/state/rows.py.
STATE = "state"
FAMILIES = (UNITS, BOUNDS, INDEX)

_I32 = struct.Struct(">i")
_I64 = struct.Struct(">q")
_TIME_AND_OFFSET = struct.Struct(">qq")
_INDEX_END = struct.Struct(">cqq")  # separator, store_time_ms, physical_offset

#: Places in keys of units and of the index. The last two: and the topic's bytes.
TOPIC_AT = 5
NUMBER_AT = TOPIC_AT + 1  # queue id, or length of the message key
REST_AT = NUMBER_AT + 5
#: Bytes at the end: queue offset or physical offset, and before that one the store time.
OFFSET_BYTES = 8
TIME_AND_OFFSET_BYTES = _TIME_AND_OFFSET.size
#: A key without its texts.
UNIT_KEY_BYTES = REST_AT + OFFSET_BYTES
INDEX_KEY_BYTES = REST_AT + 1 + TIME_AND_OFFSET_BYTES

pack_i64 = _I64.pack
_MARK_BYTE = ord(ITEM_END)

_SEPARATOR = b"\x01"
_AFTER = b"\x02"
_MAX = b"max"


class _LengthParts(dict[int, bytes]):
    """The encoded lengths of names, computed once."""

    def __missing__(self, length: int) -> bytes:
        return _I32.pack(length) + _SEPARATOR


LENGTH_PARTS = _LengthParts((n, _I32.pack(n) + _SEPARATOR) for n in range(256))


@lru_cache(maxsize=4096)
def queue_parts(queue_id: int) -> tuple[bytes, bytes]:
    """The part of the queue's unit keys between topic and offset, and the part of its max key after
    the topic."""
    packed = _I32.pack(queue_id)
    return (
        _SEPARATOR + packed + _SEPARATOR,
        _SEPARATOR + _MAX + _SEPARATOR + packed,
    )


def name_part(name: str) -> bytes:
    """Encoded length and name of a topic or light queue. For a light queue, `LIGHT_UNIT` and the
    offset follow, or `LIGHT_MAX`."""
    data = name.encode()
    return LENGTH_PARTS[len(data)] + data


def topic_prefix(topic: str) -> bytes:
    """The prefix of all keys of the topic, in all three families."""
    return name_part(topic) + _SEPARATOR


_known_prefix = lru_cache(maxsize=4096)(topic_prefix)
#: Prefix of the index rows of numbered batches.
NO_TOPIC = topic_prefix("")


def topic_range(topic: str) -> tuple[bytes, bytes]:
    """Start and exclusive end of all keys of the topic, in each family."""
    prefix = topic_prefix(topic)
    return prefix, prefix[:-1] + _AFTER


def unit_prefix(topic: str, queue_id: int) -> bytes:
    """The prefix of a queue's unit keys; append `pack_i64(queue_offset)`."""
    return topic_prefix(topic) + _I32.pack(queue_id) + _SEPARATOR


def unit_key(topic: str, queue_id: int, queue_offset: int) -> bytes:
    return unit_prefix(topic, queue_id) + _I64.pack(queue_offset)


def unpack_unit_key(key: bytes) -> tuple[str, int, int]:
    """Topic, queue id, queue offset."""
    length = _I32.unpack_from(key)[0]
    return (
        key[TOPIC_AT : TOPIC_AT + length].decode(),
        _I32.unpack_from(key, NUMBER_AT + length)[0],
        _I64.unpack_from(key, REST_AT + length)[0],
    )


def queue_offset_of(key: bytes) -> int:
    """Queue offset at the end of a unit key."""
    return int.from_bytes(key[-OFFSET_BYTES:], "big")


def max_key(topic: str, queue_id: int) -> bytes:
    return name_part(topic) + queue_parts(queue_id)[1]


def max_keys(queues: Sequence[tuple[str, int]]) -> list[bytes]:
    """`max_key` of each queue, faster."""
    light_max = LIGHT_MAX
    return [
        LENGTH_PARTS[len(data := topic.encode())]
        + data
        + (queue_parts(queue_id)[1] if queue_id else light_max)
        for topic, queue_id in queues
    ]


def queue_keys(topic: str, queue_id: int) -> tuple[bytes, bytes]:
    """`unit_prefix` and `max_key` of one queue, at the cost of one."""
    data = topic.encode()
    topic_part = LENGTH_PARTS[len(data)] + data
    unit_part, max_part = queue_parts(queue_id)
    return topic_part + unit_part, topic_part + max_part


#: Queue id 0, as the keys of a light queue have it after its name.
LIGHT_UNIT, LIGHT_MAX = queue_parts(0)


def max_range(topic: str) -> tuple[bytes, bytes]:
    """Start and exclusive end of the `max` rows of all queues of the topic."""
    prefix = topic_prefix(topic) + _MAX
    return prefix + _SEPARATOR, prefix + _AFTER


def unpack_bounds_key(key: bytes) -> tuple[str, str, int]:
    """Topic, marker, queue id."""
    length = _I32.unpack_from(key)[0]
    return (
        key[TOPIC_AT : TOPIC_AT + length].decode(),
        key[NUMBER_AT + length : NUMBER_AT + len(_MAX) + length].decode(),
        _I32.unpack_from(key, 10 + length)[0],
    )


def name_range(prefix: str, length: int) -> tuple[bytes, bytes]:
    """Bounds rows of names of exactly `length` bytes that begin with `prefix`."""
    start = _I32.pack(length) + _SEPARATOR + prefix.encode()
    return start, start[:-1] + bytes([start[-1] + 1])


DISPATCHED_KEY = max_key("CHECKPOINT_TOPIC", 0)
#: Programs before format 2 counted deletions there.
DELETIONS_KEY = max_key("CHECKPOINT_TOPIC", 1)


def is_end_of_queue(key: bytes) -> bool:
    """Whether a row of bounds is the end of a queue."""
    return key not in (DISPATCHED_KEY, DELETIONS_KEY) and unpack_bounds_key(key)[1] == "max"


def index_prefix(topic: str, key: str) -> bytes:
    """The prefix of the index rows of one message key."""
    data = key.encode()
    start = NO_TOPIC if is_mark(key) else topic_prefix(topic)
    return start + _I32.pack(len(data)) + _SEPARATOR + data + _SEPARATOR


def marks_range(key: str) -> tuple[bytes, bytes]:
    """Start and exclusive end of the rows of one producer's batches below the one of `key`."""
    data = key.encode()
    name = data[: data.rindex(b":") + 1]
    start = NO_TOPIC + _I32.pack(len(data)) + _SEPARATOR
    return start + name, start + data


def index_keys_of(
    topic: str, keys: Sequence[str], store_time_ms: int, physical_offset: int
) -> list[bytes]:
    """The index key of each of a record's keys."""
    prefix = _known_prefix(topic)
    end = _INDEX_END.pack(_SEPARATOR, store_time_ms, physical_offset)
    rows = []
    for key in keys:
        data = key.encode()
        start = prefix if data[0] != _MARK_BYTE else NO_TOPIC
        rows.append(start + LENGTH_PARTS[len(data)] + data + end)
    return rows


def time_and_offset_of(key: bytes) -> tuple[int, int]:
    """Store time and physical offset at the end of an index key."""
    time_ms, offset = _TIME_AND_OFFSET.unpack_from(key, len(key) - TIME_AND_OFFSET_BYTES)
    return time_ms, offset


def unpack_index_key(key: bytes) -> tuple[str, str, int, int]:
    """Topic, message key, store time, physical offset."""
    length = _I32.unpack_from(key)[0]
    key_length = _I32.unpack_from(key, NUMBER_AT + length)[0]
    at = REST_AT + length
    time_ms, offset = time_and_offset_of(key)
    return (
        key[TOPIC_AT : TOPIC_AT + length].decode(),
        key[at : at + key_length].decode(),
        time_ms,
        offset,
    )
