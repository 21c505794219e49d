"""Compare consume queues with the log they are made from: log against file queues against RocksDB.

First a digest of each source, in 4096 buckets; where all agree nothing else is read. Then the units
of the buckets that differ, joined by their keys, and each field that differs as a row of Parquet.
Nothing is repaired.

All sources are looked at between two physical offsets: from the start of the log (what is below is
expired) to a pinned end. A source may be ahead of that end, and grow while this runs.
"""

from __future__ import annotations

import pickle
import time
from collections import Counter
from dataclasses import dataclass, field
from functools import partial
from itertools import combinations
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from migration.cq_format import UNIT_SIZE
from migration.routes import SideName
from migration.spark.decoder import DEFAULTS, ReadOptions
from migration.spark.errors import SourceOptionError
from migration.spark.liveness import ALL_LIVE, Liveness
from migration.spark.log_layout import read_layout, split
from migration.spark.progress import Progress, no_progress, watched
from migration.spark.unit_digest import BUCKETS, UnitDigest
from migration.spark.unit_files import group_files, list_files
from migration.spark.unit_rows import key_ranges, open_units, read_checkpoint
from migration.spark.verify_tasks import (
    FILES,
    LOG,
    LOG_FOR_FILES,
    ROCKSDB,
    SIDE_DDL,
    Piece,
    VerifyTask,
    digest_pieces,
    join_digests,
    rows_in_buckets,
)

if TYPE_CHECKING:
    from pathlib import Path

    import numpy.typing as npt
    from pyspark.sql import Column, DataFrame, SparkSession

_FIELDS = ("physical_offset", "record_size", "tag_code", "store_time_ms", "expiry_stamp_s")
_KEY = ("topic", "queue_id", "queue_offset")
#: Differences that are kept for the summary.
_SHOWN = 20


@dataclass(frozen=True, kw_only=True)
class VerifySettings:
    """What to compare. The log always, and files or a database, or both."""

    log: Path
    files: Path | None = None  # directory of the file queues
    database: Path | None = None  # a backup, or a closed database
    end: int | None = None  # pinned end; else what the log and the database's checkpoint share
    output: Path | None = None  # new directory for the differences, as Parquet
    liveness: Liveness = ALL_LIVE
    read: ReadOptions = DEFAULTS
    partition_bytes: int = 64 << 20
    units_per_partition: int = 1_000_000


class Difference(NamedTuple):
    """One field of one unit that is not the same everywhere; None where there is no such value.

    The field `unit` stands for the whole of it: 1 where there is a unit, None where there is not.
    """

    topic: str
    queue_id: int
    queue_offset: int
    field: str
    log: int | None
    files: int | None
    rocksdb: int | None


@dataclass(frozen=True)
class VerifyResult:
    """What was compared, and what came out."""

    begin: int
    end: int
    units: dict[str, int]  # of each source
    bad_buckets: int
    differences: int
    by_field: dict[str, int]
    first: list[Difference] = field(default_factory=list)
    output: Path | None = None
    seconds: float = 0.0

    @property
    def equal(self) -> bool:
        return self.differences == 0

    def summary(self) -> str:
        """The result in some lines of text."""
        lines = [f"compared records from {self.begin} to {self.end} of the log"]
        lines += [f"  {source:14} {count:>14,} units" for source, count in self.units.items()]
        if self.equal:
            lines.append(f"equal, in {self.seconds:.1f} s")
            return "\n".join(lines)
        lines.append(f"{self.differences:,} differences in {self.bad_buckets} of {BUCKETS} buckets")
        lines += [f"  {name:16} {count:>10,}" for name, count in self.by_field.items()]
        for one in self.first:
            values = ", ".join(
                f"{source} {'none' if value is None else value}"
                for source, value in zip((LOG, FILES, ROCKSDB), one[4:], strict=True)
                if source in self.units or value is not None
            )
            place = f"{one.topic} queue {one.queue_id} offset {one.queue_offset}"
            lines.append(f"  {place}: {one.field}: {values}")
        if self.differences > len(self.first):
            lines.append(f"  and {self.differences - len(self.first):,} more")
        if self.output is not None:
            lines.append(f"all of them: {self.output}")
        return "\n".join(lines)

    def as_json(self) -> dict[str, Any]:
        """The same, for machines."""
        return {
            "equal": self.equal,
            "begin": self.begin,
            "end": self.end,
            "units": self.units,
            "bad_buckets": self.bad_buckets,
            "differences": self.differences,
            "by_field": self.by_field,
            "first": [one._asdict() for one in self.first],
            "output": None if self.output is None else str(self.output),
            "seconds": round(self.seconds, 3),
        }


def verify(
    spark: SparkSession, settings: VerifySettings, progress: Progress = no_progress
) -> VerifyResult:
    """Compare. Raises SourceOptionError, LogLayoutError, QueueLayoutError, EngineFailedError."""
    began = time.monotonic()
    task, pieces = _plan(settings)
    with watched(spark, "digest", progress):
        digests = _digests(spark, task, pieces)
    sides = {FILES: settings.files, ROCKSDB: settings.database}
    sources = [*_log_sources(settings), *(side for side, path in sides.items() if path is not None)]
    for source in sources:
        digests.setdefault(source, UnitDigest())  # one that holds nothing has no pieces
    bad = _bad_buckets(digests, sources)
    counts: Counter[str] = Counter()
    first: list[Difference] = []
    if len(bad):
        with watched(spark, "differences", progress):
            counts, first = _look_closer(spark, task, pieces, bad, sources, settings.output)
    return VerifyResult(
        begin=task.begin,
        end=task.end,
        units={source: digests[source].count for source in sources},
        bad_buckets=len(bad),
        differences=counts.total(),
        by_field=dict(sorted(counts.items())),
        first=first,
        output=settings.output if counts else None,
        seconds=time.monotonic() - began,
    )


def _plan(settings: VerifySettings) -> tuple[VerifyTask, list[Piece]]:
    if settings.files is None and settings.database is None:
        raise SourceOptionError("files", "name file queues, a database, or both")
    layout = read_layout(settings.log, end=settings.end)
    end = layout.end
    pieces: list[Piece] = []
    if settings.database is not None:
        with open_units(settings.database) as engine:
            if settings.end is None:
                end = min(end, read_checkpoint(engine))
            keys = key_ranges(engine, settings.units_per_partition)
        pieces += [Piece(ROCKSDB, one) for one in keys]
    if settings.files is not None:
        files = list_files(settings.files)
        groups = group_files(files, settings.units_per_partition * UNIT_SIZE)
        pieces += [Piece(FILES, group) for group in groups]
    ranges = split(layout, layout.start, end, settings.partition_bytes)
    for source in _log_sources(settings):
        pieces += [Piece(source, one) for one in ranges]
    database = None if settings.database is None else str(settings.database)
    return VerifyTask(settings.liveness, settings.read, database, layout.start, end), pieces


def _log_sources(settings: VerifySettings) -> list[str]:
    """The log as RocksDB has it, and where that is something else, as the files have it."""
    routes = settings.liveness.routes
    if routes is None or all(routes.takes_all(side) for side in SideName):
        return [LOG]
    both = {LOG: settings.database, LOG_FOR_FILES: settings.files}
    return [source for source, path in both.items() if path is not None]


def _digests(spark: SparkSession, task: VerifyTask, pieces: list[Piece]) -> dict[str, UnitDigest]:
    if not pieces:
        return {}
    parts = spark.sparkContext.parallelize(pieces, len(pieces))
    digests: dict[str, UnitDigest] = parts.mapPartitions(partial(digest_pieces, task)).treeReduce(
        join_digests
    )
    return digests


def _bad_buckets(digests: dict[str, UnitDigest], sources: list[str]) -> npt.NDArray[np.int64]:
    found: set[int] = set()
    for one, other in _comparable(sources):
        times = FILES not in (one, other)
        found.update(digests[one].differing(digests[other], times=times).tolist())
    return np.array(sorted(found), dtype=np.int64)


def _comparable(sources: list[str]) -> list[tuple[str, str]]:
    """Pairs of sources that hold the same units when all is well."""
    if LOG_FOR_FILES not in sources:
        return list(combinations(sources, 2))
    pairs = [(LOG_FOR_FILES, FILES), (LOG, ROCKSDB)]
    return [pair for pair in pairs if set(pair) <= set(sources)]


def _look_closer(
    spark: SparkSession,
    task: VerifyTask,
    pieces: list[Piece],
    buckets: npt.NDArray[np.int64],
    sources: list[str],
    output: Path | None,
) -> tuple[Counter[str], list[Difference]]:
    pickled = [(pickle.dumps(piece),) for piece in pieces]
    todo = spark.sparkContext.parallelize(pickled, len(pickled)).toDF("piece binary")
    units = todo.mapInArrow(partial(rows_in_buckets, task, buckets), SIDE_DDL)
    found = _differences(units, sources).cache()
    try:
        counts = Counter(
            {row.field: row["count"] for row in found.groupBy("field").count().collect()}
        )
        rows = found.orderBy(*_KEY, "field").limit(_SHOWN).collect()
        if output is not None and counts:
            found.orderBy(*_KEY, "field").write.parquet(str(output))
    finally:
        found.unpersist()
    return counts, [Difference(*row) for row in rows]


def _differences(units: DataFrame, sources: list[str]) -> DataFrame:
    """One row for each field that differs; columns of Difference."""
    from pyspark.sql import functions as F

    sides = []
    for source in sources:
        of_source = F.col("source") == source
        # Of several records for one place the last in the log counts, as with live dispatch.
        fields = F.when(of_source, F.struct(*_FIELDS))
        sides.append(F.max_by(fields, F.when(of_source, F.col("physical_offset"))).alias(source))
    joined = units.groupBy(*_KEY).agg(*sides)

    def value(source: str, name: str) -> Column:
        if source not in sources:
            return F.lit(None).cast("bigint")
        if name == "unit":
            return F.when(F.col(f"`{source}`").isNotNull(), F.lit(1)).cast("bigint")
        return F.col(f"`{source}`.{name}").cast("bigint")

    def differs(name: str) -> Column:
        found = F.lit(False)  # noqa: FBT003 - a value, no switch
        for one, other in _comparable(sources):
            if not (_has(one, name) and _has(other, name)):
                continue
            unlike = ~value(one, name).eqNullSafe(value(other, name))
            if name != "unit":
                unlike &= value(one, "unit").isNotNull() & value(other, "unit").isNotNull()
            found |= unlike
        if name == "expiry_stamp_s" and ROCKSDB in sources:
            # RocketMQ's database has no stamps.
            found &= value(ROCKSDB, name).isNotNull()
        return found

    rows = []
    for name in ("unit", *_FIELDS):
        in_log = F.coalesce(value(LOG, name), value(LOG_FOR_FILES, name)).alias(LOG)
        values = (in_log, *(value(source, name).alias(source) for source in (FILES, ROCKSDB)))
        rows.append(F.when(differs(name), F.struct(F.lit(name).alias("field"), *values)))
    exploded = joined.select(*_KEY, F.explode(F.array_compact(F.array(*rows))).alias("found"))
    return exploded.select(*_KEY, "found.field", "found.log", "found.files", "found.rocksdb")


def _has(source: str, name: str) -> bool:
    return source != FILES or name not in ("store_time_ms", "expiry_stamp_s")
