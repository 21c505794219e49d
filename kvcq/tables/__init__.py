"""Rows of the derived database: keys, values, and what is done to many of them at once.

It uses the engine's protocol, and from the store values and formats. Nothing here knows a thread or
a lock of the store above.
"""

from kvcq.tables.dispatch_batch import DispatchBatchBuilder
from kvcq.tables.keys import (
    BOUNDS,
    DELETIONS_KEY,
    DISPATCHED_KEY,
    FAMILIES,
    INDEX,
    NO_TOPIC,
    UNITS,
    index_prefix,
    marks_range,
    max_key,
    max_range,
    name_range,
    pack_i64,
    queue_offset_of,
    time_and_offset_of,
    topic_prefix,
    topic_range,
    unit_key,
    unit_prefix,
    unpack_bounds_key,
    unpack_index_key,
    unpack_unit_key,
)
from kvcq.tables.last_units import last_units_between, restore_last_units
from kvcq.tables.min_offsets import MinOffsets
from kvcq.tables.removal import remove_range
from kvcq.tables.time_search import search_time
from kvcq.tables.truncate import truncate_rows
from kvcq.tables.values import (
    ROCKETMQ_UNIT_SIZE,
    UNIT_DTYPE,
    UNIT_SIZE,
    expiry_stamp,
    expiry_stamps,
    pack_max,
    unpack_i64,
    unpack_max,
    unpack_unit,
    unpack_units,
)

__all__ = [
    "BOUNDS",
    "DELETIONS_KEY",
    "DISPATCHED_KEY",
    "FAMILIES",
    "INDEX",
    "NO_TOPIC",
    "ROCKETMQ_UNIT_SIZE",
    "UNITS",
    "UNIT_DTYPE",
    "UNIT_SIZE",
    "DispatchBatchBuilder",
    "MinOffsets",
    "expiry_stamp",
    "expiry_stamps",
    "index_prefix",
    "last_units_between",
    "marks_range",
    "max_key",
    "max_range",
    "name_range",
    "pack_i64",
    "pack_max",
    "queue_offset_of",
    "remove_range",
    "restore_last_units",
    "search_time",
    "time_and_offset_of",
    "topic_prefix",
    "topic_range",
    "truncate_rows",
    "unit_key",
    "unit_prefix",
    "unpack_bounds_key",
    "unpack_i64",
    "unpack_index_key",
    "unpack_max",
    "unpack_unit",
    "unpack_unit_key",
    "unpack_units",
]
