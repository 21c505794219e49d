"""The key-value engine that the tables stand on, as a protocol with its batch.

`rocks/` keeps it on RocksDB, and has a door of its own: whoever imports this one loads no RocksDB.
`memory.py` is the twin for tests.
"""

from kvcq.engine.protocol import KvBatch, KvEngine, Pair

__all__ = [
    "KvBatch",
    "KvEngine",
    "Pair",
]
