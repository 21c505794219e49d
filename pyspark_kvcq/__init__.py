"""Makes `spark.read.format("kvcq")` work: Spark looks for sources in modules named `pyspark_…`.

And what a notebook, or a program under spark-submit, imports: `verify`, `rebuild` and `export` on
the directory of a store, `register_sources` for `format("commitlog")` and `("consumequeue")`.
"""

from migration.spark.export import export
from migration.spark.jobs import choose, rebuild, verify
from migration.spark.kvcq_source import KvcqSource as DefaultSource
from migration.spark.sources import register_sources

__all__ = ["DefaultSource", "choose", "export", "rebuild", "register_sources", "verify"]
