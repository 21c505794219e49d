"""Encodes many messages into records and dispatch requests.

This is the hottest loop of the product. It is flat on purpose: one pass, one pack for the header,
three CRC steps, no unnecessary call. Layouts are in record.py.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from zlib_ng.zlib_ng import crc32

from store.consume_queue import DispatchRequest
from store.errors import InvalidArgumentError
from store.format import (
    BACK,
    BLANK_BYTES,
    BORN_HOST_V6,
    CRC_ITEM_BYTES,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    DISTANCE_SHIFT,
    FRONT,
    HEADER_V4,
    HOST_V6_BYTES,
    LAST,
    MAX_DISTANCE,
    MAX_PROPERTIES_BYTES,
    PLACE,
    PROPERTIES_LENGTH,
    STORE_HOST_V6,
    TOPIC_HEADS,
    TRANSACTION_COMMIT,
    TRANSACTION_MASK,
    TRANSACTION_ROLLBACK,
    PlainBatch,
    light_item,
    pack_host,
    packing,
)
from store.log.plain_records import plain_records

if TYPE_CHECKING:
    from collections.abc import Sequence

    from store.format import BatchMark, Prepared
    from store.light_columns import LightNames
    from store.log.queue_offsets import Hot
    from store.message import Message, PlainMessages

_HEADER_FRONT = packing(FRONT)
_HEADER_BACK = packing(BACK)
_I64 = struct.Struct(">q")

#: Transaction types whose messages are in a queue.
_IN_QUEUE = (0, TRANSACTION_COMMIT)


class Encoded:
    """Records made by one `encode` that are not in the log yet."""

    __slots__ = ("_hot", "count", "end_offset", "parts", "requests")

    def __init__(self, offset: int, hot: Hot) -> None:
        self.parts: list[bytes] = []  # to be joined
        self.requests: Sequence[DispatchRequest] = []
        self.count = 0  # messages encoded
        self.end_offset = offset  # physical
        self._hot = hot

    def give_back_offsets(self) -> None:
        """Return the queue offsets that encoding took; none of the records may be appended.
        Repeatable."""
        # Back to the offset each request got, last one first: so it does not matter whether an
        # error struck before or after the queue went on.
        for request in reversed(self.requests):
            if request.in_queue:
                self._hot.queues[request.topic, request.queue_id] = request.queue_offset
                if request.light_queues:
                    self._hot.light.by_name.update(request.light_queues)


class BatchEncoder:
    """Encodes records for one store.

    Thread: only under the append lock, because it assigns queue offsets.
    """

    def __init__(self, store_host: tuple[str, int], *, crc_item: bool) -> None:
        self._store_host = pack_host(store_host)
        self._item_bytes = CRC_ITEM_BYTES if crc_item else 0
        self._plain_length = PROPERTIES_LENGTH.pack(self._item_bytes)
        # Hosts of producers, packed. Bounded: an edge that passes on every port must not fill it.
        self._hosts: dict[tuple[str, int], bytes] = {}

    def encode(
        self,
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        first: int,
        hot: Hot,
        offset: int,
        room: int,
        now_ms: int,
        begin: int | None = None,
        runs: list[Encoded] | None = None,
        mark: BatchMark | None = None,
    ) -> Encoded:
        """Encode `messages[first:]` from physical `offset` on, while they fit in `room` bytes.

        Every queue named must be in `hot`. Offsets are assigned from there; `give_back_offsets`
        undoes that. `begin` is the physical offset of the record of `messages[0]` if all messages
        are one batch, or None if they are independent. `mark` is added to the first record that is
        encoded. The result is added to `runs` before the first offset is assigned, because an
        interrupt may end this at any point. Raises InvalidArgumentError, after giving back, if the
        properties of a message become too long with its light-queue offsets, or if the batch
        becomes too long.
        """
        encoded = Encoded(offset, hot)
        if runs is not None:
            runs.append(encoded)
        end = offset + room - BLANK_BYTES
        try:
            if begin is not None and offset + room - begin > MAX_DISTANCE:
                raise InvalidArgumentError("messages", f"take {MAX_DISTANCE} bytes or more")
            place = 0 if begin is None else PLACE + (offset - begin << DISTANCE_SHIFT) + first
            if isinstance(prepared, PlainBatch):
                plain = prepared.messages[first:] if first else prepared.messages
                light = prepared.light
                # Names are not divided: what one segment has no room for goes one by one.
                if not (first and light) and self._encode_plain(
                    encoded, plain, light, hot, end, now_ms, place, mark
                ):
                    return encoded
            self._encode(encoded, messages, prepared, first, hot, end, now_ms, place, mark)
        except BaseException:
            encoded.give_back_offsets()
            raise
        return encoded

    def _encode(
        self,
        encoded: Encoded,
        messages: Sequence[Message],
        prepared: Sequence[Prepared],
        first: int,
        hot: Hot,
        end: int,
        now_ms: int,
        place: int,
        mark: BatchMark | None,
    ) -> None:
        """Encode `messages[first:]` one by one, while they fit below `end`."""
        parts = encoded.parts
        requests: list[DispatchRequest] = []
        encoded.requests = requests  # from here on, so that an interrupt gives back what was taken
        queues, light = hot.queues, hot.light
        store_host = self._store_host
        item_bytes = self._item_bytes
        pack_header = HEADER_V4.pack
        pack_length = PROPERTIES_LENGTH.pack
        new_request = tuple.__new__
        at = encoded.end_offset
        last_topic: str | None = None
        magic = 0
        field = plain_tail = b""
        last_host: tuple[str, int] | None = None  # producers come in runs
        born_host = b""
        all_v4 = False
        last = len(messages) - 1
        for index in range(first, len(messages)):
            message = messages[index]
            properties, keys, tag_code, light_names = prepared[index]
            (
                topic,
                body,
                queue_id,
                _tag,
                _keys,
                _light_queues,
                _properties,
                flag,
                sys_flag,
                born_time_ms,
                host,
                reconsume_times,
                transaction_offset,
            ) = message
            if topic != last_topic:
                last_topic = topic
                name = topic.encode()
                magic, length = TOPIC_HEADS[len(name)]
                field = length + name
                plain_tail = field + self._plain_length
            if mark is not None:
                properties += mark.item(at)  # there is room for it, see preparing.py
                keys = (*keys, mark.key)
                mark = None
            places: tuple[tuple[str, int], ...] = ()
            offsets: list[int] = []
            if light_names:
                following = light.by_name
                offsets = [following[name] for name in light_names]
                places = tuple(zip(light_names, offsets, strict=True))
                properties = self._with_light_queues(properties, light_names, offsets, index)
            if properties:
                tail = field + pack_length(len(properties) + item_bytes) + properties
            else:
                tail = plain_tail
            if host is not last_host:
                last_host = host
                born_host = self._pack_born_host(last_host)
                all_v4 = len(born_host) == 8 and len(store_host) == 8
            size = 88 + len(body) + len(tail) + item_bytes
            if not all_v4:
                size += len(born_host) + len(store_host) - 16
            if at + size > end:
                break
            queue_offset = queues[topic, queue_id]
            in_queue = True
            if sys_flag and sys_flag & TRANSACTION_MASK not in _IN_QUEUE:
                in_queue = False
                queue_offset = 0
                if sys_flag & TRANSACTION_MASK == TRANSACTION_ROLLBACK:
                    keys = ()
            if place:
                assert not transaction_offset, "its field is taken: no message of a batch"
                assert in_queue, "an open transaction is no message of a batch"
                transaction_offset = place + LAST if index == last else place
                place += (size << DISTANCE_SHIFT) + 1
            if all_v4:
                header = pack_header(
                    size,
                    magic,
                    crc32(body) & CRC_MASK,
                    queue_id,
                    flag,
                    queue_offset,
                    at,
                    sys_flag,
                    born_time_ms or now_ms,
                    born_host,
                    now_ms,
                    store_host,
                    reconsume_times,
                    transaction_offset,
                    len(body),
                )
            else:
                header = self._header_v6(
                    message, size, magic, queue_offset, at, born_host, now_ms, transaction_offset
                )
            if item_bytes:
                crc = crc32(tail, crc32(body, crc32(header))) & CRC_MASK
                parts += (header, body, tail, (CRC_ITEM_REVERSED % crc)[::-1])
            else:
                parts += (header, body, tail)
            requests.append(
                new_request(
                    DispatchRequest,
                    (
                        topic,
                        queue_id,
                        queue_offset,
                        at,
                        size,
                        tag_code,
                        now_ms,
                        keys,
                        places,
                        in_queue,
                    ),
                )
            )
            if in_queue:
                queues[topic, queue_id] = queue_offset + 1
                if places:
                    light.by_name.update(
                        zip(light_names, [offset + 1 for offset in offsets], strict=True)
                    )
            at += size
        encoded.end_offset = at
        encoded.count = len(requests)

    def _encode_plain(
        self,
        encoded: Encoded,
        messages: PlainMessages,
        light: LightNames | None,
        hot: Hot,
        end: int,
        now_ms: int,
        place: int,
        mark: BatchMark | None,
    ) -> bool:
        """Encode all messages and return True, or none and return False."""
        at = encoded.end_offset
        properties = b""
        keys: tuple[str, ...] = ()
        if mark is not None:
            properties, keys = mark.item(at), (mark.key,)
        records = plain_records(
            messages,
            light,
            hot,
            self._pack_born_host(messages.born_host),
            self._store_host,
            at,
            end,
            now_ms,
            place,
            properties,
            keys,
            crc_item=bool(self._item_bytes),
        )
        if records is None:
            return False
        encoded.parts += records.parts
        # First what gives the offsets back: an interrupt may come in between.
        encoded.requests = records.requests
        hot.queues |= records.next_offsets
        hot.light = records.next_light
        encoded.end_offset = records.end_offset
        encoded.count = len(encoded.requests)
        return True

    def _with_light_queues(
        self, properties: bytes, names: tuple[str, ...], offsets: list[int], index: int
    ) -> bytes:
        whole = properties + light_item(",".join(names), offsets)
        if len(whole) + self._item_bytes > MAX_PROPERTIES_BYTES:
            raise InvalidArgumentError(
                f"messages[{index}].light_queues",
                f"properties would take {len(whole) + self._item_bytes} bytes with these, "
                f"more than {MAX_PROPERTIES_BYTES}",
            )
        return whole

    def _pack_born_host(self, host: tuple[str, int]) -> bytes:
        packed = self._hosts.get(host)
        if packed is None:
            packed = pack_host(host)
            if len(self._hosts) >= 4096:
                self._hosts.clear()
            self._hosts[host] = packed
        return packed

    def _header_v6(
        self,
        message: Message,
        size: int,
        magic: int,
        queue_offset: int,
        at: int,
        born_host: bytes,
        now_ms: int,
        transaction_offset: int,
    ) -> bytes:
        sys_flag = message.sys_flag
        if len(born_host) == HOST_V6_BYTES:
            sys_flag |= BORN_HOST_V6
        if len(self._store_host) == HOST_V6_BYTES:
            sys_flag |= STORE_HOST_V6
        return b"".join(
            (
                _HEADER_FRONT.pack(
                    size,
                    magic,
                    crc32(message.body) & CRC_MASK,
                    message.queue_id,
                    message.flag,
                    queue_offset,
                    at,
                    sys_flag,
                    message.born_time_ms or now_ms,
                ),
                born_host,
                _I64.pack(now_ms),
                self._store_host,
                _HEADER_BACK.pack(
                    message.reconsume_times,
                    transaction_offset,
                    len(message.body),
                ),
            )
        )
