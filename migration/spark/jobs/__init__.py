"""Jobs on a store's directory, for `kvcq spark` and notebooks, as functions of a session."""

from migration.spark.jobs.deliveries import read_deliveries, read_events, read_lag
from migration.spark.jobs.on_stores import choose, rebuild, verify
from migration.spark.jobs.to_parquet import export
from migration.spark.jobs.waiting import read_timers, read_transactions

__all__ = [
    "choose",
    "export",
    "read_deliveries",
    "read_events",
    "read_lag",
    "read_timers",
    "read_transactions",
    "rebuild",
    "verify",
]
