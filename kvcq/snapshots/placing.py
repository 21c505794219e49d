"""Replaces an unusable database by one made from a snapshot."""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.engine import KvBatch
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import EngineUnavailableError, KvcqError
from kvcq.snapshots.snapshot import DIRECTORY, ENDS_FILE, STATE_FILE, snapshots_in
from kvcq.state_store import KvStateStore
from kvcq.tables import BOUNDS, STATE
from store.base import (
    fsync_directory,
    make_directory,
    move_aside,
    raising_disk_full,
    raising_out_of_descriptors,
)
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.snapshots.snapshot import Snapshot
    from store.log import SegmentSet

_FAMILY_OF = {STATE_FILE: STATE, ENDS_FILE: BOUNDS}


def place_copy(snapshot: Snapshot, database: Path, why: str) -> None:
    """Replace `database` by the snapshot's copy; the old one is kept beside it as
    `<name>.<why>-<n>`.

    Table files are hard links; files that RocksDB changes in place are copied, because the
    snapshot's own copy is never opened for writing. Raises OSError, DiskFullError,
    OutOfDescriptorsError. Durable on return; after a crash the database is the old one, the new
    one, or absent.
    """
    new = _begin(database)
    for path in snapshot.copy.iterdir():
        with raising_disk_full(database, path.stat().st_size), raising_out_of_descriptors():
            if path.suffix == ".sst":
                os.link(path, new / path.name)
            elif path.name != "LOCK":
                shutil.copyfile(path, new / path.name)
                with (new / path.name).open("rb") as file:
                    os.fsync(file.fileno())
    fsync_directory(new)
    _finish(new, database, why)


def place_sealed(snapshot: Snapshot, database: Path, why: str) -> None:
    """Replace `database` by one with the sealed rows of the snapshot; its queues must be dispatched
    from the log's beginning. Otherwise like `place_copy`; also raises StoreFormatError for a
    damaged file."""
    files = snapshot.verified_files()
    new = _begin(database)
    with closing(RocksEngine.open(new, DERIVED, in_place=True)) as engine:
        for name, path in files.items():
            engine.ingest(_FAMILY_OF[name], [path], move=False)
        state = KvStateStore(engine, flushes=lambda: True)
        state.advance(snapshot.point)
        state.flush()
    _finish(new, database, why)


def has_usable_snapshot(root: Path, segments: SegmentSet) -> bool:
    """Whether an opening without a database can start from a snapshot. Changes nothing. Raises
    EngineUnavailableError."""
    snapshots = snapshots_in(root / DIRECTORY, read_only=True)
    return any(each.mark.fits(segments) and _is_usable(each) for each in snapshots)


def _is_usable(snapshot: Snapshot) -> bool:
    """Whether its sealed files are intact, or its copy can be opened."""
    try:
        return snapshot.verified_files() is not None
    except (StoreFormatError, OSError):
        pass  # the copy is left
    try:
        RocksEngine.open_read_only(snapshot.copy, DERIVED).close()
    except EngineUnavailableError:
        raise
    except KvcqError:
        return False
    return True


def place_empty(database: Path, why: str) -> None:
    """Replace `database` by an empty one, for a log that is complete from its first byte."""
    new = _begin(database)
    with closing(RocksEngine.open(new, DERIVED, in_place=True)) as engine:
        engine.write(KvBatch())
    _finish(new, database, why)


def remove_unfinished(database: Path) -> None:
    """Remove what a crash left of such a replacement."""
    shutil.rmtree(database.with_name(f"{database.name}.new"), ignore_errors=True)


def state_lost(database: Path) -> StoreFormatError:
    """The error for a store that has neither a database nor a snapshot that can be used, and whose
    log does not begin with its first record."""
    return StoreFormatError(
        database,
        "cannot be used, and there is no usable snapshot: topics, groups and offsets from before "
        "the log's start are nowhere else. Restore kvcq/ or snapshots/ from a backup, or rebuild "
        f"what the log still has: `kvcq repair {database.parent} --state`",
    )


def _begin(database: Path) -> Path:
    remove_unfinished(database)
    new = database.with_name(f"{database.name}.new")
    make_directory(new)
    return new


def _finish(new: Path, database: Path, why: str) -> None:
    if database.exists():
        move_aside(database, why)
    new.rename(database)
    fsync_directory(database.parent)
