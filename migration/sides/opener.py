"""Opens the two sides of a store directory, and removes what a phase does not need."""

from __future__ import annotations

import logging
import shutil
from typing import TYPE_CHECKING

from migration.errors import MigrationStateError
from migration.files import (
    CHECKPOINT_FILE,
    TRASH_DIRECTORY,
    FileQueueOptions,
    RecordLookup,
)
from migration.formats import INDEX_DIRECTORY, QUEUE_DIRECTORY
from migration.sides.file_side_store import FileSideStore
from migration.state import SideName
from store.base import fsync_directory, make_directory

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.consume_queue_store import KvConsumeQueueStore
    from kvcq.databases import PlainDatabases
    from migration.sides.side import SideStore
    from migration.state import FileLayout, MigrationState
    from store.base import Clock, Progress
    from store.config import StoreConfig
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


class SideOpener:
    """Opens side stores of one directory. Thread: one at a time."""

    def __init__(
        self,
        config: StoreConfig,
        clock: Clock,
        directory: StoreDir,
        databases: PlainDatabases,
        progress: Progress,
    ) -> None:
        """`databases`: the open database; the RocksDB side is a part of it."""
        self._config = config
        self._clock = clock
        self._directory = directory
        self._databases = databases
        self._progress = progress

    def open(self, name: SideName, state: MigrationState) -> SideStore:
        """Open the side; create an empty one if it does not exist. Raises StoreError."""
        if name is SideName.ROCKSDB:
            return self.rocksdb()
        return self.files(state)

    def rocksdb(self) -> KvConsumeQueueStore:
        """The queues in the database."""
        return self._databases.open_queues()

    def maintain(self) -> None:
        """Periodic work of the database, called every second."""
        self._databases.maintain()

    def files(self, state: MigrationState) -> FileSideStore:
        """Open the file queues. Raises StoreFormatError if their checkpoint is damaged."""
        opened = open_files(
            self._directory,
            self._config.segment_bytes,
            state.layout,
            self._clock,
            self._progress,
        )
        # The directory shows that there are file queues, even without messages. Only
        # now: files that were removed are derived again, whatever their checkpoint says.
        make_directory(self._directory.consumequeue)
        return opened

    def remove(self, name: SideName) -> None:
        """Remove all files of a closed side. Repeatable; a crash may leave a part."""
        root = self._directory.root
        if name is SideName.ROCKSDB:
            self._databases.clear_queues()
            return
        # The checkpoint is removed last: without it, remaining files would be mistaken for
        # RocketMQ's.
        for directory in (QUEUE_DIRECTORY, INDEX_DIRECTORY, TRASH_DIRECTORY):
            _remove_tree(root / directory)
        (root / CHECKPOINT_FILE).unlink(missing_ok=True)
        fsync_directory(root)

    def require_files(self, state: MigrationState) -> None:
        """Raises MigrationStateError if files that serve messages are missing."""
        log, path = self._directory.commitlog, self._directory.consumequeue
        if path.is_dir() or not log.is_dir() or not any(log.iterdir()):
            return
        raise MigrationStateError(
            path,
            f"is missing, and in state {state.phase.value} messages are read through it. Restore "
            f"it from a copy, or rebuild it from the log: "
            f"kvcq migrate resume {self._directory.root} --rebuild {SideName.FILES.value}",
        )


def open_files(
    directory: StoreDir,
    segment_bytes: int,
    layout: FileLayout,
    clock: Clock,
    progress: Progress,
) -> FileSideStore:
    """The file queues of a directory. Raises StoreFormatError if their checkpoint is damaged."""
    return FileSideStore(
        directory.root,
        RecordLookup(directory.commitlog, segment_bytes),
        file_options(layout),
        clock,
        progress,
    )


def file_options(layout: FileLayout) -> FileQueueOptions:
    """The layout as settings of the file queues."""
    return FileQueueOptions(
        units_per_file=layout.units_per_file,
        index=layout.index,
        index_tags_from=layout.index_tags_from,
    )


def _remove_tree(path: Path) -> None:
    """Remove a directory. Renames it first, so that a crash leaves no part under its own name."""
    doomed = path.with_name(f"{path.name}.removed")
    shutil.rmtree(doomed, ignore_errors=True)
    if path.exists():
        path.rename(doomed)
        fsync_directory(path.parent)
        shutil.rmtree(doomed)
