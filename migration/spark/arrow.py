"""Converts blocks of records to Arrow, with the columns of columns.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from migration.columnar import Names, read_blocks
from migration.spark.columns import COMMITLOG
from store.format import OWN_PROPERTIES, decode_properties, unpack_host

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from migration.columnar import Ints, LogRange, ReadOptions, RecordBlock, Strings

#: A bit of sys_flag; see kvcq_client/format.
_COMPRESSED = 0x1


def read_batches(
    log_range: LogRange,
    schema: pa.Schema,
    options: ReadOptions,
    choose: Callable[[RecordBlock], RecordBlock],
) -> Iterator[pa.RecordBatch]:
    """Yield batches with the columns of `schema`, in log order. `choose` may drop records.

    Raises SegmentDamageError.
    """
    for block in read_blocks(log_range, options):
        chosen = choose(block)
        if len(chosen):
            columns = [column_of(chosen, field) for field in schema]
            yield pa.RecordBatch.from_arrays(columns, schema=schema)


def column_of(block: RecordBlock, field: pa.Field) -> pa.Array:
    """The column of the field, with its type. A cast unifies names of list elements in Arrow."""
    made = _MAKERS.get(field.name)
    if made is None:
        wide = getattr(block, field.name)
        return pa.array(wide.astype(field.type.to_pandas_dtype(), copy=False))
    return made(block).cast(field.type)


def batch_of(schema: pa.Schema, count: int, columns: Mapping[str, Any]) -> pa.RecordBatch:
    """The columns that `schema` names, from arrays of Arrow or numpy; null if missing."""
    arrays = []
    for field in schema:
        values = columns.get(field.name)
        if values is None:
            values = pa.nulls(count)
        elif isinstance(values, np.ndarray):
            values = pa.array(values.astype(values.dtype.newbyteorder("="), copy=False))
        arrays.append(values.cast(field.type))
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


def to_binary(strings: Strings) -> pa.BinaryArray:
    """The same strings, which must ascend in their buffer and not overlap.

    Builds one Arrow array with a boundary at every start and end, and takes every second element,
    so that Arrow copies all strings in one loop.
    """
    count = len(strings)
    if not count:
        return pa.array([], pa.binary())
    origin = int(strings.starts[0])
    bounds = np.empty(2 * count + 1, dtype=np.int32)
    bounds[0:-1:2] = strings.starts - origin
    bounds[1::2] = strings.ends - origin
    bounds[-1] = bounds[-2]
    window = strings.data[origin : int(strings.ends[-1])]
    whole = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(window)]
    )
    return whole.take(pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)))


def to_text(strings: Strings) -> pa.StringArray:
    """The values as text; invalid UTF-8 gets replacement characters, as in Java."""
    values = to_binary(strings)
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [raw.decode("utf-8", "replace") for raw in values.to_pylist()]
        return pa.array(texts, pa.string())


def to_names(texts: pa.StringArray) -> Names:
    """A column with few distinct texts."""
    encoded = texts.dictionary_encode()
    return Names(np.asarray(encoded.indices, dtype=np.int64), encoded.dictionary.to_pylist())


def from_names(names: Names) -> pa.StringArray:
    """Inverse of `to_names`."""
    return pa.array(names.values, pa.string()).take(pa.array(names.codes))


def _tag(block: RecordBlock) -> pa.Array:
    rows, tags = block.tag
    index = np.full(len(block), -1, dtype=np.int64)
    index[rows] = np.arange(len(rows))
    return to_text(tags).take(pa.array(index, mask=index < 0))


def _keys(block: RecordBlock) -> pa.Array:
    rows, keys = block.keys
    return _lists(rows, to_text(keys.packed()), len(block))


def _lists(rows: Ints, values: pa.Array, count: int) -> pa.ListArray:
    """`count` lists: values[i] is in list rows[i]. `rows` must ascend."""
    offsets = np.searchsorted(rows, np.arange(count + 1)).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), values)


def _hosts(packed: Strings) -> pa.Array:
    """Hosts as text. Each is formatted once, because there are few hosts and many records."""
    encoded = to_binary(packed).dictionary_encode()
    texts = []
    for raw in encoded.dictionary.to_pylist():
        address, port = unpack_host(raw)
        texts.append(f"[{address}]:{port}" if ":" in address else f"{address}:{port}")
    return pa.array(texts, pa.string()).take(encoded.indices)


def _body(block: RecordBlock) -> pa.Array:
    """The bodies, decompressed if needed; null if that fails."""
    stored = to_binary(block.strings("stored_body"))
    compressed = np.flatnonzero(block.sys_flag & _COMPRESSED)
    if not len(compressed):
        return stored
    # Imported here, because tasks without such bodies do not need the client.
    from kvcq_client.format import BodyError, decompress

    bodies = stored.to_pylist()
    for row in compressed.tolist():
        try:
            bodies[row] = decompress(bodies[row], int(block.sys_flag[row]))
        except BodyError:
            bodies[row] = None
    return pa.array(bodies, pa.binary())


def _properties(block: RecordBlock) -> pa.Array:
    """Properties except those that the store fills in. Slow: a Python loop over records."""
    texts = to_text(block.strings("properties_raw")).to_pylist()
    found = (decode_properties(text).items() for text in texts)
    items = [[item for item in one if item[0] not in OWN_PROPERTIES] for one in found]
    return pa.array(items, COMMITLOG.field("properties").type)


#: Functions for columns that are not just an array of numbers of the block.
_MAKERS: dict[str, Callable[[RecordBlock], pa.Array]] = {
    "topic": lambda block: to_text(block.strings("topic")),
    "timestamp": lambda block: pa.array(block.store_time_ms).cast(pa.timestamp("ms", "UTC")),
    "born_time_ms": lambda block: pa.array(block.head("born_time_ms")),
    "flag": lambda block: pa.array(block.head("flag")),
    "body_crc": lambda block: pa.array(block.head("body_crc")),
    "born_host": lambda block: _hosts(block.strings("born_host")),
    "store_host": lambda block: _hosts(block.strings("store_host")),
    "tag": _tag,
    "keys": _keys,
    "light_queues": lambda block: _lists(
        block.light_queues.rows, pa.array(block.light_queues.names, pa.string()), len(block)
    ),
    "light_offsets": lambda block: _lists(
        block.light_queues.rows, pa.array(block.light_queues.offsets), len(block)
    ),
    "body": _body,
    "stored_body": lambda block: to_binary(block.strings("stored_body")),
    "properties": _properties,
    "properties_raw": lambda block: to_binary(block.strings("properties_raw")),
    "record": lambda block: to_binary(block.strings("record")),
}
