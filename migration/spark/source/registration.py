"""Registers the data sources that read a store's files by name, for any Spark session.

`kvcq` is known to every session: see pyspark_kvcq.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(session: SparkSession) -> None:
    """Make `commitlog` and `consumequeue` available to `spark.read.format` of this session."""
    from migration.spark.source.commitlog_source import CommitLogSource
    from migration.spark.source.consumequeue_source import ConsumeQueueSource

    # Off by default; then a query on a reader that supports push-down fails.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    session.dataSource.register(CommitLogSource)
    session.dataSource.register(ConsumeQueueSource)
