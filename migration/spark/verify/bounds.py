"""Compares the `max` rows of RocksDB with the ends of the queues in the log."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from kvcq.consume_queue_store import KvConsumeQueueStore
from migration.spark.columns import CONSUMEQUEUE
from migration.spark.verify.digest import hashes_of_queues
from migration.spark.verify.queue_ends import EndsByHash, differing
from migration.spark.verify.result import Difference
from migration.spark.verify.tasks import LOG, ends_of_queues

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from kvcq.engine.rocks import RocksEngine
    from kvcq.tables import Hashes
    from migration.spark.verify.tasks import Piece, VerifyTask

End = tuple[int, int]  # physical offset and queue offset of a last unit
_ENDS = pa.schema([CONSUMEQUEUE.field(name) for name in ("physical_offset", "queue_offset")])


class StoredEnds:
    """The `max` rows of all queues. Memory: some hundred bytes for each."""

    def __init__(self, engine: RocksEngine, task: VerifyTask) -> None:
        rows = list(KvConsumeQueueStore(engine).last_units())
        topics = pa.array([row[0] for row in rows], pa.string())
        hashes = hashes_of_queues(topics, pa.array([row[1] for row in rows], pa.int32()))
        places = np.array([row[3] for row in rows], dtype=np.int64)
        # Queues that continued after the pinned end: their rows cannot be compared.
        self._beyond = hashes[places >= task.end]
        # Places below the log's start are expired.
        kept = (places >= task.begin) & (places < task.end)
        chosen = [rows[row] for row in np.flatnonzero(kept).tolist()]
        self.by_queue = {
            (topic, queue_id): (place, last) for topic, queue_id, last, place in chosen
        }
        self.ends = EndsByHash()
        offsets = np.array([last for _, _, last, _ in chosen], dtype=np.int64)
        columns = [pa.array(places[kept]), pa.array(offsets)]
        self.ends.add(hashes[kept], pa.RecordBatch.from_arrays(columns, schema=_ENDS))

    def differing(self, log: EndsByHash) -> Hashes:
        """Queues whose row differs from the log."""
        found = differing(log, self.ends)
        return found[~np.isin(found, self._beyond)]


def bounds_differences(
    spark: SparkSession,
    task: VerifyTask,
    pieces: list[Piece],
    queues: Hashes,
    stored: StoredEnds,
) -> list[Difference]:
    """The differences of queues with these hashes, field by field."""
    log: dict[tuple[str, int], End] = {}
    mine = [piece for piece in pieces if piece.source == LOG]
    if mine:
        parts = spark.sparkContext.parallelize(mine, len(mine))
        found = parts.mapPartitions(partial(ends_of_queues, task, queues)).collect()
        for topic, queue_id, place, offset in found:
            known = log.get((topic, queue_id))
            if known is None or known[0] < place:
                log[topic, queue_id] = place, offset
    rows = []
    wanted = set(queues.tolist())
    for topic, queue_id in log.keys() | _named(stored, wanted):
        one, other = log.get((topic, queue_id)), stored.by_queue.get((topic, queue_id))
        for field, at in (("max_offset", 1), ("max_place", 0)):
            left = None if one is None else one[at]
            right = None if other is None else other[at]
            if left != right:
                rows.append(Difference(topic, queue_id, None, field, left, None, right))
    return rows


def _named(stored: StoredEnds, wanted: set[int]) -> set[tuple[str, int]]:
    names = list(stored.by_queue)
    topics = pa.array([topic for topic, _ in names], pa.string())
    hashes = hashes_of_queues(topics, pa.array([queue_id for _, queue_id in names], pa.int32()))
    return {name for name, found in zip(names, hashes.tolist(), strict=True) if found in wanted}
