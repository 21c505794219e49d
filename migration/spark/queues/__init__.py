"""Queues on disk, in bulk: in files or RocksDB, kvcq's or RocketMQ's."""

from migration.spark.queues.unit_files import (
    QueueFile,
    file_batch,
    group_files,
    list_files,
    read_units,
)
from migration.spark.queues.unit_rows import KeyRange, key_ranges, open_units, read_rows, row_batch

__all__ = [
    "KeyRange",
    "QueueFile",
    "file_batch",
    "group_files",
    "key_ranges",
    "list_files",
    "open_units",
    "read_rows",
    "read_units",
    "row_batch",
]
