"""Encodes many plain messages into records, in columns.

Most batches are plain, see PlainMessages in store/message.py. The headers of their records differ
in a few numbers, which are written into copies of one header, a whole column at a time. That takes
half as long as batch_encoder.py, which works message by message and is the reference; a test
compares the two.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from zlib_ng.zlib_ng import crc32

from store.consume_queue import PlainRequests, is_constant
from store.format import (
    AT,
    CRC_ITEM_BYTES,
    CRC_ITEM_REVERSED,
    CRC_MASK,
    DISTANCE_SHIFT,
    HEADER_V4,
    HOST_V4_BYTES,
    LAST,
    MAX_PROPERTIES_BYTES,
    PROPERTIES_LENGTH,
    TOPIC_HEADS,
    light_item,
)
from store.log.queue_offsets import TakenLight

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from store.light_columns import LightNames, LightUnits
    from store.log.queue_offsets import Hot
    from store.message import PlainMessages

#: Fields that differ between headers.
_FORMATS = {
    "record_size": ">i4",
    "magic": ">i4",
    "body_crc": ">i4",
    "queue_id": ">i4",
    "queue_offset": ">i8",
    "physical_offset": ">i8",
    "born_time_ms": ">i8",
    "prepared_transaction_offset": ">i8",
    "body_length": ">i4",
}
_HEADERS = np.dtype(
    {
        "names": list(_FORMATS),
        "formats": list(_FORMATS.values()),
        "offsets": [AT[name] for name in _FORMATS],
        "itemsize": HEADER_V4.size,
    }
)
_HEADER = f"V{HEADER_V4.size}"
_ITEM = f"V{CRC_ITEM_BYTES}"


class PlainRecords(NamedTuple):
    """Records of plain messages that are not in the log yet; queue offsets are not advanced."""

    parts: list[bytes]  # to be joined
    requests: PlainRequests
    end_offset: int  # physical
    # The next offsets of the queues after these records.
    next_offsets: dict[tuple[str, int], int]
    next_light: TakenLight


def plain_records(
    messages: PlainMessages,
    light: LightNames | None,
    hot: Hot,
    born_host: bytes,
    store_host: bytes,
    at: int,
    end: int,
    now_ms: int,
    place: int,
    properties: bytes,
    keys: tuple[str, ...],
    *,
    crc_item: bool,
) -> PlainRecords | None:
    """Encode the messages from physical offset `at` on.

    The first record has `properties` and `keys`; `light` are the light queues that they name, if
    any. Returns None if the records do not fit below `end`, if properties do not fit a record, or
    if a host is not IPv4. `place` is the batch place of the first record, 0 if the messages are
    independent; the last one ends the batch.
    """
    if not len(born_host) == len(store_host) == HOST_V4_BYTES:
        return None
    topics, bodies, queue_ids = messages.topics, messages.bodies, messages.queue_ids
    queues, next_light = hot.queues, hot.light
    count = len(bodies)
    if not count:
        return None
    item_bytes = CRC_ITEM_BYTES if crc_item else 0
    one_queue = is_constant(topics) and is_constant(queue_ids)
    body_sizes = np.fromiter(map(len, bodies), np.int64, count)
    queue_offsets: Sequence[int]
    no_properties = PROPERTIES_LENGTH.pack(item_bytes)
    if one_queue:
        key = topics[0], queue_ids[0]
        queue_offsets = range(queues[key], queues[key] + count)
        next_offsets = {key: queue_offsets.stop}
        magic, (tail,) = topic_fields(topics[:1], no_properties)
        tails = [tail] * count
    else:
        queue_offsets, next_offsets = _taken(queues, list(zip(topics, queue_ids, strict=True)))
        magic, tails = topic_fields(topics, no_properties)
    units: LightUnits | None = None
    if light is not None:
        units, following = light.take(np.asarray(hot.light.offsets, np.int64))
        next_light = TakenLight(light.different, following)
        added = _light_items(messages.light_queues, units)
        added[0] = properties + added[0]
        if max(map(len, added)) + item_bytes > MAX_PROPERTIES_BYTES:
            return None
        tails = [_with(tail, more, item_bytes) for tail, more in zip(tails, added, strict=True)]
    elif properties:
        tails[0] = _with(tails[0], properties, item_bytes)
    if one_queue and light is None:
        sizes = body_sizes + (HEADER_V4.size + len(tails[-1]) + item_bytes)
        sizes[0] += len(tails[0]) - len(tails[-1])
    else:
        sizes = np.fromiter(map(len, tails), np.int64, count)
        sizes += body_sizes
        sizes += HEADER_V4.size + item_bytes
    record_ends = sizes.cumsum()
    end_offset = at + int(record_ends[-1])
    if end_offset > end:
        return None
    offsets = record_ends - sizes
    places_in_log = offsets + at
    header = HEADER_V4.pack(
        *(0, 0, 0, queue_ids[0], 0, 0, 0, 0, now_ms, born_host, now_ms, store_host),
        *(0, 0, 0),
    )
    rows = np.frombuffer(bytearray(header * count), _HEADERS)
    rows["record_size"] = sizes
    rows["body_crc"] = np.array(messages.body_checksums, np.uint32) & CRC_MASK
    rows["queue_offset"] = (
        np.arange(queue_offsets.start, queue_offsets.stop)
        if isinstance(queue_offsets, range)
        else queue_offsets
    )
    rows["physical_offset"] = places_in_log
    rows["body_length"] = body_sizes
    rows["magic"] = magic
    if not one_queue:
        rows["queue_id"] = queue_ids
    if any(messages.born_times_ms):
        rows["born_time_ms"] = [one or now_ms for one in messages.born_times_ms]
    if place:
        places = (offsets << DISTANCE_SHIFT) + np.arange(place, place + count)
        places[-1] += LAST
        rows["prepared_transaction_offset"] = places
    headers = rows.view(_HEADER).tolist()
    width = 4 if crc_item else 3
    parts = [b""] * (width * count)
    parts[0::width] = headers
    parts[1::width] = bodies
    parts[2::width] = tails
    if crc_item:
        sealed = map(crc32, tails, map(crc32, bodies, map(crc32, headers)))
        # One text of all items, back to front.
        digits = tuple([crc & CRC_MASK for crc in sealed][::-1])
        items = (CRC_ITEM_REVERSED * count % digits)[::-1]
        parts[3::width] = np.frombuffer(items, _ITEM).tolist()
    requests = PlainRequests(
        topics, queue_ids, queue_offsets, places_in_log, sizes, now_ms, keys, units
    )
    return PlainRecords(parts, requests, end_offset, next_offsets, next_light)


def topic_fields(topics: Sequence[str], behind: bytes) -> tuple[int | list[int], list[bytes]]:
    """Magic code of each topic, a single one if all are equal, and its encoded field, to which
    `behind` is appended."""
    names = list(map(str.encode, topics))
    heads = [TOPIC_HEADS[len(name)] for name in names]
    fields = [length + name + behind for (_, length), name in zip(heads, names, strict=True)]
    magics = [magic for magic, _ in heads]
    return magics[0] if is_constant(magics) else magics, fields


def _with(tail: bytes, properties: bytes, item_bytes: int) -> bytes:
    """The tail of a record with these properties. `tail`: without properties."""
    return (
        tail[: -PROPERTIES_LENGTH.size]
        + PROPERTIES_LENGTH.pack(len(properties) + item_bytes)
        + properties
    )


def _light_items(texts: Sequence[str], units: LightUnits) -> list[bytes]:
    """The properties with names and offsets of light queues, for each message."""
    offsets = units.flat_offsets.tolist()
    items = []
    start = 0
    for text, end in zip(texts, units.names.starts[1:].tolist(), strict=True):
        items.append(light_item(text, offsets[start:end]) if text else b"")
        start = end
    return items


def _taken(
    queues: Mapping[tuple[str, int], int], keys: Sequence[tuple[str, int]]
) -> tuple[list[int], dict[tuple[str, int], int]]:
    """The offset of each message, and the next offset of each queue."""
    offsets = list(map(queues.__getitem__, keys))
    next_offsets = dict(zip(keys, [offset + 1 for offset in offsets], strict=True))
    if len(next_offsets) == len(keys):
        return offsets, next_offsets
    next_offsets = dict(zip(keys, offsets, strict=True))
    for at, key in enumerate(keys):
        offsets[at] = next_offsets[key]
        next_offsets[key] += 1
    return offsets, next_offsets
