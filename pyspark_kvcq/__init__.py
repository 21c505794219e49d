"""Makes `spark.read.format("kvcq")` work: Spark looks for sources in modules named `pyspark_…`.

And what a notebook, or a program under spark-submit, imports: `verify`, `rebuild` and `export` on
the directory of a store; `read_deliveries`, `read_events` and `read_lag`: what shared groups did;
`read_timers` and `read_transactions`: what waits, or waited;
`register_sources` for `format("commitlog")` and `("consumequeue")`.
"""

from migration.spark.jobs import (
    choose,
    export,
    read_deliveries,
    read_events,
    read_lag,
    read_timers,
    read_transactions,
    rebuild,
    verify,
)
from migration.spark.source import KvcqSource as DefaultSource
from migration.spark.source import register_sources

__all__ = [
    "DefaultSource",
    "choose",
    "export",
    "read_deliveries",
    "read_events",
    "read_lag",
    "read_timers",
    "read_transactions",
    "rebuild",
    "register_sources",
    "verify",
]
