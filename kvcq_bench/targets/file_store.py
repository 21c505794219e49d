"""A store whose consume queues are files, as RocketMQ's are: what RocksDB is compared with."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine, metadata_profile
from kvcq.metadata_store import MetadataStore
from migration.files import FileQueueStore, RecordLookup
from store.base import SystemClock, no_progress
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from store.config import StoreConfig
    from store.message_store import MessageStore


def open_file_store(config: StoreConfig) -> MessageStore:
    """A running store in `config.root`, made there if it is empty. Raises StoreError."""
    clock = SystemClock()
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    metadata = MetadataStore(RocksEngine.open(directory.meta, metadata_profile()))
    lookup = RecordLookup(directory.commitlog, config.segment_bytes)
    queues = FileQueueStore(
        config.root,
        store_time_ms=lookup.store_time_ms,
        record_at=lookup.request,
        clock=clock,
    )
    return assemble(config, clock, directory, queues, metadata, no_progress)
