"""Open a store directory: the one way in for the service, the tools and programs that embed it."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.errors import EngineFailedError
from kvcq.expiry_filter import ExpiryFilter
from kvcq.metadata_store import MetadataStore
from kvcq.options import DERIVED, metadata_profile
from kvcq.rocks import RocksEngine
from migration.repair_queues import move_aside
from store.clock import SystemClock
from store.errors import StoreFormatError
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from store.clock import Clock
    from store.config import StoreConfig
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)


def open_store(
    config: StoreConfig,
    *,
    clock: Clock | None = None,
    progress: Callable[[str, float], None] | None = None,
) -> MessageStore:
    """A running store in `config.root`, made there if the directory is empty or absent.

    A `kvcq/` database that is lost or damaged is rebuilt from the log; a damaged one is kept
    beside it under another name. `progress` is told what is being done, and how much, 0 to 1.
    Raises StoreLockedError, StoreFormatError, DiskFullError, CorruptRecordError.
    """
    clock = clock or SystemClock()
    progress = progress or (lambda _what, _share: None)
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    try:
        metadata = MetadataStore(_open_metadata(directory))
        try:
            engine = _open_derived(directory.kvcq)
        except BaseException:
            metadata.close()
            raise
    except BaseException:
        directory.close()
        raise
    queues = KvConsumeQueueStore(engine, ExpiryFilter(engine, clock, config.expiry_margin_s))
    return assemble(config, clock, directory, queues, metadata, progress)


def _open_metadata(directory: StoreDir) -> RocksEngine:
    """Topics and committed offsets are not in the log: damage here is refused, not papered over."""
    fresh = not directory.checkpoint.exists() and not directory.commitlog.exists()
    if not fresh and not directory.meta.exists():
        raise StoreFormatError(
            directory.meta,
            "is missing: topics, groups and committed offsets are in it. Bring it back from a "
            "copy, or run `kvcq repair --metadata` on it to make the topics again from the log",
        )
    try:
        return RocksEngine.open(directory.meta, metadata_profile())
    except EngineFailedError as error:
        raise StoreFormatError(
            directory.meta,
            f"is damaged ({error}). Bring it back from a copy, or move it away and run "
            "`kvcq repair --metadata` to make the topics again from the log",
        ) from error


def _open_derived(path: Path) -> RocksEngine:
    """The derived database; one that cannot be opened is moved aside, and a new one made."""
    try:
        return RocksEngine.open(path, DERIVED)
    except EngineFailedError as error:
        aside = move_aside(path, "damaged")
        logger.error("%s is moved to %s and rebuilt from the log: %s", path, aside.name, error)
        return RocksEngine.open(path, DERIVED)
