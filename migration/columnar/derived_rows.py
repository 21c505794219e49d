"""The rows that dispatch derives from a block of records, as columns: units and index rows.

The rows are byte for byte those of kvcq/tables/dispatch_batch.py, which is the definition.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.tables import NO_TOPIC, topic_prefix, unit_prefix
from migration.columnar.strings import Names, Strings

if TYPE_CHECKING:
    from collections.abc import Sequence

    from migration.columnar.block import RecordBlock
    from migration.columnar.liveness import Liveness
    from migration.columnar.unaligned import Bools, Ints


class UnitRows(NamedTuple):
    """Units in log order. `prefixes`: the common part of each queue's unit keys."""

    prefixes: list[bytes]
    queues: Ints  # indices of prefixes
    queue_offset: Ints
    physical_offset: Ints
    record_size: Ints
    tag_code: Ints
    store_time_ms: Ints

    def take(self, rows: Ints) -> UnitRows:
        queues, prefixes = _used(self.queues[rows], self.prefixes)
        return UnitRows(prefixes, queues, *(column[rows] for column in self[2:]))


class IndexRows(NamedTuple):
    """Rows of the key index. `prefixes`: the common part of each topic's keys."""

    prefixes: list[bytes]
    topics: Ints  # indices of prefixes
    keys: Strings
    store_time_ms: Ints
    physical_offset: Ints

    def take(self, rows: Ints) -> IndexRows:
        topics, prefixes = _used(self.topics[rows], self.prefixes)
        times, places = self.store_time_ms[rows], self.physical_offset[rows]
        return IndexRows(prefixes, topics, self.keys[rows], times, places)


class DerivedRows(NamedTuple):
    """Rows of both families."""

    units: UnitRows
    index_rows: IndexRows
    records: int  # number of records with a unit


class Places(NamedTuple):
    """Places of units: for each unit the row of its record in the block, and its key."""

    rows: Ints
    names: Names
    queue_ids: Ints
    offsets: Ints


def derive(block: RecordBlock, liveness: Liveness) -> DerivedRows:
    """Units and index rows for RocksDB; dead and poison records have none."""
    places = places_of(block, liveness)
    rows = places.rows
    values = (block.physical_offset, block.record_size, block.tag_code, block.store_time_ms)
    units = UnitRows(*_queues(places), places.offsets, *(column[rows] for column in values))
    records = np.count_nonzero(np.bincount(rows))
    return DerivedRows(units, derive_index(block, liveness), int(records))


def derive_index(block: RecordBlock, liveness: Liveness) -> IndexRows:
    """Only the index rows for RocksDB."""
    topics = block.topic_names
    alive = _alive(block, liveness)
    rows, keys = block.keys
    if not alive.all():
        kept = alive[rows]
        rows, keys = rows[kept], keys[kept]
    codes = topics.codes[rows]
    prefixes = [topic_prefix(name) for name in topics.values]
    mark_rows, marks = _marks(block)
    if marks:
        # Keys of batches belong to no topic, independent of their record's topic.
        keys = Strings.of([*keys.tolist(), *marks])
        codes = np.concatenate([codes, np.full(len(marks), len(prefixes))])
        rows = np.concatenate([rows, mark_rows])
        prefixes.append(NO_TOPIC)
    return IndexRows(prefixes, codes, keys, block.store_time_ms[rows], block.physical_offset[rows])


def places_of(block: RecordBlock, liveness: Liveness) -> Places:
    """The places of the block's records in queues and light queues."""
    topics = block.topic_names
    rows = np.flatnonzero(_alive(block, liveness) & block.in_queue)
    own = Places(rows, topics[rows], block.queue_id[rows], block.queue_offset[rows])
    if not block.light_queues.names:
        return own
    # Includes records of deleted topics: otherwise their light queues would have gaps.
    light_rows, light_names, offsets = block.light_queues
    names = Names.of(light_names)
    kept = _sound(block)[light_rows]
    kept &= liveness.of_light(names, block.physical_offset[light_rows])
    codes = np.concatenate([own.names.codes, names.codes[kept] + len(topics.values)])
    return Places(
        np.concatenate([rows, light_rows[kept]]),
        Names(codes, topics.values + names.values),
        np.concatenate([own.queue_ids, np.zeros(kept.sum(), dtype=np.int64)]),
        np.concatenate([own.offsets, offsets[kept]]),
    )


def _alive(block: RecordBlock, liveness: Liveness) -> Bools:
    return liveness.of_topics(block.topic_names, block.physical_offset) & _sound(block)


def _sound(block: RecordBlock) -> Bools:
    """The records that dispatch does not skip: not poison, and with a valid place in a queue."""
    return (block.queue_id >= 0) & (block.queue_offset >= 0) & ~block.undecodable


def _queues(places: Places) -> tuple[list[bytes], Ints]:
    """The distinct prefixes, and each unit's index. Each prefix is computed once, because there are
    few queues and many records."""
    names = places.names.values
    queues, which = np.unique(places.names.codes << 32 | places.queue_ids, return_inverse=True)
    return [unit_prefix(names[each >> 32], each & 0xFFFFFFFF) for each in queues.tolist()], which


def _marks(block: RecordBlock) -> tuple[Ints, list[bytes]]:
    """Rows that begin numbered batches, and the batches' keys. Includes dead records, because
    batches belong to no topic."""
    rows, marks = block.marks()
    kept = (_sound(block) & block.indexed)[rows]
    return rows[kept], [mark for mark, keep in zip(marks, kept.tolist(), strict=True) if keep]


def _used(codes: Ints, values: Sequence[bytes]) -> tuple[Ints, list[bytes]]:
    """Codes and values without values that do not occur."""
    used = np.flatnonzero(np.bincount(codes, minlength=len(values)))
    numbers = np.zeros(len(values), dtype=np.int64)
    numbers[used] = np.arange(len(used))
    return numbers[codes], [values[number] for number in used.tolist()]
