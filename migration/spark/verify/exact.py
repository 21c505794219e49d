"""The detailed comparison of a verification: joins the rows of differing buckets. The result has a
row for each differing field, with the columns of Difference."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING

from migration.spark.verify.tasks import FILES, LOG, ROCKSDB

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_FIELDS = ("physical_offset", "record_size", "tag_code", "store_time_ms", "expiry_stamp_s")
_KEY = ("topic", "queue_id", "queue_offset")
_ROW = ("topic", "key", "store_time_ms", "physical_offset")
DIFFERENCE_DDL = (
    "topic string, queue_id int, queue_offset bigint, field string, log bigint, files bigint,"
    " rocksdb bigint, key string"
)


def unit_differences(units: DataFrame, sources: list[str]) -> DataFrame:
    """The differing fields of units."""
    from pyspark.sql import functions as F

    sides = []
    for source in sources:
        of_source = F.col("source") == source
        # If several records have the same place, the last in the log counts, as in live dispatch.
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
        for one, other in combinations(sources, 2):
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
        values = (value(source, name).alias(source) for source in (LOG, FILES, ROCKSDB))
        rows.append(F.when(differs(name), F.struct(F.lit(name).alias("field"), *values)))
    no_key = F.lit(None).cast("string").alias("key")
    exploded = joined.select(*_KEY, F.explode(F.array_compact(F.array(*rows))).alias("found"))
    return exploded.select(
        *_KEY, "found.field", "found.log", "found.files", "found.rocksdb", no_key
    )


def _has(source: str, name: str) -> bool:
    return source != FILES or name not in ("store_time_ms", "expiry_stamp_s")


def key_differences(rows: DataFrame) -> DataFrame:
    """Index rows that only one side has, and values that differ."""
    from pyspark.sql import functions as F

    def of(source: str) -> Column:
        return F.max(F.when(F.col("source") == source, F.col("expiry_stamp_s")))

    joined = rows.groupBy(*_ROW).agg(of(LOG).alias(LOG), of(ROCKSDB).alias(ROCKSDB))
    log, rocksdb, place = F.col(LOG), F.col(ROCKSDB), F.col("physical_offset")
    missing = log.isNull() | rocksdb.isNull()
    apart = joined.where(~log.eqNullSafe(rocksdb))
    return apart.select(
        "topic",
        F.lit(None).cast("int").alias("queue_id"),
        F.lit(None).cast("bigint").alias("queue_offset"),
        F.when(missing, F.lit("key")).otherwise(F.lit("key_stamp")).alias("field"),
        F.when(missing, F.when(log.isNotNull(), place)).otherwise(log).alias("log"),
        F.lit(None).cast("bigint").alias("files"),
        F.when(missing, F.when(rocksdb.isNotNull(), place)).otherwise(rocksdb).alias("rocksdb"),
        "key",
    )
