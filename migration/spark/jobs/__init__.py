"""What `kvcq spark` and a notebook do with the directory of a store: functions of a session."""

from migration.spark.jobs.on_stores import choose, rebuild, verify
from migration.spark.jobs.report import gather_report
from migration.spark.jobs.report_page import render
from migration.spark.jobs.to_parquet import export

__all__ = ["choose", "export", "gather_report", "rebuild", "render", "verify"]
