"""What of a store directory the pipeline reads, of this store or of RocketMQ's."""

from __future__ import annotations

from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from kvcq.engine.rocks import RocksEngine, metadata_profile
from kvcq.errors import EngineFailedError
from kvcq.metadata_store import MetadataStore
from kvcq.tables import BOUNDS, DELETIONS_KEY, unpack_i64
from migration.columnar import Liveness, LogLayoutError, liveness_of
from migration.spark.queues import open_units
from migration.state import SideName, read_state
from store.base import SystemClock, no_progress
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from store.consume_queue import LastUnit


@dataclass(frozen=True)
class StoreParts:
    """Paths inside a store directory; None for what is not there."""

    root: Path
    ours: bool
    log: Path
    files: Path | None
    database: Path | None
    metadata: Path | None


def find_parts(root: Path) -> StoreParts:
    """Raises LogLayoutError for what is no store, StoreFormatError for a damaged one."""
    kind, _ = inspect(root)
    if kind not in (DirKind.OURS, DirKind.ROCKETMQ):
        raise LogLayoutError(f"{root}: is not a store")
    ours = kind is DirKind.OURS
    queues = root / "consumequeue"
    # RocketMQ keeps its database among the directories of its file queues.
    database = root / "kvcq" if ours else queues
    has_files = queues.is_dir() and any(entry.is_dir() for entry in queues.iterdir())
    return StoreParts(
        root=root,
        ours=ours,
        log=root / "commitlog",
        files=queues if has_files else None,
        database=database if (database / "CURRENT").is_file() else None,
        metadata=root / "meta" if ours else None,
    )


@contextmanager
def locked(parts: StoreParts) -> Iterator[None]:
    """Keep the store's own process out for the length of the block.

    RocketMQ's lock is the same one. Raises StoreLockedError.
    """
    _, identity = inspect(parts.root)
    if identity is None:
        yield  # RocketMQ's: taking the lock would make the directory ours
        return
    with closing(StoreDir.open(parts.root, identity.segment_bytes, SystemClock())):
        yield


def uses_database(parts: StoreParts) -> bool:
    """Whether the store keeps queues in RocksDB at all. Raises MigrationStateError."""
    state = read_state(parts.root)
    return parts.ours and (state is None or state.uses(SideName.ROCKSDB))


def read_liveness(parts: StoreParts) -> Liveness:
    """Which topics live.

    What lives of that follows from its log and queue files, as when it is taken over: one pass
    over the log, here. Raises EngineFailedError, MigrationStateError, StoreFormatError, and
    LogLayoutError when it cannot be told.
    """
    if parts.metadata is None:
        # Late: a worker imports this room for each rebuild, and needs no plan.
        from migration.plan import find_what_lives

        topics, lives = find_what_lives(parts.root, no_progress)
        if lives.refusals:
            raise LogLayoutError(f"{parts.root}: {'; '.join(lives.refusals)}")
        live_from = {name: lives.live_from.get(name, 0) for name in topics}
        return Liveness(live_from, lives.dead_light)
    with closing(_metadata(parts.metadata)) as metadata:
        return liveness_of(metadata, _applied_deletions(parts.database))


def read_ends(parts: StoreParts, liveness: Liveness) -> list[LastUnit]:
    """Where queues end that the store noted when their last message left its log.

    Those that live and stand in the database; none in a store of RocketMQ's.
    Raises EngineFailedError.
    """
    if parts.metadata is None:
        return []
    with closing(_metadata(parts.metadata)) as metadata:
        return [unit for page in metadata.last_units() for unit in page if liveness.keeps(unit)]


def _metadata(path: Path) -> MetadataStore:
    return MetadataStore(RocksEngine.open_read_only(path, metadata_profile()))


def _applied_deletions(database: Path | None) -> int:
    """Number of the last deletion in the derived database; 0 when it cannot be asked."""
    if database is None:
        return 0
    try:
        with open_units(database) as engine:
            row = engine.get(BOUNDS, DELETIONS_KEY)
    except EngineFailedError:
        return 0  # it is about to be replaced, or what reads it will say so
    return 0 if row is None else unpack_i64(row)
