"""The protocol of the key-value engine below the tables, and its batch.

`rocks/` implements it on RocksDB and is imported separately, so importing this package does not
load RocksDB.
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
