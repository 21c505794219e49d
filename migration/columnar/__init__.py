"""The log in columns: many records at a time, and the rows derived from them.

A second reader of the log, without a Python loop for each record; tests compare it with the store's
reader. Independent of Spark. `bulk_worker.py` is the main module of the process that writes sorted
files for a backfill; it is not part of the interface.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.columnar.block import RecordBlock
from migration.columnar.bulk_plan import BulkPlan
from migration.columnar.decoder import DEFAULTS, ReadOptions, read_blocks
from migration.columnar.derived_rows import IndexRows, UnitRows, derive, derive_index, places_of
from migration.columnar.errors import LogLayoutError
from migration.columnar.key_cuts import KeyCuts, plan_cuts, sample_log, whole_key
from migration.columnar.liveness import ALL_LIVE, Liveness, liveness_of
from migration.columnar.log_layout import (
    LogLayout,
    LogRange,
    Segment,
    advance,
    first_store_time,
    read_layout,
    split,
)
from migration.columnar.sorted_files import FAMILIES, LastUnits, row_keys, write_index, write_units
from migration.columnar.strings import Names, Strings
from migration.columnar.unaligned import Bools, Ints, gather, gather_ints

if TYPE_CHECKING:
    from migration.columnar.backup_log import backup_layout

__all__ = [
    "ALL_LIVE",
    "DEFAULTS",
    "FAMILIES",
    "Bools",
    "BulkPlan",
    "IndexRows",
    "Ints",
    "KeyCuts",
    "LastUnits",
    "Liveness",
    "LogLayout",
    "LogLayoutError",
    "LogRange",
    "Names",
    "ReadOptions",
    "RecordBlock",
    "Segment",
    "Strings",
    "UnitRows",
    "advance",
    "backup_layout",
    "derive",
    "derive_index",
    "first_store_time",
    "gather",
    "gather_ints",
    "liveness_of",
    "places_of",
    "plan_cuts",
    "read_blocks",
    "read_layout",
    "row_keys",
    "sample_log",
    "split",
    "whole_key",
    "write_index",
    "write_units",
]


def __getattr__(name: str) -> object:
    """Imports `backup_layout` on first use, since few processes read backups."""
    if name != "backup_layout":
        raise AttributeError(name)
    from migration.columnar.backup_log import backup_layout

    return backup_layout
