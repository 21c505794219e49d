"""kvcq spark: the pipeline on Spark, which has its commands beside it."""

from migration.spark.cli import spark

__all__ = ["spark"]
