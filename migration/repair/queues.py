"""Make the queues again from the log, the old database kept until that has succeeded."""

from __future__ import annotations

import logging
from contextlib import closing
from typing import TYPE_CHECKING, NamedTuple

from kvcq.consume_queue_store import KvConsumeQueueStore
from kvcq.engine.rocks import DERIVED, RocksEngine
from kvcq.errors import KvcqError
from kvcq.snapshots import Snapshots, drop_unfit, place_empty, place_sealed
from kvcq.state_store import KvStateStore
from migration.errors import IllegalStepError
from migration.next_step import NextStep
from migration.state import read_state
from store.base import SystemClock, no_progress
from store.errors import DamagedLogError, StoreFormatError
from store.log import Damage, SegmentSet, walk
from store.store_dir import DirKind, StoreDir, inspect

if TYPE_CHECKING:
    from pathlib import Path

    from kvcq.snapshots import Snapshot
    from store.base import Progress

logger = logging.getLogger(__name__)

_REPLACED = "replaced"


class SetAside(NamedTuple):
    """What `set_queues_aside` found and did."""

    path: Path | None  # the old database under its new name, None when there was none
    segment_bytes: int
    damage: list[Damage]  # records that will be missing from the queues


def set_queues_aside(
    root: Path,
    progress: Progress = no_progress,
    *,
    skip_damaged: bool = False,
) -> SetAside:
    """`kvcq/` has the state and no queues, the log was found fit to make these again, and the old
    database has another name.

    Raises StoreFormatError when `root` is no store of ours, or its state cannot be told: queues are
    made for the topics in it; IllegalStepError when it has a migration, which keeps its own account
    of its sides; StoreLockedError while it is open, DamagedLogError when the log is damaged and
    that is not to be left out: nothing was changed then, and the store serves what it served.
    """
    kind, identity = inspect(root)
    if kind is not DirKind.OURS or identity is None:
        raise StoreFormatError(root, "is not a store of ours")
    state = read_state(root)
    if state is not None:
        raise IllegalStepError(
            "repair --queues",
            state.phase.name,
            "a migration keeps account of what its sides hold, and makes them again itself",
            rebuild_side_step("rocksdb"),
        )
    directory = StoreDir.open(root, identity.segment_bytes, SystemClock())
    try:
        damage = _find_damage(directory.commitlog, identity.segment_bytes, progress)
        if damage and not skip_damaged:
            first = damage[0]
            raise DamagedLogError(*first, can_be_left_out=True, places=len(damage))
        before = set(root.glob(f"{directory.kvcq.name}.{_REPLACED}-*"))
        with closing(SegmentSet.load(directory.commitlog, identity.segment_bytes)) as segments:
            _place(directory, segments)
        aside = next(iter(set(root.glob(f"{directory.kvcq.name}.{_REPLACED}-*")) - before), None)
        return SetAside(aside, identity.segment_bytes, damage)
    finally:
        directory.close()


def rebuild_side_step(side: str) -> NextStep:
    """What rebuilds a side of a store with a migration."""
    return NextStep("resume", ("--rebuild", side), stopped_only=True)


def _place(directory: StoreDir, segments: SegmentSet) -> None:
    """`kvcq/` has the state it had, or that of the newest snapshot, and no queues.

    Raises StoreFormatError when neither can be read and the log does not begin at 0.
    """
    try:
        snapshot = _snapshot_of(directory, segments)
    except (KvcqError, StoreFormatError) as error:
        logger.warning("%s cannot be read (%s): a snapshot is taken", directory.kvcq, error)
        snapshot = None
    found = drop_unfit(directory.root, segments)
    for each in [snapshot] if snapshot is not None else reversed(found):
        if each.is_sealed:
            place_sealed(each, directory.kvcq, _REPLACED)
            return
    if segments.first_offset > 0:
        raise StoreFormatError(
            directory.kvcq,
            "cannot be read, and there is no snapshot: topics and groups of before the log's "
            f"beginning are nowhere else. Bring either back from a copy, or run "
            f"`kvcq repair {directory.root} --state`",
        )
    place_empty(directory.kvcq, _REPLACED)


def _snapshot_of(directory: StoreDir, segments: SegmentSet) -> Snapshot:
    """A sealed snapshot of the database as it is. Raises KvcqError, StoreFormatError."""
    if not directory.kvcq.exists():
        raise StoreFormatError(directory.kvcq, "is missing")
    with closing(RocksEngine.open(directory.kvcq, DERIVED)) as engine:
        queues = KvConsumeQueueStore(engine, owns_engine=False)
        if max(queues.dispatched_offset, KvStateStore(engine).point) > segments.end_offset:
            raise StoreFormatError(directory.kvcq, "is ahead of the log")
        return Snapshots(
            directory.root, segments, queues.back_up, lambda: None, SystemClock()
        ).take()


def _find_damage(commitlog: Path, segment_bytes: int, progress: Progress) -> list[Damage]:
    damage: list[Damage] = []
    with closing(SegmentSet.load(commitlog, segment_bytes, read_only=True)) as segments:
        span = max(1, segments.end_offset - segments.first_offset)
        for step in walk(segments, segments.first_offset):
            if isinstance(step, Damage):
                damage.append(step)
            progress("reading the log", (step.next_offset - segments.first_offset) / span)
    return damage
