"""The data source `consumequeue`: units of consume queues, from files or from RocksDB.

| option               | default | meaning                                                       |
|----------------------|---------|---------------------------------------------------------------|
| path                 |         | file: the directory of the topics; rocksdb: of the database   |
| format               | file    | file or rocksdb                                               |
| maxUnitsPerPartition | 1000000 | a task reads about this many units                            |

Columns are those of columns.CONSUMEQUEUE; store_time_ms and expiry_stamp_s are null for files, and
the stamp for a database of RocketMQ. Rows are as on disk: expired units are included until they are
removed.

A database that a process has open must be read from a backup.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from migration.formats import UNIT_SIZE
from migration.spark.columns import CONSUMEQUEUE, struct_of
from migration.spark.queues import (
    file_batch,
    group_files,
    key_ranges,
    list_files,
    open_units,
    read_rows,
    read_units,
    row_batch,
)
from migration.spark.source.options import Options, wanted_columns

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


class QueueOptions(NamedTuple):
    """The options of the table above, validated."""

    path: Path
    format: str
    max_units_per_partition: int


class ConsumeQueueSource(DataSource):
    """The units of consume queues."""

    @classmethod
    def name(cls) -> str:
        return "consumequeue"

    def schema(self) -> StructType:
        return struct_of(CONSUMEQUEUE)

    def reader(self, schema: StructType) -> DataSourceReader:
        return ConsumeQueueReader(parse_options(self.options), schema)


def parse_options(options: Mapping[str, str]) -> QueueOptions:
    """Parse the options. Raises SourceOptionError."""
    given = Options(options)
    found = QueueOptions(
        path=Path(given.text("path")),
        format=given.choice("format", "file", ("file", "rocksdb")),
        max_units_per_partition=given.count("maxUnitsPerPartition", 1_000_000),
    )
    given.refuse_others()
    return found


class ConsumeQueueReader(DataSourceReader):
    """Reads all queues. A partition is some files of queues, or a range of keys."""

    def __init__(self, options: QueueOptions, schema: StructType) -> None:
        self._options = options
        self._columns = wanted_columns(schema, CONSUMEQUEUE, "consumequeue")

    def partitions(self) -> Sequence[InputPartition]:
        limit = self._options.max_units_per_partition
        if self._options.format == "file":
            files = list_files(self._options.path)
            return list(map(InputPartition, group_files(files, limit * UNIT_SIZE)))
        with open_units(self._options.path) as engine:
            return list(map(InputPartition, key_ranges(engine, limit)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        # Spark turns an empty list of partitions into one whose value is None.
        if isinstance(partition.value, list):
            for file in partition.value:
                for offsets, units in read_units(file):
                    yield file_batch(file, offsets, units, self._columns)
        elif partition.value is not None:
            with open_units(self._options.path) as engine:
                for rows in read_rows(engine, partition.value):
                    yield row_batch(rows, self._columns)
