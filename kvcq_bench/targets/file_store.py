"""A store whose consume queues are files, as RocketMQ's are: what RocksDB is compared with."""

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
    """A running store in `config.root`, made there if it is empty. Raises StoreError."""
    if not has_migration(config.root):
        StoreDir.open(config.root, config.segment_bytes, SystemClock()).close()
        write_state(config.root, MigrationState(Phase.FILES))
    return open_any(config).store
