"""The rows of a run of records, as one batch.

Used by live dispatch and by every rebuild, so that both write the same bytes.
"""

from __future__ import annotations

from bisect import bisect_left
from itertools import compress
from typing import TYPE_CHECKING

import numpy as np

from kvcq.engine import KvBatch, RowColumns
from kvcq.tables.keys import (
    BOUNDS,
    DISPATCHED_KEY,
    INDEX,
    LENGTH_PARTS,
    LIGHT_MAX,
    LIGHT_UNIT,
    OFFSET_BYTES,
    UNITS,
    index_keys_of,
    pack_i64,
    queue_keys,
    queue_parts,
)
from kvcq.tables.light_rows import light_rows, rows_of_units
from kvcq.tables.values import UNIT_DTYPE, UNIT_SIZE, expiry_stamp, pack_max, pack_stamped_unit
from store.consume_queue import PlainRequests, is_constant

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kvcq.engine import AnyRows, Pair
    from store.consume_queue import DispatchRequest


#: With fewer records it is faster to handle them one by one.
_FEW = 12
_UNIT = f"V{UNIT_SIZE}"


def build_batch(requests: Sequence[DispatchRequest], end_offset: int) -> KvBatch:
    """Units, max rows, index rows, and the checkpoint at `end_offset`."""
    rows = _own_rows(requests) or _rows_with_light(requests) or _rows(requests)
    unit_rows, bounds_rows, index = rows
    bounds_rows.append((DISPATCHED_KEY, pack_i64(end_offset)))
    return KvBatch(puts={UNITS: unit_rows, BOUNDS: bounds_rows, INDEX: index})


def index_rows(requests: Sequence[DispatchRequest]) -> list[Pair]:
    """Only the index rows."""
    index: list[Pair] = []
    for topic, _, _, offset, _, _, time_ms, keys, _, _ in requests:
        if keys:
            index += _index_rows(topic, keys, time_ms, offset, expiry_stamp(time_ms))
    return index


#: Units, max rows, index rows: the first two rise, queue by queue.
_Rows = tuple["AnyRows", "AnyRows", "list[Pair]"]


def _own_rows(requests: Sequence[DispatchRequest]) -> _Rows | None:
    if len(requests) == 1:
        return _rows_of_one(requests[0])
    if isinstance(requests, PlainRequests):
        return _rows_of_plain(requests)
    return _rows_by_columns(requests) if len(requests) >= _FEW else None


def _rows_of_one(request: DispatchRequest) -> _Rows | None:
    """Same as `_rows` for one request, in half the time; None if it is not in exactly one queue."""
    topic, queue_id, queue_offset, offset, size, tag_code, time_ms, keys, light, in_queue = request
    if light or not in_queue:
        return None
    stamp = expiry_stamp(time_ms)
    value = pack_stamped_unit(offset, size, tag_code, time_ms, stamp)
    unit_prefix, max_key = queue_keys(topic, queue_id)
    end = pack_i64(queue_offset)
    index = _index_rows(topic, keys, time_ms, offset, stamp)
    return [(unit_prefix + end, value)], [(max_key, value[:OFFSET_BYTES] + end)], index


def _index_rows(
    topic: str, keys: tuple[str, ...], time_ms: int, offset: int, stamp: bytes
) -> list[Pair]:
    return [(key, stamp) for key in index_keys_of(topic, keys, time_ms, offset)] if keys else []


def _rows_with_light(requests: Sequence[DispatchRequest]) -> _Rows | None:
    """Same as `_rows`, in two thirds of the time; None if it does not pay or does not apply."""
    light = light_rows([each for each in requests if each[8] and each[9]])
    if light is None:
        return None
    own = [each._replace(light_queues=()) if each[8] else each for each in requests]
    unit_rows, bounds_rows, index = _own_rows(own) or _rows(own)
    if any(_has(light[1], key) for key, _ in bounds_rows):
        return None  # a topic is named as one of them is, in a log of RocketMQ's
    return _merged(unit_rows, light[0]), _merged(bounds_rows, light[1]), index


def _has(rows: RowColumns, key: bytes) -> bool:
    at = bisect_left(rows.key_column, key)
    return at < len(rows) and rows.key_column[at] == key


def _merged(few: AnyRows, many: RowColumns) -> RowColumns:
    """Merge two ascending sets without common keys. Usually all of the few are in one gap of the
    many."""
    if not few:
        return many
    rows = [*few]
    start, end = bisect_left(many.key_column, rows[0][0]), bisect_left(many.key_column, rows[-1][0])
    gap = slice(start, end)
    rows = sorted([*rows, *zip(many.key_column[gap], many.value_column[gap], strict=True)])
    keys, values = many.key_column[:], many.value_column[:]
    keys[gap] = [key for key, _ in rows]
    values[gap] = [value for _, value in rows]
    return RowColumns(keys, values)


def _rows_by_columns(requests: Sequence[DispatchRequest]) -> _Rows | None:
    """Same as `_rows`, in half the time; None if not all are in one queue each."""
    (
        topics,
        queue_ids,
        queue_offsets,
        offsets,
        sizes,
        tag_codes,
        times_ms,
        keys,
        lights,
        in_queue,
    ) = zip(*requests, strict=True)
    if any(lights) or not all(in_queue):
        return None
    if is_constant(times_ms):
        stamps = [expiry_stamp(times_ms[0])] * len(times_ms)
    else:
        stamps = list(map(expiry_stamp, times_ms))
    index: list[Pair] = []
    if any(keys):
        for number in compress(range(len(keys)), keys):
            of = topics[number], keys[number], times_ms[number], offsets[number], stamps[number]
            index += _index_rows(*of)
    values = list(map(pack_stamped_unit, offsets, sizes, tag_codes, times_ms, stamps))
    return *_rows_in_queues(topics, queue_ids, queue_offsets, offsets, values), index


def _rows_of_plain(requests: PlainRequests) -> _Rows | None:
    """Same as `_rows_by_columns`, from existing columns, including light queues."""
    offsets, time_ms, keys = requests.physical_offsets, requests.store_time_ms, requests.first_keys
    units = np.zeros(len(requests), UNIT_DTYPE)
    units["physical_offset"] = offsets
    units["record_size"] = requests.record_sizes
    units["store_time_ms"] = time_ms
    stamp = expiry_stamp(time_ms)
    units["expiry_stamp"] = int.from_bytes(stamp, "little")
    index = _index_rows(requests.topics[0], keys, time_ms, int(offsets[0]), stamp)
    values = units.view(_UNIT).tolist()
    places = requests.topics, requests.queue_ids, requests.queue_offsets, offsets.tolist()
    unit_rows, bounds_rows = _rows_in_queues(*places, values)
    if requests.light is not None:
        light = rows_of_units(requests.light, units.view(np.uint8).reshape(-1, UNIT_SIZE))
        if light is None:
            return None
        # No topic is named as they are: the append refuses that.
        unit_rows, bounds_rows = _merged(unit_rows, light[0]), _merged(bounds_rows, light[1])
    return unit_rows, bounds_rows, index


def _rows_in_queues(
    topics: Sequence[str],
    queue_ids: Sequence[int],
    queue_offsets: Sequence[int],
    offsets: Sequence[int],
    values: list[bytes],
) -> tuple[AnyRows, AnyRows]:
    """Unit rows with these values, and max rows."""
    ends = list(map(pack_i64, queue_offsets))
    if is_constant(topics) and is_constant(queue_ids):
        unit_prefix, max_key = queue_keys(topics[0], queue_ids[0])
        unit_rows = RowColumns([unit_prefix + end for end in ends], values)
        return unit_rows, [(max_key, pack_max(offsets[-1], queue_offsets[-1]))]
    length_parts = LENGTH_PARTS
    heads = [length_parts[len(data)] + data for data in map(str.encode, topics)]
    if is_constant(queue_ids) and is_constant(queue_offsets):
        # First messages, as a rule.
        unit_part, max_part = queue_parts(queue_ids[0])
        unit_part += ends[0]
        unit_keys = [head + unit_part for head in heads]
        max_keys = [head + max_part for head in heads]
    else:
        parts = list(map(queue_parts, queue_ids))
        max_keys = [head + part[1] for head, part in zip(heads, parts, strict=True)]
        keys_and_ends = zip(heads, parts, ends, strict=True)
        unit_keys = [head + part[0] + end for head, part, end in keys_and_ends]
    # The last one of a queue stays.
    bounds = dict(zip(max_keys, map(pack_max, offsets, queue_offsets), strict=True))
    if max_keys == sorted(max_keys):
        return RowColumns(unit_keys, values), RowColumns([*bounds], [*bounds.values()])
    # Rows of one queue keep their order.
    order = sorted(range(len(max_keys)), key=max_keys.__getitem__)
    unit_rows = RowColumns([unit_keys[at] for at in order], [values[at] for at in order])
    return unit_rows, sorted(bounds.items())


def _rows(requests: Sequence[DispatchRequest]) -> _Rows:
    index: list[Pair] = []
    # By key of the max row. Later records of the queue are in `more`, or replace it in `bounds`.
    first: dict[bytes, Pair] = {}
    more: dict[bytes, list[Pair]] = {}
    bounds: dict[bytes, bytes] = {}
    add_index = index.append
    length_parts, light_unit, light_max = LENGTH_PARTS, LIGHT_UNIT, LIGHT_MAX
    stamp_time = -1
    stamp = b""
    last_topic: str | None = None
    prefixes: dict[int, tuple[bytes, bytes]] = {}  # for the last topic
    for (
        topic,
        queue_id,
        queue_offset,
        physical_offset,
        record_size,
        tag_code,
        store_time_ms,
        keys,
        light_queues,
        in_queue,
    ) in requests:
        if store_time_ms != stamp_time:
            stamp_time = store_time_ms
            stamp = expiry_stamp(store_time_ms)
        if keys:
            for row_key in index_keys_of(topic, keys, store_time_ms, physical_offset):
                add_index((row_key, stamp))
        if not in_queue:
            continue
        value = pack_stamped_unit(physical_offset, record_size, tag_code, store_time_ms, stamp)
        place = value[:OFFSET_BYTES]
        if topic != last_topic:
            last_topic = topic
            prefixes = {}
        prefix = prefixes.get(queue_id)
        if prefix is None:
            prefix = prefixes[queue_id] = queue_keys(topic, queue_id)
        unit_prefix, max_key = prefix
        offset_bytes = pack_i64(queue_offset)
        row = (unit_prefix + offset_bytes, value)
        if max_key not in bounds:
            first[max_key] = row
        elif max_key in more:
            more[max_key].append(row)
        else:
            more[max_key] = [row]
        bounds[max_key] = place + offset_bytes
        for name, offset in light_queues:
            data = name.encode()
            start = length_parts[len(data)] + data
            max_key = start + light_max
            offset_bytes = pack_i64(offset)
            row = (start + light_unit + offset_bytes, value)
            if max_key not in bounds:
                first[max_key] = row
            elif max_key in more:
                more[max_key].append(row)
            else:
                more[max_key] = [row]
            bounds[max_key] = place + offset_bytes
    # RocksDB takes neighbours one after another a good deal faster. Units of two queues sort as
    # their max rows do, and those of one queue rise.
    order = sorted(bounds)
    unit_rows = list(map(first.__getitem__, order))
    if more:
        unit_rows = [row for head in order for row in (first[head], *more.get(head, ()))]
    bounds_rows = list(zip(order, map(bounds.__getitem__, order), strict=True))
    return unit_rows, bounds_rows, index
