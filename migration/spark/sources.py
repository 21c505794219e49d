"""The data sources by name, for any Spark session."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def register_sources(session: SparkSession) -> None:
    """Make `commitlog` and the others known to `spark.read.format` of this session."""
    # Turned on here too: a session of somebody else may not have it, and would fail to filter.
    session.conf.set("spark.sql.python.filterPushdown.enabled", "true")
