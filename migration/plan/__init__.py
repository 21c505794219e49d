"""The inventory of a RocketMQ store before anything is changed, and a dry run. Read-only."""

from migration.plan.layouts import (
    detect_layout,
    detect_segment_bytes,
    layout_given,
    refuse_other_layouts,
)
from migration.plan.legacy import Inventory, find_live_records
from migration.plan.log_survey import segment_files
from migration.plan.note import inventory_for_start
from migration.plan.plan import Plan, plan_directory, plan_live
from migration.plan.queue_evidence import OWN_ROCKSDB, end_of_own_rocksdb, own_rocksdb

__all__ = [
    "OWN_ROCKSDB",
    "Inventory",
    "Plan",
    "detect_layout",
    "detect_segment_bytes",
    "end_of_own_rocksdb",
    "find_live_records",
    "inventory_for_start",
    "layout_given",
    "own_rocksdb",
    "plan_directory",
    "plan_live",
    "refuse_other_layouts",
    "segment_files",
]
