"""The log in columns: many records at a time, and what is derived from them.

A second reading of the log beside store's walk, tied to it by tests: a Python loop for each record
is what it avoids. Uses store and kvcq; knows nothing of Spark.
"""

from migration.columnar.block import RecordBlock
from migration.columnar.columns import COMMITLOG, CONSUMEQUEUE, MESSAGE, ddl
from migration.columnar.decoder import DEFAULTS, ReadOptions, read_batches, read_blocks
from migration.columnar.derived_rows import (
    INDEX_ROWS,
    UNIT_ROWS,
    derive,
    expiry_stamps,
    index_keys,
    unit_columns,
)
from migration.columnar.errors import LogDamageError, LogLayoutError
from migration.columnar.gather import Bytes, Ints, gather, gather_ints, slices
from migration.columnar.key_cuts import KeyCuts, plan_cuts, sample_log
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
from migration.columnar.text import as_text

__all__ = [
    "ALL_LIVE",
    "COMMITLOG",
    "CONSUMEQUEUE",
    "DEFAULTS",
    "INDEX_ROWS",
    "MESSAGE",
    "UNIT_ROWS",
    "Bytes",
    "Ints",
    "KeyCuts",
    "Liveness",
    "LogDamageError",
    "LogLayout",
    "LogLayoutError",
    "LogRange",
    "ReadOptions",
    "RecordBlock",
    "Segment",
    "advance",
    "as_text",
    "ddl",
    "derive",
    "expiry_stamps",
    "first_store_time",
    "gather",
    "gather_ints",
    "index_keys",
    "liveness_of",
    "plan_cuts",
    "read_batches",
    "read_blocks",
    "read_layout",
    "sample_log",
    "slices",
    "split",
    "unit_columns",
]
