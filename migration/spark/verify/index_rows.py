"""Rows of the key index in RocksDB, in bulk, and key ranges to read them by."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.engine import LAST_KEY
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineFailedError
from kvcq.tables import INDEX, INDEX_KEY_BYTES, NUMBER_AT, TOPIC_AT
from migration.columnar import Strings, gather_ints, plan_cuts, sample_log, whole_key
from migration.spark.arrow import to_names, to_text
from migration.spark.errors import QueueLayoutError
from migration.spark.queues import read_rows
from migration.spark.verify.key_rows import KeyRows

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from migration.columnar import Liveness, LogLayout, Names

_STAMP_BYTES = 4


class IndexRange(NamedTuple):
    """Keys of the index from `start` to `end`, exclusive."""

    start: bytes
    end: bytes


def has_index(database: Path) -> bool:
    """Whether the database has a key index; RocketMQ's has none."""
    try:
        RocksEngine.open_read_only(database, DERIVED).close()
    except EngineFailedError:
        return False
    return True


def index_ranges(
    layout: LogLayout, end: int, liveness: Liveness, max_rows: int
) -> list[IndexRange]:
    """Ranges that cover all possible keys, of about `max_rows` rows each according to the log."""
    sample = sample_log(layout, layout.start, end, liveness)
    edges = plan_cuts(sample, end - layout.start, max_rows, 1).index_edges
    return [IndexRange(*pair) for pair in pairwise([b"", *map(whole_key, edges), LAST_KEY])]


def read_index(engine: RocksEngine, keys: IndexRange) -> Iterator[KeyRows]:
    """Yield rows of the range, in chunks, in key order. Raises QueueLayoutError."""
    for rows in read_rows(engine, keys, INDEX):
        found = Strings.of([key for key, _ in rows])
        data, starts, lengths = found.data, found.starts, found.lengths
        stamps = Strings.of([value for _, value in rows])
        if (stamps.lengths != _STAMP_BYTES).any():
            raise QueueLayoutError("a value of the key index is not an expiry stamp")
        if int(lengths.min()) < INDEX_KEY_BYTES:
            raise QueueLayoutError("an index key that is too short")
        topics = gather_ints(data, ">i4", starts)
        if ((topics < 0) | (topics > lengths - INDEX_KEY_BYTES)).any():
            raise QueueLayoutError("an index key whose topic length is wrong")
        if (
            gather_ints(data, ">i4", starts + NUMBER_AT + topics) + topics + INDEX_KEY_BYTES
            != lengths
        ).any():
            raise QueueLayoutError("an index key whose lengths do not add up")
        yield KeyRows(found, gather_ints(stamps.data, "<i4", stamps.starts))


def topics_of(rows: KeyRows) -> Names:
    begins = rows.keys.starts + TOPIC_AT
    lengths = gather_ints(rows.keys.data, ">i4", rows.keys.starts)
    return to_names(to_text(Strings(rows.keys.data, begins, begins + lengths)))


assert np.dtype("<i4").itemsize == _STAMP_BYTES
