"""Makes `spark.read.format("kvcq")` work: Spark looks for sources in modules named `pyspark_…`."""

from migration.spark.kvcq_source import KvcqSource as DefaultSource

__all__ = ["DefaultSource"]
