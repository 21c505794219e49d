"""Numbers for operators that RocksDB keeps."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcq.engine.rocks.opening import Opened

BACKGROUND_ERRORS = "rocksdb.background-errors"
_FAMILY_PROPERTIES = {
    "estimated_keys": "rocksdb.estimate-num-keys",
    "sst_bytes": "rocksdb.live-sst-files-size",
    "memtable_bytes": "rocksdb.cur-size-all-mem-tables",
    "l0_files": "rocksdb.num-files-at-level0",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
    "immutable_memtables": "rocksdb.num-immutable-mem-table",
}
_DATABASE_PROPERTIES = {
    "running_flushes": "rocksdb.num-running-flushes",
    "running_compactions": "rocksdb.num-running-compactions",
    "write_stopped": "rocksdb.is-write-stopped",
    "delayed_write_bytes_per_s": "rocksdb.actual-delayed-write-rate",
    "background_errors": BACKGROUND_ERRORS,
}


def read_statistics(opened: Opened) -> dict[str, float]:
    """Per family `<family>.<name>`, the others of the database as a whole."""
    numbers = {
        f"{family}.{name}": float(table.property_int_value(key) or 0)
        for family, table in opened.tables.items()
        for name, key in _FAMILY_PROPERTIES.items()
    }
    for name, key in _DATABASE_PROPERTIES.items():
        numbers[name] = float(opened.db.property_int_value(key) or 0)
    return numbers
