"""The fast path over many records, for those that their CRC item proves whole.

Scans of the log, on opening and behind the appender, read millions of records. Nearly all have the
form that this store writes: closed by a CRC item, V1, IPv4 hosts, no transaction. For these a
single CRC over the record replaces all other checks, and the bytes behind the body repeat, or only
differ in the keys. The fast path ends at the first record of another form, and the caller uses
`record.check_record` and `record.dispatch_request`.
"""

from __future__ import annotations

from functools import lru_cache

from zlib_ng.zlib_ng import crc32

from store.consume_queue import DispatchRequest
from store.format.layout import BORN_HOST_V6, STORE_HOST_V6, picking
from store.format.properties import (
    BATCH,
    DELAY,
    ITEM_END,
    KEYS,
    LMQ_NAMES,
    MAX_PROPERTIES_BYTES,
    NAME_END,
    TAGS,
    UNIQ_KEY,
    decode_properties,
    index_keys,
    light_queues,
)
from store.format.record import (
    CRC_ITEM_BYTES,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    HEADER_V4_BYTES,
    MAGIC_V1,
    MAGIC_V2,
    MIN_RECORD_BYTES,
    TRANSACTION_MASK,
    java_hash,
    tag_code_of,
)

_LEAST = MIN_RECORD_BYTES + CRC_ITEM_BYTES
_UNCOMMON = BORN_HOST_V6 | STORE_HOST_V6 | TRANSACTION_MASK
_MOST_TOPIC_BYTES = 127  # in V1; the length is a signed byte

#: Copied at once out of a mapping, bytes: few where the last record met was of another kind.
_LEAST_WINDOW = 16 << 10
_MOST_WINDOW = 256 << 10
_CACHED_TOPICS = 65_536
_CACHED_TAILS = 16_384
_CACHED_RESTS = 4096
_CACHED_BYTES = 256  # the longest tail or rest that is remembered
_UNIQUE, _WORDS = UNIQ_KEY + NAME_END, KEYS + NAME_END
_SAYS_MORE = frozenset((UNIQ_KEY, KEYS, DELAY, LMQ_NAMES, BATCH))

_short_tag_hash = lru_cache(maxsize=4096)(java_hash)

_SIZE_MAGIC_OFFSET = picking("record_size", "magic", "physical_offset")
_FIELDS = picking(
    *("record_size", "magic", "queue_id", "queue_offset", "physical_offset", "sys_flag"),
    *("store_time_ms", "body_length"),
)
assert _FIELDS.size == HEADER_V4_BYTES


def skip_whole(data: memoryview, base: int, at: int, end: int, limit: int) -> tuple[int, int, int]:
    """Skip whole records from physical offset `at` on; `data[0]` is at physical offset `base`.

    Returns the end position, the number of records skipped, and the start of the last one (-1:
    none). Stops at `end`, after `limit` records, or at anything that is not a sealed record.
    """
    unpack = _SIZE_MAGIC_OFFSET.unpack_from
    count = 0
    last = -1
    while count < limit and end - at >= _LEAST:
        position = at - base
        size, magic, offset = unpack(data, position)
        if (
            offset != at
            or (magic != MAGIC_V1 and magic != MAGIC_V2)
            or not _LEAST <= size <= end - at
        ):
            break
        item_at = position + size - CRC_ITEM_BYTES
        crc = crc32(data[position:item_at]) & CRC_MASK
        if data[item_at : position + size] != (CRC_ITEM_REVERSED % crc)[::-1]:
            break
        last = at
        at += size
        count += 1
    return at, count, last


#: Topic, tag code, keys, light queues.
_Tail = tuple[str, int, tuple[str, ...], tuple[tuple[str, int], ...]]


class FastParser:
    """Parses records into the same dispatch requests as `record.dispatch_request`.

    Thread: one at a time. Memory: caches of names and property strings, at most 16 MiB; equal
    topics share one string object.
    """

    def __init__(self) -> None:
        self._window_bytes = _LEAST_WINDOW
        self._topics: dict[bytes, str] = {}
        # Bytes between body and CRC item that repeat; they have neither keys nor light queues.
        self._tails: dict[bytes, _Tail] = {}
        # Properties without the keys, which differ from message to message. To tag code.
        self._rests: dict[str, int] = {}

    def parse(
        self, data: memoryview | bytes, base: int, at: int, end: int, limit: int
    ) -> tuple[list[DispatchRequest], int]:
        """Parse the records from physical offset `at` on, and return the requests and the end
        position.

        `data[0]` is at physical offset `base`. Stops at `end`, after `limit` records, or at a
        record of another form, or none.
        """
        if isinstance(data, bytes):
            return self._parse(data, base, at, end, limit)
        unpack = _SIZE_MAGIC_OFFSET.unpack_from
        requests: list[DispatchRequest] = []
        while len(requests) < limit and end - at >= _LEAST:
            size, magic, offset = unpack(data, at - base)
            if offset != at or magic != MAGIC_V1 or not _LEAST <= size <= end - at:
                break
            # A copy: slices of bytes cost a third less than slices of a mapping.
            stop = min(end, at + max(size, self._window_bytes))
            window = bytes(data[at - base : stop - base])
            run, after = self._parse(window, at, at, stop, limit - len(requests))
            if not run:
                self._window_bytes = _LEAST_WINDOW
                break
            self._window_bytes = min(2 * self._window_bytes, _MOST_WINDOW)
            requests += run
            at = after
        return requests, at

    def _parse(
        self, data: bytes, base: int, at: int, end: int, limit: int
    ) -> tuple[list[DispatchRequest], int]:
        unpack, checksum = _FIELDS.unpack_from, crc32
        tails = self._tails
        new, kind = tuple.__new__, DispatchRequest
        least, uncommon, mask, item = _LEAST, _UNCOMMON, CRC_MASK, CRC_ITEM_REVERSED
        requests: list[DispatchRequest] = []
        add = requests.append
        position = at - base
        last = end - base - HEADER_V4_BYTES - CRC_ITEM_BYTES
        while position <= last and len(requests) < limit:
            size, magic, queue_id, queue_offset, offset, sys_flag, store_time_ms, body_length = (
                unpack(data, position)
            )
            if (
                offset != at
                or magic != MAGIC_V1
                or sys_flag & uncommon
                or not least <= size <= end - at
                or not 0 <= body_length <= size - least
                or queue_id < 0
                or queue_offset < 0
            ):
                break
            record_end = position + size
            item_at = record_end - CRC_ITEM_BYTES
            crc = checksum(data[position:item_at]) & mask
            if data[item_at:record_end] != (item % crc)[::-1]:
                break
            tail = data[position + HEADER_V4_BYTES + body_length : item_at]
            found = tails.get(tail) or self._take_apart(tail, store_time_ms)
            if found is None:
                break
            topic, tag_code, keys, light = found
            add(
                new(
                    kind,
                    (
                        topic,
                        queue_id,
                        queue_offset,
                        at,
                        size,
                        tag_code,
                        store_time_ms,
                        keys,
                        light,
                        True,
                    ),
                )
            )
            at += size
            position = record_end
        return requests, at

    def _take_apart(self, tail: bytes, store_time_ms: int) -> _Tail | None:
        """Parse a tail that is not in the cache; None if it is inconsistent or of an uncommon
        form."""
        topic_bytes = tail[0]
        properties_at = 3 + topic_bytes
        property_bytes = len(tail) - properties_at + CRC_ITEM_BYTES
        if (
            topic_bytes > _MOST_TOPIC_BYTES
            or not CRC_ITEM_BYTES <= property_bytes <= MAX_PROPERTIES_BYTES
            or tail[properties_at - 2] << 8 | tail[properties_at - 1] != property_bytes
        ):
            return None
        name = tail[1 : properties_at - 2]
        try:
            topic = self._topics.get(name) or self._new_topic(name)
            text = str(tail[properties_at:], "utf-8")
        except UnicodeDecodeError:
            return None
        if text and text[-1] != ITEM_END:
            return None  # the CRC item belongs to the last value then
        unique, rest = _cut(text, _UNIQUE)
        words, rest = _cut(rest, _WORDS)
        tag_code = self._rests.get(rest)
        if tag_code is None and (tag_code := self._new_rest(rest)) is None:
            properties = decode_properties(text)
            tag = properties.get(TAGS, "")
            return (
                topic,
                tag_code_of(topic, tag, properties.get(DELAY), store_time_ms),
                index_keys(properties),
                light_queues(properties),
            )
        if not words:
            keys: tuple[str, ...] = (unique,) if unique else ()
        elif " " in words:
            keys = index_keys({UNIQ_KEY: unique, KEYS: words})
        else:
            keys = (unique, words) if unique and unique != words else (words,)
        found: _Tail = (topic, tag_code, keys, ())
        if not keys and len(tail) <= _CACHED_BYTES:
            if len(self._tails) >= _CACHED_TAILS:
                self._tails.clear()
            self._tails[tail] = found
        return found

    def _new_topic(self, name: bytes) -> str:
        if len(self._topics) >= _CACHED_TOPICS:
            self._topics.clear()
        topic = self._topics[name] = name.decode()
        return topic

    def _new_rest(self, rest: str) -> int | None:
        """The tag code of properties without keys; None if they have other content."""
        properties = decode_properties(rest)
        if not _SAYS_MORE.isdisjoint(properties):
            return None
        tag = properties.get(TAGS)
        if not tag:
            tag_code = 0
        else:
            tag_code = _short_tag_hash(tag) if len(tag) <= _CACHED_BYTES else java_hash(tag)
        if len(rest) <= _CACHED_BYTES:
            if len(self._rests) >= _CACHED_RESTS:
                self._rests.clear()
            self._rests[rest] = tag_code
        return tag_code


def _cut(text: str, name: str) -> tuple[str, str]:
    """The value of the first property with that name, and the text without it; `name` includes its
    final 01."""
    start = text.find(name)
    if start < 0 or (start and text[start - 1] != ITEM_END):
        return "", text
    value_at = start + len(name)
    end = text.index(ITEM_END, value_at)
    return text[value_at:end], text[:start] + text[end + 1 :]
