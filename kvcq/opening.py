"""Open a store whose queues are in RocksDB: the way in, for programs that embed one.

A directory with a migration.json may have queues elsewhere too. `migration.opening` opens those,
and any other through what is here: it is the way in for the service and the tools.
"""

from __future__ import annotations

import logging
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, ExpiryFilter, RocksEngine, damage_mark, metadata_profile
from kvcq.errors import EngineDamagedError, EngineFailedError, EngineUnavailableError
from kvcq.metadata_store import MetadataStore
from store.base import SystemClock, move_aside, no_progress
from store.errors import StoreError, StoreFormatError
from store.opening import assemble
from store.store_dir import StoreDir

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.engine.rocks import Profile
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.message_store import MessageStore

logger = logging.getLogger(__name__)


def open_store(
    config: StoreConfig, *, clock: Clock | None = None, progress: Progress = no_progress
) -> MessageStore:
    """A running store in `config.root`, made there if the directory is empty or absent.

    A `kvcq/` database that is lost or damaged is rebuilt from the log; a damaged one is kept beside
    it under another name. `progress` is called with what is being done, and how much, 0 to 1.
    Raises StoreLockedError, StoreFormatError, DiskFullError, CorruptRecordError,
    EngineUnavailableError.
    """
    clock = clock or SystemClock()
    directory = StoreDir.open(config.root, config.segment_bytes, clock)
    if directory.migration.exists():
        directory.close()
        raise StoreFormatError(directory.migration, "is there: `migration.opening` opens the store")
    return open_plain(config, clock, directory, progress)


def open_plain(
    config: StoreConfig, clock: Clock, directory: StoreDir, progress: Progress
) -> MessageStore:
    """As `open_store`, in a directory that is open, and has no migration; takes it over."""
    with ExitStack() as undo:
        undo.callback(directory.close)
        metadata = open_metadata(directory)
        undo.callback(metadata.close)
        queues = open_queues(config, clock, directory)
        undo.pop_all()
    return assemble(config, clock, directory, queues, metadata, progress)


def open_queues(config: StoreConfig, clock: Clock, directory: StoreDir) -> KvConsumeQueueStore:
    """Queues and key index, as `open_derived` finds them, expiring by the clock."""
    profile = replace(DERIVED, statistics=config.rocksdb_statistics)

    def opened() -> KvConsumeQueueStore:
        engine = open_derived(directory.kvcq, profile)
        try:
            return KvConsumeQueueStore(engine, ExpiryFilter(engine, clock, config.expiry_margin_s))
        except BaseException:
            with suppress(StoreError):
                engine.close()
            raise

    try:
        return opened()
    except EngineDamagedError:  # met by the first read, which left a mark
        return opened()


def open_derived(path: Path, profile: Profile = DERIVED) -> RocksEngine:
    """The derived database; a damaged one is moved aside, and an empty one made.

    Damage that a reader met counts as well: it left a mark. Raises EngineUnavailableError when
    something else keeps it from being opened.
    """
    mark = damage_mark(path)
    if mark.exists():
        if path.exists():
            aside = move_aside(path, "damaged")
            logger.error(
                "%s was found damaged: moved to %s and rebuilt from the log", path, aside.name
            )
        mark.unlink()
    try:
        return RocksEngine.open(path, profile)
    except EngineUnavailableError:
        raise  # on a full disk, say: it knows more than the log does when segments were dropped
    except EngineFailedError as error:
        aside = move_aside(path, "damaged")
        logger.error("%s is moved to %s and rebuilt from the log: %s", path, aside.name, error)
        return RocksEngine.open(path, profile)


def open_metadata(directory: StoreDir) -> MetadataStore:
    """Topics and committed offsets are not in the log: a damaged database is refused.

    Raises StoreFormatError, EngineUnavailableError.
    """
    fresh = not directory.checkpoint.exists() and not directory.commitlog.exists()
    remedy = (
        f"Bring it back from a copy of the directory, or run `kvcq repair {directory.root} "
        "--metadata`: it keeps what is there under another name, and finds the topics again in "
        "log and queues, but no committed offsets"
    )
    if not fresh and not (directory.meta.is_dir() and any(directory.meta.iterdir())):
        raise StoreFormatError(
            directory.meta,
            f"is missing: topics, groups and committed offsets are in it. {remedy}",
        )
    try:
        return MetadataStore(RocksEngine.open(directory.meta, metadata_profile()))
    except EngineUnavailableError:
        raise
    except EngineFailedError as error:
        raise StoreFormatError(
            directory.meta,
            f"is not the database that was written last ({error}). Nothing was changed. {remedy}",
        ) from error
