"""A store with consume queues in files, as in RocketMQ, for comparison with RocksDB."""

from __future__ import annotations

from typing import TYPE_CHECKING

from migration.opening import open_any
from migration.state import MigrationState, Phase, has_migration, write_state
from store.base import SystemClock
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from store.config import StoreConfig
    from store.message_store import MessageStore


def open_file_store(config: StoreConfig) -> MessageStore:
    """Open and run a store in `config.root`; create it if it is empty. Raises StoreError."""
    if not has_migration(config.root):
        StoreDir.open(config.root, config.segment_bytes, SystemClock()).close()
        write_state(config.root, MigrationState(Phase.FILES))
    return open_any(config).store
