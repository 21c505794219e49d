"""Reads state records of a log in Spark."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import pyarrow as pa

from migration.spark.columns import chosen, struct_of
from migration.spark.source import register_sources
from store.state import STATE_TOPIC, unpack_entries

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

    from store.state import Entry

_ROWS = 65_536
_STATE = ("physical_offset", "store_time_ms", "body")


def read_state(spark: SparkSession, path: Path | str) -> DataFrame:
    """The input of `entries_of`."""
    return read_log(spark, path, _STATE, topic=STATE_TOPIC)


def read_log(
    spark: SparkSession, path: Path | str, columns: Sequence[str], **options: str
) -> DataFrame:
    register_sources(spark)
    reader = spark.read.format("commitlog").schema(struct_of(chosen(*columns)))
    return reader.options(**options).load(str(path))


def entries_of(batches: Iterable[pa.RecordBatch]) -> Iterator[tuple[Entry, int, int]]:
    """Yield each entry, with physical offset and store time (ms) of its record."""
    for batch in batches:
        columns = (batch.column(name).to_pylist() for name in _STATE)
        for at, time_ms, body in zip(*columns, strict=True):
            for entry in unpack_entries(body):
                yield entry, at, time_ms


def batches_of(rows: Iterable[tuple[object, ...]], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Yield the rows in batches; without rows one empty batch."""
    left = iter(rows)
    while True:
        some = list(islice(left, _ROWS))
        columns = list(zip(*some, strict=True)) if some else [()] * len(schema)
        yield pa.RecordBatch.from_arrays(
            [pa.array(column, field.type) for column, field in zip(columns, schema, strict=True)],
            schema=schema,
        )
        if len(some) < _ROWS:
            return
