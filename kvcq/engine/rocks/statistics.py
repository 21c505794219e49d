"""RocksDB's metrics for operators."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcq.engine.rocks.opening import Opened

BACKGROUND_ERRORS = "rocksdb.background-errors"
_MEMTABLE_BYTES = "rocksdb.cur-size-all-mem-tables"
_FAMILY_PROPERTIES = {
    "estimated_keys": "rocksdb.estimate-num-keys",
    "sst_bytes": "rocksdb.live-sst-files-size",
    "memtable_bytes": _MEMTABLE_BYTES,
    "l0_files": "rocksdb.num-files-at-level0",
    "pending_compaction_bytes": "rocksdb.estimate-pending-compaction-bytes",
    "immutable_memtables": "rocksdb.num-immutable-mem-table",
}
#: By reason: how often writes were to be delayed, and how often to be stopped. Ours are rejected
#: then.
_STALLS = {
    "stalls_l0_files": "l0-file-count-limit",
    "stalls_memtables": "memtable-limit",
    "stalls_pending_compaction": "pending-compaction-bytes",
}
_DATABASE_PROPERTIES = {
    "running_flushes": "rocksdb.num-running-flushes",
    "running_compactions": "rocksdb.num-running-compactions",
    "write_stopped": "rocksdb.is-write-stopped",
    "delayed_write_bytes_per_s": "rocksdb.actual-delayed-write-rate",
    "background_errors": BACKGROUND_ERRORS,
}
#: Counters of the whole database since it was opened, if the profile sets `statistics`.
_TICKERS = {
    "block_cache_hits": "rocksdb.block.cache.hit",
    "block_cache_misses": "rocksdb.block.cache.miss",
    "bytes_written": "rocksdb.bytes.written",
    "bytes_read": "rocksdb.bytes.read",
    "keys_read": "rocksdb.number.keys.read",
    "writes_self": "rocksdb.write.self",
    "writes_other": "rocksdb.write.other",
    "blocks_compressed": "rocksdb.number.block.compressed",
}
_TICKER = re.compile(r"^(\S+) COUNT : (\d+)$", re.MULTILINE)
_STALL = re.compile(r"([\w-]+): (\d+)")


def memtable_bytes(opened: Opened) -> int:
    """Size of the memtables of all families."""
    return sum(
        int(table.property_int_value(_MEMTABLE_BYTES) or 0) for table in opened.tables.values()
    )


def read_statistics(opened: Opened) -> dict[str, float]:
    """Metrics by name: `<family>.<name>` per family, plain names for the whole database."""
    numbers = {
        f"{family}.{name}": float(table.property_int_value(key) or 0)
        for family, table in opened.tables.items()
        for name, key in _FAMILY_PROPERTIES.items()
    }
    for family, table in opened.tables.items():
        stalls = dict(_STALL.findall(table.property_value("rocksdb.cf-write-stall-stats") or ""))
        for name, cause in _STALLS.items():
            numbers[f"{family}.{name}"] = float(
                sum(int(stalls.get(f"{cause}-{what}", 0)) for what in ("delays", "stops"))
            )
    for name, key in _DATABASE_PROPERTIES.items():
        numbers[name] = float(opened.db.property_int_value(key) or 0)
    tickers = dict(_TICKER.findall(opened.options.get_statistics() or ""))
    if tickers:
        numbers |= {name: float(tickers[key]) for name, key in _TICKERS.items()}
    return numbers
