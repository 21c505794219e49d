"""Replaces the database of a stopped store by one with its state but without queues, to be
rebuilt."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING

from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import KvcqError
from kvcq.snapshots import Snapshots, drop_unfit, place_empty, place_sealed, state_lost
from kvcq.state_store import KvStateStore
from store.base import SystemClock
from store.errors import StoreFormatError

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.snapshots import Snapshot
    from store.log import SegmentSet
    from store.store_dir import StoreDir

logger = logging.getLogger(__name__)


def place_without_queues(directory: StoreDir, segments: SegmentSet, why: str) -> Path | None:
    """Replace `kvcq/` by a database with its state, or that of the newest snapshot, and the ends of
    queues whose messages have left the log. Returns the path of the old one, `kvcq.<why>-<n>`, if
    there was one.

    Raises StoreFormatError if neither can be read and the log is not complete. Durable on return; a
    crash leaves the old database, the new one, or none.
    """
    before = set(directory.root.glob(f"{directory.kvcq.name}.{why}-*"))
    _place(directory, segments, why)
    after = set(directory.root.glob(f"{directory.kvcq.name}.{why}-*"))
    return next(iter(after - before), None)


def _place(directory: StoreDir, segments: SegmentSet, why: str) -> None:
    why_not: KvcqError | StoreFormatError | None = None
    try:
        snapshots = [_snapshot_of(directory, segments)]
    except (KvcqError, StoreFormatError) as error:
        snapshots, why_not = [], error
    fitting = drop_unfit(directory.root, segments)
    for each in reversed(snapshots or fitting):
        if not each.is_sealed:
            continue
        try:
            place_sealed(each, directory.kvcq, why)
        except StoreFormatError as error:
            logger.error("the snapshot at %d cannot be used: %s", each.point, error)
            continue
        if why_not is not None:
            logger.warning("%s: the state is that of the snapshot at %d", why_not, each.point)
        return
    if max(segments.first_offset, directory.base_offset) > 0:
        raise state_lost(directory.kvcq)
    place_empty(directory.kvcq, why)


def _snapshot_of(directory: StoreDir, segments: SegmentSet) -> Snapshot:
    """A sealed snapshot of the current database. Raises KvcqError, StoreFormatError."""
    if not directory.kvcq.exists():
        raise StoreFormatError(directory.kvcq, "is missing")
    with closing(RocksEngine.open(directory.kvcq, DERIVED)) as engine:
        if KvStateStore(engine).point > segments.end_offset:
            raise StoreFormatError(directory.kvcq, "is ahead of the log")
        clock = SystemClock()
        return Snapshots(directory.root, segments, engine.back_up, lambda: None, clock).take()
