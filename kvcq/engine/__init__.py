"""The key-value engine that the tables stand on, as a protocol with its batch.

`rocks/` keeps it on RocksDB, and has a door of its own: whoever imports this one loads no RocksDB.
"""

from kvcq.engine.paging import LAST_KEY, pages
from kvcq.engine.protocol import AnyRows, KvBatch, KvEngine, Pair, RowColumns

__all__ = [
    "LAST_KEY",
    "AnyRows",
    "KvBatch",
    "KvEngine",
    "Pair",
    "RowColumns",
    "pages",
]
