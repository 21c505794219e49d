"""The consume queues, key index and state of a store, in RocksDB.

`open_store` opens a store with all its queues in RocksDB. The rooms: `engine` is the key-value
protocol and its RocksDB implementation, `tables` the rows, `snapshots` what an opening falls back
on, `backup` makes copies, `inspect` verifies a stopped store.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kvcq.opening import open_store

__all__ = ["open_store"]


def __getattr__(name: str) -> object:
    # Imported on demand: it loads RocksDB and the scheduler, 100 ms that tools and workers which
    # only need rows and keys save.
    if name != "open_store":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from kvcq.opening import open_store

    return open_store
