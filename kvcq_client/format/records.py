"""Records of the commit log, decoded in the client.

The server sends records as they are in its log. Each record is verified against the CRC at its end,
which covers all of it; a record without one (from another writer of the format) is verified by the
CRC of its body.

| at  | size | type | field                                                       |
|----:|-----:|------|-------------------------------------------------------------|
|   0 |    4 | i32  | size of the whole record                                    |
|   4 |    4 | i32  | magic: version 1 or 2                                       |
|   8 |    4 | i32  | CRC-32 of the body, top bit cleared                         |
|  12 |    4 | i32  | queue id                                                    |
|  16 |    4 | i32  | flag of the application                                     |
|  20 |    8 | i64  | queue offset                                                |
|  28 |    8 | i64  | physical offset                                             |
|  36 |    4 | i32  | sys flag: 0x10 born host, 0x20 store host are IPv6; 0x1 the |
|     |      |      | body is compressed, see compression.py                      |
|  40 |    8 | i64  | born time, ms                                               |
|  48 |    B | host | born host: 4 or 16 bytes of address, i32 port               |
| 48+B |   8 | i64  | store time, ms                                              |
| 56+B |   S | host | store host                                                  |
| 56+B+S | 4 | i32  | reconsume times                                             |
| 60+B+S | 8 | i64  | offset of the prepared transaction                          |
| 68+B+S | 4 | i32  | L, size of the body                                         |
| 72+B+S | L |      | body                                                        |
|     |      |      | topic: i8 length (version 1) or i16 (version 2), UTF-8      |
|     |      |      | properties: i16 length, `name 01 value 02` repeated; the    |
|     |      |      | last one may be `__CRC32#`, 20 bytes, digits from the right |

Source: RocketMQ 5, MessageDecoder and CommitLog.
"""

from __future__ import annotations

import socket
import struct
from itertools import repeat
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from kvcq_client.errors import CorruptRecordError
from kvcq_client.format.compression import COMPRESSED, BodyError, decompress
from kvcq_client.format.outgoing import SHARDING_KEY
from kvcq_client.values import Queue

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

MAGIC_V1 = -626843481
MAGIC_V2 = -626843477
_BORN_V6 = 0x10
_STORE_V6 = 0x20
_CRC_MASK = 0x7FFFFFFF
_CRC_NAME = b"__CRC32#\x01"
_CRC_BYTES = 20
#: The CRC item at the end of a record, reversed: its digits are stored from the right.
_CRC_REVERSED = b"\x02%010d" + _CRC_NAME[::-1]
_MIN_BYTES = 91

# Offsets in the table above; the last three without the hosts.
_QUEUE_ID_AT, _FLAG_AT, _QUEUE_OFFSET_AT, _PHYSICAL_OFFSET_AT = 12, 16, 20, 28
_SYS_FLAG_AT, _BORN_TIME_AT, _HOSTS_AT = 36, 40, 48
_STORE_HOST_AT, _RECONSUME_AT, _BODY_AT = 56, 56, 72
#: The last byte of the sys flag holds all its bits, the last one of the magic the version.
_FLAGS_AT, _VERSION_AT = 39, 7

_HOSTS_V6 = _BORN_V6 | _STORE_V6
#: Bytes of both hosts, by bits of the sys flag.
_HOSTS_BYTES = {0: 16, _BORN_V6: 28, _STORE_V6: 28, _HOSTS_V6: 40}
_BODY_V4_AT = _BODY_AT + _HOSTS_BYTES[0]
_LAST_OF_MAGIC_V1 = MAGIC_V1 & 0xFF

_SIZE = struct.Struct(">i")
_i32_at = _SIZE.unpack_from
_FRONT = struct.Struct(">iiiiiqqiq")  # up to the born time
_I64 = struct.Struct(">q")
assert _FRONT.size == 48


class StoredMessage:
    """A message that was read. Its fields are decoded from the record on demand.

    `queue` and `queue_offset` are where it was read; the next message there has `queue_offset` + 1.
    `topic`, `queue_id` and `topic_queue_offset` are where it was put. Both differ if it was read
    from a light queue.

    Equal if record and queue offset are equal. Keeps no other memory than its record alive.
    """

    # Only set what every reader needs: a consumer makes hundreds of thousands a second.
    __slots__ = ("_plain_body", "_properties", "_queue", "queue_offset", "record")

    def __init__(self, record: bytes, queue_offset: int, queue: Queue | None = None) -> None:
        """`queue` None: the queue of its topic."""
        #: The whole record as in the commit log.
        self.record = record
        #: Offset in `queue`.
        self.queue_offset = queue_offset
        self._queue = queue
        self._properties: dict[str, str] | None = None

    # --- the message -----------------------------------------------------------------------

    @property
    def body(self) -> bytes:
        """The body, decompressed if its producer compressed it.

        Raises CorruptRecordError if that fails; `raw_body` returns it as stored.
        """
        record = self.record
        flags = record[_FLAGS_AT]
        if not flags:  # most
            return record[_BODY_V4_AT : _BODY_V4_AT + _i32_at(record, _BODY_V4_AT - 4)[0]]
        return self._decompressed() if flags & COMPRESSED else self.raw_body

    @property
    def raw_body(self) -> bytes:
        """The body as stored, compressed or not."""
        record = self.record
        at = _BODY_AT + _HOSTS_BYTES[record[_FLAGS_AT] & _HOSTS_V6]
        return record[at : at + _i32_at(record, at - 4)[0]]

    @property
    def is_compressed(self) -> bool:
        """Whether the body is stored compressed."""
        return bool(self.record[_FLAGS_AT] & COMPRESSED)

    def _decompressed(self) -> bytes:
        try:
            return self._plain_body
        except AttributeError:  # first access: the slot is empty
            pass
        try:
            self._plain_body: bytes = decompress(self.raw_body, self.sys_flag)
        except BodyError as error:
            raise CorruptRecordError(f"its body {error}", self.queue_offset) from error
        return self._plain_body

    @property
    def topic(self) -> str:
        """The topic it was put into, even if it was read from a light queue."""
        begin, end = self._topic_place()
        try:
            return self.record[begin:end].decode()
        except UnicodeDecodeError:
            raise CorruptRecordError("its topic is not UTF-8", self.queue_offset) from None

    @property
    def properties(self) -> Mapping[str, str]:
        """All properties, with tag and keys as TAGS and KEYS; without the record's CRC."""
        if self._properties is None:
            self._properties = self._decode_properties()
        return self._properties

    @property
    def tag(self) -> str:
        return self.properties.get("TAGS", "")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(key for key in self.properties.get("KEYS", "").split(" ") if key)

    @property
    def ordering_key(self) -> str:
        """The message's ordering key; "" without one."""
        return self.properties.get(SHARDING_KEY, "")

    @property
    def light_queues(self) -> tuple[str, ...]:
        """Names of the light queues that have the message."""
        names = self.properties.get("INNER_MULTI_DISPATCH", "")
        return tuple(names.split(",")) if names else ()

    # --- where and when --------------------------------------------------------------------

    @property
    def queue(self) -> Queue:
        """The queue it was read from; for a message found by key or id, the queue of its topic."""
        return self._queue or Queue(self.topic, self.queue_id)

    @property
    def queue_id(self) -> int:
        """The queue of its topic, even if it was read from a light queue."""
        value: int = _SIZE.unpack_from(self.record, _QUEUE_ID_AT)[0]
        return value

    @property
    def topic_queue_offset(self) -> int:
        """Its offset in the queue of its topic, even if it was read from a light queue."""
        value: int = _I64.unpack_from(self.record, _QUEUE_OFFSET_AT)[0]
        return value

    @property
    def flag(self) -> int:
        value: int = _SIZE.unpack_from(self.record, _FLAG_AT)[0]
        return value

    @property
    def physical_offset(self) -> int:
        value: int = _I64.unpack_from(self.record, _PHYSICAL_OFFSET_AT)[0]
        return value

    @property
    def sys_flag(self) -> int:
        value: int = _SIZE.unpack_from(self.record, _SYS_FLAG_AT)[0]
        return value

    @property
    def born_time_ms(self) -> int:
        value: int = _I64.unpack_from(self.record, _BORN_TIME_AT)[0]
        return value

    @property
    def store_time_ms(self) -> int:
        value: int = _I64.unpack_from(self.record, _HOSTS_AT + _born_bytes(self.sys_flag))[0]
        return value

    @property
    def born_host(self) -> str:
        return _host_text(self.record[_HOSTS_AT : _HOSTS_AT + _born_bytes(self.sys_flag)])

    @property
    def store_host(self) -> str:
        return _host_text(self._store_host)

    @property
    def message_id(self) -> str:
        """The id that `get` takes: store host and physical offset, in hex."""
        return message_id(self._store_host, self.physical_offset)

    @property
    def reconsume_times(self) -> int:
        at = _RECONSUME_AT + _HOSTS_BYTES[self.sys_flag & _HOSTS_V6]
        value: int = _SIZE.unpack_from(self.record, at)[0]
        return value

    @property
    def _store_host(self) -> bytes:
        at = _STORE_HOST_AT + _born_bytes(self.sys_flag)
        return self.record[at : at + _store_bytes(self.sys_flag)]

    def _topic_place(self) -> tuple[int, int]:
        record = self.record
        at = _BODY_AT + _HOSTS_BYTES[record[_FLAGS_AT] & _HOSTS_V6]
        at += _i32_at(record, at - 4)[0]
        if record[_VERSION_AT] == _LAST_OF_MAGIC_V1:
            return at + 1, at + 1 + record[at]
        return at + 2, at + 2 + (record[at] << 8 | record[at + 1])

    def _decode_properties(self) -> dict[str, str]:
        try:
            text = self.record[self._topic_place()[1] + 2 :].decode()
        except UnicodeDecodeError:
            raise CorruptRecordError("its properties are not UTF-8", self.queue_offset) from None
        properties: dict[str, str] = {}
        for item in text.split("\x02"):
            name, _, value = item.partition("\x01")
            if name and value:
                properties[name] = value
        properties.pop("__CRC32#", None)
        properties.pop("KVCQ_BATCH", None)
        return properties

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, StoredMessage):
            return NotImplemented
        return self.queue_offset == other.queue_offset and self.record == other.record

    def __hash__(self) -> int:
        return hash((self.physical_offset, self.queue_offset))

    def __repr__(self) -> str:
        body = self.raw_body
        shown = repr(body) if len(body) <= 40 else f"{body[:40]!r}… {len(body)} bytes"
        topic, queue_id = self.queue
        return f"<{topic} queue {queue_id} offset {self.queue_offset}: {shown}>"


def split_records(
    data: bytes,
    queue_offsets: Sequence[int] | None = None,
    *,
    queue: Queue | None = None,
    queues: Sequence[Queue] | None = None,
    verify: bool = True,
) -> list[StoredMessage]:
    """Decode consecutive records.

    `queue` is the queue that was read, or `queues` has that of each message. `queue_offsets` has
    the offset of each message in it; None for the records' own. Raises CorruptRecordError if the
    records do not fill `data` exactly, their number differs from `queue_offsets` or `queues`, or
    (with `verify`) a CRC does not match.
    """
    records: list[bytes] = []
    add = records.append
    size_at = _SIZE.unpack_from
    end = len(data)
    at = 0
    try:
        while at < end:
            size = size_at(data, at)[0]
            if size < _MIN_BYTES or at + size > end:
                raise CorruptRecordError(f"impossible size {size} at byte {at}")
            add(data[at : at + size])
            at += size
    except struct.error:
        raise CorruptRecordError(f"{end - at} bytes left over") from None
    if verify and not _match_their_crc(records):
        for record in records:
            if record[-_CRC_BYTES:-11] != _CRC_NAME or record[-1] != 2:
                try:
                    _verify_without_item(record)
                except struct.error:  # its flags promise more than there is
                    raise CorruptRecordError("it ends before its body") from None
            elif not _match_their_crc([record]):
                raise CorruptRecordError("its CRC does not match")
    if queue_offsets is None:
        queue_offsets = [_I64.unpack_from(record, _QUEUE_OFFSET_AT)[0] for record in records]
    elif len(records) != len(queue_offsets):
        raise CorruptRecordError(f"{len(records)} records for {len(queue_offsets)} queue offsets")
    if queues is not None and len(queues) != len(records):
        raise CorruptRecordError(f"{len(records)} records for {len(queues)} queues")
    return list(map(StoredMessage, records, queue_offsets, queues or repeat(queue)))


def _match_their_crc(records: Sequence[bytes]) -> bool:
    """Whether every record ends with its CRC. Loops run in C, not for each record."""
    crcs = [crc32(record[:-_CRC_BYTES]) & _CRC_MASK for record in reversed(records)]
    items = b"".join([record[-_CRC_BYTES:] for record in records])
    return items[::-1] == _CRC_REVERSED * len(records) % tuple(crcs)


def _verify_without_item(record: bytes) -> None:
    front = _FRONT.unpack_from(record)
    if front[1] not in (MAGIC_V1, MAGIC_V2):
        raise CorruptRecordError(f"no magic code ({front[1] & 0xFFFFFFFF:08x})")
    at = _BODY_AT + _born_bytes(front[7]) + _store_bytes(front[7])
    size = _SIZE.unpack_from(record, at - 4)[0]
    if size < 0 or at + size > len(record):
        raise CorruptRecordError(f"impossible body of {size} bytes")
    if crc32(record[at : at + size]) & _CRC_MASK != front[2]:
        raise CorruptRecordError("the CRC of its body does not match")


def message_id(store_host: bytes, physical_offset: int) -> str:
    """RocketMQ's message id: packed store host and physical offset, in upper-case hex."""
    return (store_host + _I64.pack(physical_offset)).hex().upper()


def message_ids(store_host: bytes, physical_offsets: Iterable[int]) -> list[str]:
    """Ids of many messages; "" for an offset below 0."""
    host = store_host.hex().upper()
    return [f"{host}{offset:016X}" if offset >= 0 else "" for offset in physical_offsets]


def _born_bytes(sys_flag: int) -> int:
    return 20 if sys_flag & _BORN_V6 else 8


def _store_bytes(sys_flag: int) -> int:
    return 20 if sys_flag & _STORE_V6 else 8


def _host_text(packed: bytes) -> str:
    port = int.from_bytes(packed[-4:], "big")
    if len(packed) == 8:
        return f"{socket.inet_ntop(socket.AF_INET, packed[:4])}:{port}"
    return f"[{socket.inet_ntop(socket.AF_INET6, packed[:16])}]:{port}"
