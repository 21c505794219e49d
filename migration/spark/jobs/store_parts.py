"""The parts of a store directory, kvcq's or RocketMQ's, that the pipeline reads."""

from __future__ import annotations

import logging
import tempfile
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineFailedError
from kvcq.inspect import state_records
from kvcq.snapshots import DIRECTORY, place_sealed, snapshots_in
from kvcq.state_store import KvStateStore
from kvcq.tables import last_units_of
from migration.columnar import Liveness, LogLayoutError, liveness_of
from migration.spark.errors import PipelineError
from migration.state import SideName, read_state
from store.base import SystemClock, no_progress
from store.log import SegmentSet
from store.state import StateView, TopicEnded
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from collections.abc import Iterator

    from store.consume_queue import LastUnit
    from store.store_dir import StoreIdentity

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class StoreParts:
    """Paths inside a store directory; None for missing ones."""

    root: Path
    identity: StoreIdentity | None  # None: RocketMQ's
    log: Path
    files: Path | None
    database: Path | None


def find_parts(root: Path) -> StoreParts:
    """The parts in `root`. Raises LogLayoutError if it is not a store, StoreFormatError if it is
    damaged."""
    kind, identity = inspect(root)
    if kind not in (DirKind.OURS, DirKind.ROCKETMQ):
        raise LogLayoutError(f"{root}: is not a store")
    ours = kind is DirKind.OURS
    queues = root / "consumequeue"
    # RocketMQ keeps its database among the directories of its file queues.
    database = root / "kvcq" if ours else queues
    has_files = queues.is_dir() and any(entry.is_dir() for entry in queues.iterdir())
    return StoreParts(
        root=root,
        identity=identity,
        log=root / "commitlog",
        files=queues if has_files else None,
        database=database if (database / "CURRENT").is_file() else None,
    )


@contextmanager
def locked(parts: StoreParts) -> Iterator[None]:
    """Hold the lock of a kvcq store in the block; of RocketMQ's stores none. Raises
    StoreLockedError."""
    identity = parts.identity
    if identity is None:
        yield  # opening RocketMQ's directory would make it a kvcq store
        return
    with closing(StoreDir.open(parts.root, identity.segment_bytes, SystemClock())):
        yield


def check_owns_queues(parts: StoreParts) -> None:
    """Check that all queues of the store are in RocksDB alone, so that they may be replaced.

    While there are files as well, these may be what has the ends of expired queues, and a
    verification is one of both sides. Raises PipelineError, MigrationStateError.
    """
    state = read_state(parts.root)
    if parts.identity is None or (state is not None and not state.uses(SideName.ROCKSDB)):
        raise PipelineError(f"{parts.root} has no queues in RocksDB: give --output")
    if state is not None and state.uses(SideName.FILES):
        raise PipelineError(
            f"{parts.root} is in a migration, which rebuilds its sides itself, as by `kvcq migrate "
            f"resume {parts.root} --rebuild rocksdb`: give --output to write files only"
        )


def read_liveness(parts: StoreParts) -> Liveness:
    """Which topics are live, according to the whole log; the store may be running.

    For RocketMQ's stores it is computed from log and queue files, as when one is taken over: one
    pass over the log, on this machine. Raises EngineFailedError, MigrationStateError,
    StoreFormatError, and LogLayoutError if it cannot be determined.
    """
    if parts.identity is None:
        # Imported here, because workers of a rebuild import this room and need no plan.
        from migration.plan import find_live_records

        topics, lives = find_live_records(parts.root, no_progress)
        if lives.refusals:
            raise LogLayoutError(f"{parts.root}: {'; '.join(lives.refusals)}")
        live_from = {name: lives.live_from.get(name, 0) for name in topics}
        return Liveness(live_from, lives.dead_light)
    ended: dict[str, int] = {}
    with _database_of(parts) as engine, _segments_of(parts) as segments:
        state = KvStateStore(engine)
        view = StateView(state, lambda: 0)
        for at, end, entries in state_records(engine, segments, parts.identity.base_offset):
            if at >= state.point:  # not in the rows yet: the store runs, or was killed
                view.append(entries, at, end)
            ended.update({each.topic: at for each in entries if isinstance(each, TopicEnded)})
        return liveness_of(view.tables, ended)


def read_ends(parts: StoreParts, liveness: Liveness) -> list[LastUnit]:
    """The ends of live queues whose last message has left the log, from the database. Empty for
    RocketMQ's stores. Raises EngineFailedError, StoreFormatError."""
    if parts.identity is None:
        return []
    with _database_of(parts) as engine, _segments_of(parts) as segments:
        first = segments.first_offset
        gone = (unit for unit in last_units_of(engine) if unit.physical_offset < first)
        return [unit for unit in gone if liveness.keeps(unit)]


@contextmanager
def _database_of(parts: StoreParts) -> Iterator[RocksEngine]:
    """The database of a kvcq store, or one built from its newest snapshot, for reading."""
    try:
        engine = RocksEngine.open_read_only(parts.root / "kvcq", DERIVED)
    except EngineFailedError as error:
        logger.warning("%s cannot be read: %s", parts.root / "kvcq", error)
        found = snapshots_in(parts.root / DIRECTORY, read_only=True)
        sealed = [each for each in found if each.is_sealed]
        if not sealed:
            raise
        with tempfile.TemporaryDirectory(prefix="kvcq-state-") as scratch:
            place_sealed(sealed[-1], Path(scratch) / "kvcq", "unused")
            with closing(RocksEngine.open_read_only(Path(scratch) / "kvcq", DERIVED)) as engine:
                yield engine
        return
    with closing(engine):
        yield engine


@contextmanager
def _segments_of(parts: StoreParts) -> Iterator[SegmentSet]:
    assert parts.identity is not None, "a store of ours"
    size = parts.identity.segment_bytes
    with closing(SegmentSet.load(parts.log, size, read_only=True)) as segments:
        yield segments
