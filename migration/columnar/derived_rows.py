"""What dispatch derives from a block of records, as columns: units and index keys.

Same rows, byte for byte, as kvcq/tables/dispatch_batch.py writes; that module is the definition.

Units, in log order: prefix (binary: the unit key without its queue offset), queue_offset,
physical_offset, record_size (i32), tag_code, store_time_ms.
Index: key (binary: the whole row key); its value follows from it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kvcq.tables import NO_TOPIC, topic_prefix, unit_prefix
from migration.state import SideName
from store.format import TRANSACTION_MASK, TRANSACTION_ROLLBACK

if TYPE_CHECKING:
    import numpy.typing as npt

    from migration.columnar.block import RecordBlock
    from migration.columnar.gather import Ints
    from migration.columnar.liveness import Liveness

    Bools = npt.NDArray[np.bool_]

UNIT_ROWS = pa.schema(
    [
        ("prefix", pa.binary()),
        ("queue_offset", pa.int64()),
        ("physical_offset", pa.int64()),
        ("record_size", pa.int32()),
        ("tag_code", pa.int64()),
        ("store_time_ms", pa.int64()),
    ]
)
_LAST_STAMP = (1 << 31) - 1

INDEX_ROWS = pa.schema([("key", pa.binary())])


class DerivedRows(NamedTuple):
    """Rows of both families."""

    units: pa.RecordBatch
    index: pa.RecordBatch


def derive(block: RecordBlock, liveness: Liveness) -> DerivedRows:
    """Units and index keys for RocksDB; dead and poison records give none."""
    alive = _alive(block, liveness)
    places = _places(block, alive, liveness, SideName.ROCKSDB)
    alive &= liveness.takes(SideName.ROCKSDB, block.topic)
    columns = [_unit_prefixes(places.topics, places.queue_ids), pa.array(places.offsets)]
    columns += [block.column(name).take(pa.array(places.rows)) for name in UNIT_ROWS.names[2:]]
    return DerivedRows(pa.RecordBatch.from_arrays(columns, schema=UNIT_ROWS), _index(block, alive))


def index_keys(block: RecordBlock, liveness: Liveness) -> pa.BinaryArray:
    """Keys of the index rows for RocksDB alone."""
    alive = _alive(block, liveness) & liveness.takes(SideName.ROCKSDB, block.topic)
    return _index(block, alive).column("key")


def unit_columns(
    block: RecordBlock, liveness: Liveness, side: SideName, schema: pa.Schema
) -> pa.RecordBatch:
    """The units for one side, with the columns of `schema` (see columns.CONSUMEQUEUE)."""
    places = _places(block, _alive(block, liveness), liveness, side)
    rows = pa.array(places.rows)
    columns = []
    for field in schema:
        if field.name == "topic":
            columns.append(places.topics)
        elif field.name == "queue_id":
            columns.append(pa.array(places.queue_ids))
        elif field.name == "queue_offset":
            columns.append(pa.array(places.offsets))
        elif field.name == "expiry_stamp_s":
            stamps = expiry_stamps(np.asarray(block.store_time_ms)[places.rows])
            columns.append(pa.array(stamps.astype(np.int32)))
        else:
            columns.append(block.column(field.name).take(rows))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def expiry_stamps(store_times_ms: Ints) -> Ints:
    """As kvcq.tables.values.expiry_stamp, in bulk, as numbers."""
    return np.clip(store_times_ms // 1000, 0, _LAST_STAMP)


class _Places(NamedTuple):
    """Where units stand: for each, its record's row in the block, and its key."""

    rows: Ints
    topics: pa.StringArray
    queue_ids: npt.NDArray[np.int32]
    offsets: Ints


def _alive(block: RecordBlock, liveness: Liveness) -> Bools:
    return liveness.of_topics(block.topic, np.asarray(block.physical_offset)) & _sound(block)


def _sound(block: RecordBlock) -> Bools:
    """Not poison: dispatch passes over what no queue can hold."""
    sound: Bools = np.asarray(block.queue_id) >= 0
    sound &= np.asarray(block.queue_offset) >= 0
    sound &= ~block.undecodable()
    return sound


def _places(block: RecordBlock, alive: Bools, liveness: Liveness, side: SideName) -> _Places:
    rows = np.flatnonzero(alive & np.asarray(block.in_queue) & liveness.takes(side, block.topic))
    topics = block.topic.take(pa.array(rows))
    queue_ids = np.asarray(block.queue_id)[rows]
    offsets = np.asarray(block.queue_offset)[rows]
    # Also of records whose own topic is gone: else their light queues would have holes.
    light_rows, names, light_offsets = _exploded(block, _sound(block), liveness, side)
    if len(light_rows):
        rows = np.concatenate([rows, light_rows])
        topics = pa.concat_arrays([topics, names])
        queue_ids = np.concatenate([queue_ids, np.zeros(len(light_rows), dtype=np.int32)])
        offsets = np.concatenate([offsets, light_offsets])
    return _Places(rows, topics, queue_ids, offsets)


def _exploded(
    block: RecordBlock, sound: Bools, liveness: Liveness, side: SideName
) -> tuple[Ints, pa.StringArray, Ints]:
    """Record, name and offset for each light queue that a record stands in."""
    names = block.light_queues.flatten()
    rows = np.asarray(pc.list_parent_indices(block.light_queues), dtype=np.int64)
    offsets = np.asarray(block.light_offsets.flatten())
    if not len(rows):
        return rows, names, offsets
    kept = sound[rows] & liveness.of_light(names, np.asarray(block.physical_offset)[rows])
    kept &= liveness.takes(side, names)
    return rows[kept], names.filter(pa.array(kept)), offsets[kept]


def _unit_prefixes(topics: pa.StringArray, queue_ids: npt.NDArray[np.int32]) -> pa.BinaryArray:
    """Queues are few, records many: each prefix is made once."""
    if not len(topics):
        return pa.array([], pa.binary())
    encoded = topics.dictionary_encode()
    names = encoded.dictionary.to_pylist()
    codes = np.asarray(encoded.indices, dtype=np.int64)
    queues, which = np.unique(codes << 32 | queue_ids, return_inverse=True)
    prefixes = [unit_prefix(names[queue >> 32], queue & 0xFFFFFFFF) for queue in queues.tolist()]
    return pa.array(prefixes, pa.binary()).take(pa.array(which))


def _index(block: RecordBlock, alive: Bools) -> pa.RecordBatch:
    keys = block.keys.flatten()
    rows = np.asarray(pc.list_parent_indices(block.keys), dtype=np.int64)
    if not alive.all():
        kept = alive[rows]
        rows, keys = rows[kept], keys.filter(pa.array(kept))
    raw = keys.cast(pa.binary())
    mark_rows, marks = _marks(block)
    if not len(rows) + len(mark_rows):
        return pa.RecordBatch.from_arrays([pa.array([], pa.binary())], schema=INDEX_ROWS)
    encoded = block.topic.take(pa.array(rows)).dictionary_encode()
    prefixes = [topic_prefix(name) for name in encoded.dictionary.to_pylist()]
    starts = pa.array(prefixes, pa.binary()).take(encoded.indices)
    if len(mark_rows):
        rows = np.concatenate([rows, mark_rows])
        raw = pa.concat_arrays([raw, pa.array(marks, pa.binary())])
        starts = pa.concat_arrays([starts, pa.array([NO_TOPIC] * len(marks), pa.binary())])
    before = np.empty(len(rows), dtype=[("key_length", ">i4"), ("separator", "u1")])
    before["key_length"] = np.asarray(pc.binary_length(raw))
    before["separator"] = 1
    after = np.empty(len(rows), dtype=[("separator", "u1"), ("time", ">i8"), ("place", ">i8")])
    after["separator"] = 1
    after["time"] = np.asarray(block.store_time_ms)[rows]
    after["place"] = np.asarray(block.physical_offset)[rows]
    joined = pc.binary_join_element_wise(
        starts,
        fixed_binary(before),
        raw,
        fixed_binary(after),
        b"",
    )
    return pa.RecordBatch.from_arrays([joined], schema=INDEX_ROWS)


def _marks(block: RecordBlock) -> tuple[Ints, list[bytes]]:
    """Rows that begin numbered batches, and their keys: of no topic, so of dead ones too."""
    rows, marks = block.marks()
    if not len(rows):
        return rows, marks
    indexed = (np.asarray(block.sys_flag) & TRANSACTION_MASK) != TRANSACTION_ROLLBACK
    kept = (_sound(block) & indexed)[rows]
    return rows[kept], [mark for mark, keep in zip(marks, kept.tolist(), strict=True) if keep]


def fixed_binary(items: npt.NDArray[np.void]) -> pa.BinaryArray:
    """The bytes of each item, as a column."""
    bounds = np.arange(len(items) + 1, dtype=np.int32) * items.dtype.itemsize
    return pa.Array.from_buffers(
        pa.binary(), len(items), [None, pa.py_buffer(bounds), pa.py_buffer(items)]
    )
