"""Units of a consume queue in RocksDB, in bulk, from a backup or a closed database.

Reads kvcq's and RocketMQ's databases: their keys are equal, and RocketMQ's values lack the expiry
stamp at the end.
"""

from __future__ import annotations

from contextlib import closing, contextmanager
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pyarrow as pa

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine import LAST_KEY, pages
from kvcq.engine.rocks import DERIVED, ROCKETMQ, RocksEngine
from kvcq.errors import EngineFailedError
from kvcq.tables import (
    NUMBER_AT,
    OFFSET_BYTES,
    ROCKETMQ_UNIT_SIZE,
    TOPIC_AT,
    UNIT_DTYPE,
    UNIT_KEY_BYTES,
    UNIT_SIZE,
    UNITS,
    unit_key,
)
from migration.columnar import Strings, gather, gather_ints
from migration.spark.arrow import batch_of, to_text
from migration.spark.errors import QueueLayoutError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from kvcq.engine import Pair


_SCAN_ROWS = 32_768

#: The common part of both values.
_UNIT = np.dtype(UNIT_DTYPE.descr[:-1])
assert _UNIT.itemsize == ROCKETMQ_UNIT_SIZE


class KeyRange(NamedTuple):
    """Keys from `start` to `end`, exclusive."""

    start: bytes
    end: bytes


@contextmanager
def open_units(path: Path) -> Iterator[RocksEngine]:
    """Open the database for reading in the block. Does not change `path`. Raises
    EngineFailedError."""
    try:
        engine = RocksEngine.open_read_only(path, DERIVED)
    except EngineFailedError:
        engine = RocksEngine.open_read_only(path, ROCKETMQ)
    with closing(engine):
        yield engine


def key_ranges(engine: RocksEngine, max_units: int) -> list[KeyRange]:
    """Ranges that cover all possible keys, of about `max_units` units each.

    Split by the `max` rows. Units of queues without such a row are in some range, too.
    """
    cuts: list[bytes] = []
    size = 0
    for topic, queue_id, last, _ in KvConsumeQueueStore(engine).last_units():
        units = last + 1
        if size + units <= max_units:
            size += units
            continue
        # Cut before the queue, and inside a large queue.
        if size:
            cuts.append(unit_key(topic, queue_id, 0))
        cuts.extend(
            unit_key(topic, queue_id, offset) for offset in range(max_units, units, max_units)
        )
        size = units % max_units or max_units
    edges = [b"", *cuts, LAST_KEY]
    return [KeyRange(start, end) for start, end in pairwise(edges)]


def read_rows(
    engine: RocksEngine, keys: tuple[bytes, bytes], family: str = UNITS
) -> Iterator[list[Pair]]:
    """Yield rows from the first key to the second, exclusive, in chunks, in key order."""
    yield from pages(engine, family, *keys, rows=_SCAN_ROWS)


def row_batch(rows: list[Pair], schema: pa.Schema) -> pa.RecordBatch:
    """The columns of `schema` (see columns.CONSUMEQUEUE). Raises QueueLayoutError."""
    keys = Strings.of([key for key, _ in rows])
    values = Strings.of([value for _, value in rows])
    sizes = values.lengths
    if not np.isin(sizes, (UNIT_SIZE, ROCKETMQ_UNIT_SIZE)).all():
        raise QueueLayoutError(f"a unit of {int(sizes.max())} or {int(sizes.min())} bytes")
    if int(keys.lengths.min()) < UNIT_KEY_BYTES:
        raise QueueLayoutError("a unit key that is too short")
    topics = gather_ints(keys.data, ">i4", keys.starts)
    if not np.array_equal(topics, keys.lengths - UNIT_KEY_BYTES):
        raise QueueLayoutError("a unit key whose topic length is wrong")
    names_at = keys.starts + TOPIC_AT
    units = gather(values.data, _UNIT, values.starts)
    stamped = sizes == UNIT_SIZE
    stamps = gather_ints(values.data, "<i4", values.ends - 4)
    columns = {name: units[name] for name in units.dtype.names or ()} | {
        "topic": to_text(Strings(keys.data, names_at, names_at + topics)),
        "queue_id": gather_ints(keys.data, ">i4", keys.starts + NUMBER_AT + topics),
        "queue_offset": gather_ints(keys.data, ">i8", keys.ends - OFFSET_BYTES),
        "expiry_stamp_s": pa.array(stamps, mask=~stamped),
    }
    return batch_of(schema, len(rows), columns)
