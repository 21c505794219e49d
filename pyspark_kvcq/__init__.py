"""Spark looks for data sources in modules named like this one: `spark.read.format("kvcq")` works."""

from migration.spark.kvcq_source import KvcqSource as DefaultSource

__all__ = ["DefaultSource"]
