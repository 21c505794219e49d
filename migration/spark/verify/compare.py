"""Compares consume queues with their log: log against file queues against RocksDB.

For RocksDB all three families are compared: units, the end of each queue, and the key index. First
each source gets a digest of 4096 buckets; if all are equal, nothing else is read. Otherwise the
units of differing buckets are joined by their keys, and each differing field becomes a row of
Parquet. Repairs nothing.

Sources are compared from the start of the log (everything below has expired) to a fixed physical
offset. A source may be ahead of that end, and grow meanwhile.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import dataclass
from functools import partial, reduce
from itertools import combinations
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from kvcq.consume_queue_store import KvConsumeQueueStore
from migration.columnar import ALL_LIVE, DEFAULTS, Liveness, ReadOptions, read_layout, split
from migration.formats import UNIT_SIZE
from migration.spark.columns import struct_of
from migration.spark.errors import SourceOptionError
from migration.spark.progress import watched
from migration.spark.queues import group_files, key_ranges, list_files, open_units
from migration.spark.verify.bounds import StoredEnds, bounds_differences
from migration.spark.verify.digest import Digest
from migration.spark.verify.exact import (
    DIFFERENCE_DDL,
    key_differences,
    unit_differences,
)
from migration.spark.verify.index_rows import IndexRange, has_index, index_ranges
from migration.spark.verify.result import SHOWN, Difference, VerifyResult
from migration.spark.verify.tasks import (
    FILES,
    KEY_SIDE,
    LOG,
    ROCKSDB,
    SIDE,
    Piece,
    VerifyTask,
    digest_pieces,
    join_digests,
    keys_in_buckets,
    rows_in_buckets,
)
from store.base import Progress, no_progress

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from pyspark.sql import DataFrame, SparkSession

    from kvcq.tables import Hashes


@dataclass(frozen=True, kw_only=True)
class VerifySettings:
    """What to compare: always the log, and files or a database, or both."""

    log: Path
    files: Path | None = None  # directory of the file queues
    database: Path | None = None  # a backup, or a closed database
    # Physical offset to stop at; None: the lower of the log's end and the database's checkpoint.
    end: int | None = None
    output: Path | None = None  # new directory for the differences, as Parquet
    liveness: Liveness = ALL_LIVE
    read: ReadOptions = DEFAULTS
    partition_bytes: int = 64 << 20
    units_per_partition: int = 1_000_000


def verify(
    spark: SparkSession, settings: VerifySettings, progress: Progress = no_progress
) -> VerifyResult:
    """Compare the sources. Raises SourceOptionError, LogLayoutError, QueueLayoutError,
    EngineFailedError."""
    began = time.monotonic()
    task, pieces, stored = _plan(settings)
    with watched(spark, "digest", progress):
        digests = _digests(spark, task, pieces)
    sides = {FILES: settings.files, ROCKSDB: settings.database}
    sources = [LOG, *(side for side, path in sides.items() if path is not None)]
    for source in sources:
        digests.setdefault(source, Digest())  # for an empty source, which has no pieces
    bad = _Bad(
        _bad_buckets(digests, sources),
        digests[LOG].keys.differing(digests[ROCKSDB].keys) if task.with_keys else _NONE,
        _NO_QUEUES if stored is None else stored.differing(digests[LOG].ends),
    )
    counts: Counter[str] = Counter()
    first: list[Difference] = []
    if any(map(len, bad)):
        with watched(spark, "differences", progress):
            found = _look_closer(spark, task, pieces, bad, sources, stored)
            counts, first = _summarised(found, settings.output)
    compared = (LOG, ROCKSDB) if task.with_keys else ()
    return VerifyResult(
        begin=task.begin,
        end=task.end,
        units={source: digests[source].units.count for source in sources},
        bad_buckets=len(np.union1d(bad.units, bad.keys)),
        differences=counts.total(),
        by_field=dict(sorted(counts.items())),
        first=[finding for each in first for finding in each.findings(task.liveness, sources)],
        output=settings.output if counts else None,
        seconds=time.monotonic() - began,
        queues=0 if stored is None else len(stored.by_queue),
        keys={source: digests[source].keys.count for source in compared},
    )


class _Bad(NamedTuple):
    """Buckets of units and of index rows, and queues, whose digests differ."""

    units: npt.NDArray[np.int64]
    keys: npt.NDArray[np.int64]
    queues: Hashes


_NONE = np.empty(0, dtype=np.int64)
_NO_QUEUES: Hashes = np.empty(0, dtype=np.uint64)


def _plan(settings: VerifySettings) -> tuple[VerifyTask, list[Piece], StoredEnds | None]:
    if settings.files is None and settings.database is None:
        raise SourceOptionError("files", "give file queues, a database, or both")
    layout = read_layout(settings.log, end=settings.end)
    end = layout.end
    database = settings.database
    task = VerifyTask(settings.liveness, settings.read, None, layout.start, end, with_keys=False)
    pieces: list[Piece] = []
    stored = None
    if database is not None:
        with open_units(database) as engine:
            if settings.end is None:
                end = min(end, KvConsumeQueueStore(engine).dispatched_offset)
            task = task._replace(database=str(database), end=end, with_keys=has_index(database))
            keys = key_ranges(engine, settings.units_per_partition)
            stored = StoredEnds(engine, task)
        pieces += [Piece(ROCKSDB, one) for one in keys]
    if task.with_keys:
        rows = index_ranges(layout, end, settings.liveness, settings.units_per_partition)
        pieces += [Piece(ROCKSDB, one) for one in rows]
    if settings.files is not None:
        files = list_files(settings.files)
        groups = group_files(files, settings.units_per_partition * UNIT_SIZE)
        pieces += [Piece(FILES, group) for group in groups]
    ranges = split(layout, layout.start, end, settings.partition_bytes)
    pieces += [Piece(LOG, one) for one in ranges]
    return task, pieces, stored


def _digests(spark: SparkSession, task: VerifyTask, pieces: list[Piece]) -> dict[str, Digest]:
    if not pieces:
        return {}
    parts = spark.sparkContext.parallelize(pieces, len(pieces))
    digests: dict[str, Digest] = parts.mapPartitions(partial(digest_pieces, task)).treeReduce(
        join_digests
    )
    return digests


def _bad_buckets(digests: dict[str, Digest], sources: list[str]) -> npt.NDArray[np.int64]:
    found: set[int] = set()
    for one, other in combinations(sources, 2):
        times = FILES not in (one, other)
        found.update(digests[one].differing(digests[other], times=times).tolist())
    return np.array(sorted(found), dtype=np.int64)


def _look_closer(
    spark: SparkSession,
    task: VerifyTask,
    pieces: list[Piece],
    bad: _Bad,
    sources: list[str],
    stored: StoredEnds | None,
) -> DataFrame:
    """All differences, as DIFFERENCE_DDL."""
    found = []
    without_keys = task._replace(with_keys=False)
    if len(bad.units):
        chosen = [piece for piece in pieces if not isinstance(piece.part, IndexRange)]
        units = _todo(spark, chosen).mapInArrow(
            partial(rows_in_buckets, without_keys, bad.units), struct_of(SIDE)
        )
        found.append(unit_differences(units, sources))
    if len(bad.keys):
        chosen = [
            piece for piece in pieces if isinstance(piece.part, IndexRange) or piece.source == LOG
        ]
        keys = _todo(spark, chosen).mapInArrow(
            partial(keys_in_buckets, task, bad.keys), struct_of(KEY_SIDE)
        )
        found.append(key_differences(keys))
    if len(bad.queues) and stored is not None:
        rows = bounds_differences(spark, without_keys, pieces, bad.queues, stored)
        found.append(spark.createDataFrame(rows, DIFFERENCE_DDL))
    return reduce(lambda one, other: one.union(other), found)


def _todo(spark: SparkSession, pieces: list[Piece]) -> DataFrame:
    pickled = [(pickle.dumps(piece),) for piece in pieces]
    return spark.sparkContext.parallelize(pickled, len(pickled)).toDF("piece binary")


def _summarised(found: DataFrame, output: Path | None) -> tuple[Counter[str], list[Difference]]:
    from pyspark.sql import functions as F

    found = found.cache()
    try:
        counts = Counter(
            {row.field: row["count"] for row in found.groupBy("field").count().collect()}
        )
        order = [F.asc_nulls_last(name) for name in ("topic", "queue_id", "queue_offset")]
        ordered = found.orderBy(*order, "field", "key", "log", "rocksdb")
        rows = ordered.limit(SHOWN).collect()
        if output is not None and counts:
            ordered.write.parquet(str(output))
    finally:
        found.unpersist()
    return counts, [Difference(*row) for row in rows]
